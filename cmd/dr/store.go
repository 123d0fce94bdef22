package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// storeFlags holds the flags for reading and writing a repository.
type storeFlags struct {
	asOf     string
	past     time.Time // the time of asOf, computed once: "2h ago" must not move during a run; zero: not computed, or no asOf
	limit    string
	parallel int
	lock     string
	signKey  string
	trust    []string
	// credentials is the folder with the repository's credentials; "": those of the environment.
	credentials string
}

// credentialsFlag adds the flag for the credentials of the repository.
func (f *storeFlags) credentialsFlag(cmd *cobra.Command, getenv func(string) string) {
	cmd.Flags().StringVar(&f.credentials, "credentials", getenv("DR_CREDENTIALS"), credentialsUsage)
}

const credentialsUsage = "folder with the credentials of the store, such as a mounted Secret; then no others are used (DR_CREDENTIALS)"

// transferFlags adds the flags of verbs that transfer much data.
func (f *storeFlags) transferFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.limit, "limit", "", "bytes per second to and from the store, such as 20MiB/s (default: no limit)")
	f.parallelFlag(cmd)
}

func (f *storeFlags) parallelFlag(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.parallel, "parallel", stores.DefaultParallel,
		"concurrent requests for one large object; memory is 8 MiB for each, plus 8 MiB")
}

// trustFlags adds the flags of verbs that act on the content of a repository.
func (f *storeFlags) trustFlags(cmd *cobra.Command, getenv func(string) string) {
	var fromEnv []string
	t := getenv("DR_TRUST")
	if t != "" {
		fromEnv = strings.Split(t, ",")
	}
	cmd.Flags().StringSliceVar(&f.trust, "trust", fromEnv,
		"minisign public key, or a file with one: trust only objects that it has signed; may be given several times (DR_TRUST)")
}

// pastFlags adds the flags of verbs that can read a versioned store as of a past time.
func (f *storeFlags) pastFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.asOf, "as-of", "",
		"read the store as of a time (2026-11-21T10:00:00Z, \"2h ago\"), for example before objects were deleted; the store must keep versions")
}

// writeFlags adds the flags of verbs that write backups, segments and documents.
func (f *storeFlags) writeFlags(cmd *cobra.Command, getenv func(string) string) {
	cmd.Flags().StringVar(&f.lock, "lock", "",
		"lock the written objects against deletion for this long: 30d, 12h, 30d:compliance (cannot be lifted; default: governance)")
	f.signFlags(cmd, getenv)
}

func (f *storeFlags) signFlags(cmd *cobra.Command, getenv func(string) string) {
	cmd.Flags().StringVar(&f.signKey, "sign-key", getenv("DR_SIGN_KEY"),
		"file with the key that signs written objects; dr keygen --signing creates one (DR_SIGN_KEY)")
}

// options returns the options for opening the store.
func (f *storeFlags) options() (o stores.Options, err error) {
	o.Parallel = f.parallel // 0 where the verb has no such flag
	if f.limit != "" {
		limit, err := humanize.ParseBytes(strings.TrimSuffix(f.limit, "/s"))
		if err != nil || limit < minLimit {
			return o, usagef("--limit %s: use a form like 20MiB/s, at least %s/s", f.limit, size(minLimit))
		}
		o.Limit = int64(limit)
	}
	if f.asOf != "" && f.past.IsZero() {
		f.past, err = when.Parse(f.asOf, time.Now())
		if err != nil {
			return o, usagef("--as-of: %w", err)
		}
	}
	o.AsOf = f.past
	if f.credentials != "" {
		o.CredentialsDir = f.credentials
		o.Credentials, err = credentials.Read(f.credentials)
	}
	return o, err
}

// protectingFlags contains the flag of each variable that switches on encryption or signatures, or selects credentials.
var protectingFlags = map[string]string{
	"DR_RECIPIENT": "recipient", "DR_IDENTITY": "identity", "DR_PASSPHRASE_FILE": "passphrase-file",
	"DR_TRUST": "trust", "DR_SIGN_KEY": "sign-key", "DR_CREDENTIALS": "credentials",
}

