package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// Defaults of --max-stream and --grace. dr archive uses them for the backups that it takes.
const (
	maxStream = 5 * time.Minute
	grace     = 24 * time.Hour
)

func (a *app) backup() *cobra.Command {
	var f requestFlags
	request := &f.request
	cmd := &cobra.Command{
		SuggestFor: []string{"snapshot"}, // etcdctl's and etcdutl's word
		Use:        "backup",
		Short:      "Take a backup of a live cluster",
		Long: `backup streams a snapshot from the cluster's leader through compression and encryption into the repository. It writes
nothing to the local disk (except with --spool), and memory is bounded whatever the size.

Unreachable endpoints are tolerated. A member that fails during the stream is replaced by the next one, once. Without a quorum
the backup is still taken, and marked.

Several --repo receive the same stream under the same name. With --require all the backup is listed nowhere unless every
repository has the data; with --require any a repository that fails or hangs is skipped.

Flags and ETCDCTL_* variables are those of etcdctl, except that a password is never a flag.`,
		Example: `  dr backup --repo file:///var/backups/etcd --cluster prod --recipient age1… \
    --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  dr backup --repo s3://backups/etcd --cluster prod --recipient age1… --kubeadm`,
		Args: noArgs,
	}
	etcd, fromHost := cluster.AddFlags(cmd.Flags()), kubeadmFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&request.From, "from", "leader", "member to read: leader, follower, any, or one of the endpoints")
	flags.BoolVar(&request.NoHash, "no-hash", false, "do not ask the member for its HashKV; a restore then has none to compare with")
	request.HashMax = cluster.HashStall
	flags.Var((*when.Span)(&request.HashMax), "hash-max", hashMaxHelp)
	flags.BoolVar(&request.CompareMembers, "compare-members", false, "compare the HashKV of all members, one at a time; exit code 3 if they differ")
	request.MaxStream = maxStream
	flags.Var((*when.Span)(&request.MaxStream), "max-stream", "fail if the member takes longer to send the snapshot")
	flags.StringVar(&request.Spool.Dir, "spool", "", "directory: first write the encrypted stream there at full speed, then upload it")
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if request.MaxStream <= 0 {
			return usagef("--max-stream must be above zero")
		}
		if a.store.limit != "" && request.Spool.Dir == "" {
			return usagef("--limit without --spool: it would slow down the member's stream, which burdens the member: add --spool DIR")
		}
		err := f.load()
		if err == nil {
			err = fromHost()
		}
		if err != nil {
			return err
		}
		cfg, err := etcd.Config(a.getenv, a.ask)
		if err != nil {
			return err
		}
		places, err := a.places(cmd.Context(), *f.repos)
		if err != nil {
			return err
		}
		a.warnPlain(request.To.Seal().Encryption)
		report, done := a.progress()
		request.Report = report
		result, err := backup.Run(cmd.Context(), cfg, places, *request)
		done()
		return a.printStored(result, err)
	}
	return cmd
}

// repositories holds the values of --repo and --credentials of a verb that can store one backup in several repositories.
type repositories struct {
	urls    []string
	folders []string // with credentials: none, one for all stores, or one for each store, in their order
}

// repositoriesFlags is like repositoryFlags, with a --repo and a --credentials that may be given several times.
func (a *app) repositoriesFlags(cmd *cobra.Command) *repositories {
	r := &repositories{}
	fromEnv := func(name string) []string {
		value := a.getenv(name)
		if value == "" {
			return nil
		}
		return []string{value}
	}
	a.clusterFlag(cmd)
	cmd.Flags().StringArrayVar(&r.urls, "repo", fromEnv("DR_REPO"), repoUsage+"; may be given several times")
	cmd.Flags().StringArrayVar(&r.folders, "credentials", fromEnv("DR_CREDENTIALS"),
		credentialsUsage+"; one for all stores, or one for each --repo that is not a directory, in their order")
	return r
}

// foldersOf returns one folder with credentials for each of repos; "" for a directory, which needs none, and for all if folders is
// empty. A single folder serves all stores.
func foldersOf(repos, folders []string) ([]string, error) {
	all, used := make([]string, len(repos)), 0
	for n, repo := range repos {
		if strings.HasPrefix(repo, "file:") || len(folders) == 0 {
			continue
		}
		all[n] = folders[min(used, len(folders)-1)]
		used++
	}
	if len(folders) > 1 && len(folders) != used {
		return nil, usagef("--credentials is given %d times for %d stores: give one for all, or one for each --repo that is not a directory",
			len(folders), used)
	}
	return all, nil
}

