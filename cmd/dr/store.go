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
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// storeFlags say how the repository is read and written.
type storeFlags struct {
	asOf     string
	past     time.Time // what asOf says, from the first time that it was asked for: "2h ago" must not move on meanwhile
	limit    string
	parallel int
	lock     string
	signKey  string
	trust    []string
}

// transferFlags are for the verbs that move much.
func (f *storeFlags) transferFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.limit, "limit", "", "bytes a second to and from the store, such as 20MiB/s (default: no limit)")
	f.parallelFlag(cmd)
}

func (f *storeFlags) parallelFlag(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.parallel, "parallel", stores.DefaultParallel,
		"requests at a time for one large object, up or down; each takes 8 MiB of memory, and one more")
}

// trustFlags are for the verbs that believe what they read.
func (f *storeFlags) trustFlags(cmd *cobra.Command, getenv func(string) string) {
	var fromEnv []string
	if t := getenv("DR_TRUST"); t != "" {
		fromEnv = strings.Split(t, ",")
	}
	cmd.Flags().StringSliceVar(&f.trust, "trust", fromEnv,
		"minisign public key, or file of one: believe only what it has signed; may be given again (DR_TRUST)")
}

// pastFlags are for the verbs that can look at a versioned store as it was.
func (f *storeFlags) pastFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.asOf, "as-of", "",
		"see the store as it was at a time (2026-11-21T10:00:00Z, \"2h ago\"), before somebody deleted things; it must keep versions")
}

// writeFlags are for the verbs that write what is to stay.
func (f *storeFlags) writeFlags(cmd *cobra.Command, getenv func(string) string) {
	cmd.Flags().StringVar(&f.lock, "lock", "",
		"keep what is written from being deleted for so long: 30d, 12h, 30d:compliance (nobody can lift it; default: governance)")
	f.signFlags(cmd, getenv)
}

func (f *storeFlags) signFlags(cmd *cobra.Command, getenv func(string) string) {
	cmd.Flags().StringVar(&f.signKey, "sign-key", getenv("DR_SIGN_KEY"),
		"file with the key that signs what is written; dr keygen --signing makes one (DR_SIGN_KEY)")
}

// options say how the store is talked to.
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
		if f.past, err = when.Parse(f.asOf, time.Now()); err != nil {
			return o, usagef("--as-of: %w", err)
		}
	}
	o.AsOf = f.past
	return o, nil
}

// protecting are the variables without which secrets get out or forgeries in, with their flags.
var protecting = map[string]string{
	"DR_RECIPIENT": "recipient", "DR_IDENTITY": "identity", "DR_PASSPHRASE_FILE": "passphrase-file",
	"DR_TRUST": "trust", "DR_SIGN_KEY": "sign-key",
}

// checkVariables refuses a variable that is set and empty, unless its flag is given.
func (a *app) checkVariables(cmd *cobra.Command) error {
	for _, name := range slices.Sorted(maps.Keys(protecting)) {
		value, flag := a.getenv(name), cmd.Flags().Lookup(protecting[name])
		if flag != nil && !flag.Changed && value != "" && strings.TrimSpace(value) == "" {
			return usagef("%s is set and empty: give it a value, or unset it", name)
		}
	}
	return nil
}

// check refuses what would silently be something else: a variable of the shell that is not set must not switch off what
// keeps secrets in and forgeries out.
func (f *storeFlags) check(cmd *cobra.Command) error {
	for _, name := range []string{
		"trust", "sign-key", "lock", "as-of", "recipient", "recipients-file", "identity", "passphrase-file",
	} {
		flag := cmd.Flags().Lookup(name)
		if flag != nil && flag.Changed && (flag.Value.String() == "" || flag.Value.String() == "[]") {
			return usagef("--%s is given and says nothing", name)
		}
	}
	if cmd.Flags().Changed("allow-plain") && cmd.Flags().Changed("skip-plain") {
		return usagef("--allow-plain, --skip-plain: use one of them")
	}
	if cmd.Flags().Lookup("parallel") != nil && (f.parallel < 1 || f.parallel > maxParallel) {
		return usagef("--parallel is from 1 to %d", maxParallel)
	}
	return nil
}

const (
	maxParallel = 64
	minLimit    = 64 << 10 // bytes a second: below it nothing would ever end
)

// policy says how objects are written, and which are believed.
func (f *storeFlags) policy() (p records.Policy, err error) {
	if p.Lock, err = parseLock(f.lock); err != nil {
		return p, usagef("--lock %s: %w", f.lock, err)
	}
	if f.signKey != "" {
		text, err := os.ReadFile(f.signKey)
		if err != nil {
			return p, usagef("--sign-key: %w", err)
		}
		if p.Key, err = sign.ParseKey(text); err != nil {
			return p, usagef("--sign-key %s: %w", f.signKey, err)
		}
	}
	var texts []string
	for _, key := range f.trust {
		if text, err := os.ReadFile(key); err == nil {
			key = string(text)
		}
		texts = append(texts, key)
	}
	if p.Trust, err = sign.ParseTrust(texts...); err != nil {
		return p, usagef("--trust: %w", err)
	}
	return p, nil
}

var errLock = errors.New("use a form like 30d, 12h or 30d:compliance")

// parseLock reads a time and, behind a colon, who may lift the lock.
func parseLock(text string) (l records.Lock, err error) {
	if text == "" {
		return l, nil
	}
	span, mode, said := strings.Cut(text, ":")
	if l.For, err = when.ParseSpan(span); err != nil || l.For <= 0 {
		return l, errLock
	}
	l.Compliance = mode == "compliance"
	if said && mode != "compliance" && mode != "governance" {
		return l, errLock
	}
	return l, nil
}