// checkVariables refuses a variable that is set and empty, unless its flag is given.
func (a *app) checkVariables(cmd *cobra.Command) error {
	for _, name := range slices.Sorted(maps.Keys(protectingFlags)) {
		value, flag := a.getenv(name), cmd.Flags().Lookup(protectingFlags[name])
		if flag != nil && !flag.Changed && value != "" && strings.TrimSpace(value) == "" {
			return usagef("%s is set to an empty value: give it a value, or unset it", name)
		}
	}
	return nil
}

// check returns an error for flags that contradict each other, are out of range or have an empty value: a shell variable that is
// not set must not silently switch off encryption or signatures.
func (f *storeFlags) check(cmd *cobra.Command) error {
	for _, name := range []string{
		"trust", "sign-key", "lock", "as-of", "recipient", "recipients-file", "identity", "passphrase-file", "credentials", "from-credentials",
		"to-credentials",
	} {
		flag := cmd.Flags().Lookup(name)
		if flag != nil && flag.Changed && (flag.Value.String() == "" || flag.Value.String() == "[]") {
			return usagef("--%s is given without a value: give it one, or leave it out", name)
		}
	}
	if cmd.Flags().Changed("allow-plain") && cmd.Flags().Changed("skip-plain") {
		return usagef("--allow-plain, --skip-plain: use one of them")
	}
	if cmd.Flags().Lookup("parallel") != nil && (f.parallel < 1 || f.parallel > maxParallel) {
		return usagef("--parallel must be from 1 to %d", maxParallel)
	}
	return nil
}

const (
	maxParallel = 64
	minLimit    = 64 << 10 // bytes per second: below it no transfer would end in time
)

// policy returns the lock and the signing key of written objects, and the trusted keys.
func (f *storeFlags) policy() (p records.Policy, err error) {
	p.Lock, err = parseLock(f.lock)
	if err != nil {
		return p, usagef("--lock %s: %w", f.lock, err)
	}
	if f.signKey != "" {
		text, err := os.ReadFile(f.signKey)
		if err != nil {
			return p, usagef("--sign-key: %w", err)
		}
		p.Key, err = sign.ParseKey(text)
		if err != nil {
			return p, usagef("--sign-key %s: %w", f.signKey, err)
		}
	}
	var texts []string
	for _, key := range f.trust {
		text, err := os.ReadFile(key)
		if err == nil { // a file; if not, key is the public key itself
			key = string(text)
		}
		texts = append(texts, key)
	}
	p.Trust, err = sign.ParseTrust(texts...)
	if err != nil {
		return p, usagef("--trust: %w", err)
	}
	return p, nil
}

var errLock = errors.New("use a form like 30d, 12h or 30d:compliance")

// parseLock parses the duration of a lock and, after a colon, its mode. It returns the zero Lock, which locks nothing, for "".
func parseLock(text string) (l records.Lock, err error) {
	if text == "" {
		return l, nil
	}
	span, mode, hasMode := strings.Cut(text, ":")
	l.For, err = when.ParseSpan(span)
	if err != nil || l.For <= 0 {
		return l, errLock
	}
	l.Compliance = mode == "compliance"
	if hasMode && mode != "compliance" && mode != "governance" {
		return l, errLock
	}
	return l, nil
}

// checkSigner returns an error if --trust is given and --sign-key is not one of the trusted keys. Readers that trust the same keys
// would ignore the documents.
func (f *storeFlags) checkSigner() error {
	policy, err := f.policy()
	if err != nil {
		return err
	}
	signer := policy.Key.Trust().Keys()
	if policy.Trust.None() || len(signer) > 0 && slices.Contains(policy.Trust.Keys(), signer[0]) {
		return nil
	}
	return usagef("--trust without a trusted --sign-key: readers would ignore what this command writes: sign with a key that --trust names")
}