// places opens the repositories for a verb that may write the first backup, and creates missing ones.
func (a *app) places(ctx context.Context, r repositories) (places []backup.Store, err error) {
	if len(r.urls) == 0 {
		r.urls = []string{""} // create returns the error for it
	}
	folders, err := foldersOf(r.urls, r.folders)
	if err == nil {
		err = a.store.checkSigner()
	}
	if err != nil {
		return nil, err
	}
	for n, repo := range r.urls {
		shown := stores.Shown(repo)
		if slices.ContainsFunc(places, func(p backup.Store) bool { return p.Repository == shown }) {
			return nil, usagef("--repo %s is given twice: name each repository once", shown)
		}
		a.repo, a.store.credentials = repo, folders[n]
		c, err := a.create(ctx)
		if err != nil {
			return nil, err
		}
		places = append(places, backup.Store{Repository: shown, Cluster: c})
	}
	return places, nil
}

// warnPlain warns of a backup without encryption: etcd contains every Secret of a Kubernetes cluster.
func (a *app) warnPlain(encryption string) {
	if encryption == "" {
		a.warnf("WARNING: no --recipient: the backup is NOT ENCRYPTED: anyone who can read the repository can read every secret in etcd")
	}
}

func (a *app) printBackup(r backup.Result) error {
	if a.output == "json" {
		return a.json(document.Line{Result: convert.BackupResult(r)})
	}
	a.printf("backup %s of cluster %s is stored\n", r.ID, r.Cluster)
	a.facts(
		"origin", originText(r.Manifest),
		"member", memberText(r.Manifest),
		"revision", fmt.Sprintf("%d%s", r.Revision, hashText(r.Manifest)),
		"database", size(r.Plain.Size),
		"stored", fmt.Sprintf("%s, %s", size(r.Stored.Size), sealText(r.Backup)),
		"marks", strings.Join(notices(r.Backup), ", "),
		"took", tookText(r.Manifest),
	)
	a.printStores(r.Stores)
	return nil
}

// memberText returns the member that sent the backup, and its version of etcd, as far as they are known.
func memberText(m catalog.Manifest) string {
	var parts []string
	if m.Member.ID != "" {
		parts = append(parts, fmt.Sprintf("%s (%s)", m.Member.Name, m.Member.ID))
	}
	if m.EtcdVersion != "" {
		parts = append(parts, "etcd "+m.EtcdVersion)
	}
	return strings.Join(parts, ", ")
}

// originText describes where an imported backup came from; "" for a backup of the live cluster.
func originText(m catalog.Manifest) string {
	if m.Origin == nil {
		return ""
	}
	return m.Origin.String()
}

// tookText returns how long a backup took; "" for an imported backup, whose Started and Finished are the times of its data.
func tookText(m catalog.Manifest) string {
	if m.Origin != nil {
		return ""
	}
	return seconds(m.Finished.Sub(m.Started).Seconds())
}

// printStores prints which of several repositories have the backup. It prints nothing for a single repository.
func (a *app) printStores(outcomes []backup.Outcome) {
	if len(outcomes) < 2 {
		return
	}
	for _, o := range outcomes {
		text := "stored"
		if o.Err != nil {
			text = "NOT STORED: " + o.Err.Error()
		}
		a.facts(o.Repository, text)
	}
}

// hashMaxHelp is the usage of --hash-max.
const hashMaxHelp = "ask for the HashKV only if the member's writes will wait for it no longer than this, by an estimate"

// byteSize is the value of a flag for a number of bytes, such as 64MiB. 0 means that the flag is not given.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return strings.ReplaceAll(humanize.IBytes(uint64(*b)), " ", "")
}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return errors.New("use a form like 64MiB, above zero")
	}
	*b = byteSize(n)
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }

func hashText(m catalog.Manifest) string {
	switch {
	case m.HashKV != nil:
		return fmt.Sprintf(", HashKV %08x", m.HashKV.Hash)
	case m.HashSkipped != "":
		return ", no HashKV: " + m.HashSkipped
	}
	return ", no HashKV"
}

func sealText(b catalog.Backup) string {
	if b.Seal.Encryption == "" {
		return "NOT ENCRYPTED"
	}
	return "encrypted for " + strings.Join(b.Seal.Recipients, ", ")
}

// notices returns the texts of the column MARKS: the properties of a backup that an operator should notice, such as missing
// encryption.
func notices(b catalog.Backup) []string {
	var m []string
	if b.Origin != nil && b.Origin.Salvage != nil {
		m = append(m, "salvaged")
	} else if b.Origin != nil {
		m = append(m, "imported")
	}
	if b.NoQuorum {
		m = append(m, "no-quorum")
	}
	if b.Diverged != "" {
		m = append(m, "diverged")
	}
	m = append(m, b.Alarms...)
	if b.Seal.Encryption == "" {
		m = append(m, "not encrypted")
	} else if !b.Decrypted() {
		m = append(m, "never decrypted")
	}
	_, bad := b.Failed()
	if bad {
		m = append(m, "VERIFY FAILED")
	}
	end := lastEnd(b.Pins)
	if !end.IsZero() {
		m = append(m, "pinned until "+end.Format(time.DateOnly))
	} else if len(b.Pins) > 0 {
		m = append(m, "pinned")
	}
	return m
}
