package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

func (a *app) copy() *cobra.Command {
	var to copyTarget
	var since string
	var deletions bool
	cmd := &cobra.Command{
		Use:   "copy --from URL --to URL",
		Short: "Copy backups, the log and assets to another repository",
		Long: `copy copies backups, the log and assets from one repository to another, byte for byte, so that signatures stay valid. It needs no
key. Each side can have its own credentials. It checks everything while it copies, and lists a backup at the target only when it is complete. Objects that are deleted
at the source stay at the target, except with --deletions.

Objects that the target already has are neither copied again nor overwritten. After an interruption run copy again: it
continues where it stopped. Objects that are damaged, that differ from the target's object of the same name or, with --trust,
that no trusted key has signed are reported and not copied; the rest is copied, and the exit code is 3.`,
		Example: `  dr copy --from s3://backups/etcd --to file:///mnt/offline/etcd --since "30d ago"
  dr copy --from s3://backups/etcd --from-credentials /etc/dr/aws --to azblob://vault/etcd?account=vault --to-credentials /etc/dr/azure`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&a.repo, "from", "", "repository to copy from (read-only)")
	flags.StringVar(&a.store.credentials, "from-credentials", "", "folder with the credentials of --from, as --credentials of dr list")
	flags.StringVar(&to.repo, "to", "", "repository to copy to")
	flags.StringVar(&to.credentials, "to-credentials", "", "folder with the credentials of --to, as --credentials of dr list")
	flags.StringVar(&a.cluster, "cluster", a.getenv("DR_CLUSTER"), "copy only this cluster (DR_CLUSTER; default: all)")
	flags.StringVar(&since, "since", "",
		"skip backups and segments that began before (2026-11-21T10:00:00Z, \"30d ago\"), except those that restoring the copied log needs")
	flags.BoolVar(&deletions, "deletions", false, "repeat the source's deletions at the target; if backups are signed, requires --sign-key")
	a.store.signFlags(cmd, a.getenv)
	flags.StringVar(&a.store.lock, "lock", "", "lock the written objects against deletion for this long, as --lock of dr backup")
	a.store.trustFlags(cmd, a.getenv)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.repo == "" || to.repo == "" {
			return usagef("source or target missing: set --from and --to")
		}
		o := copying.Options{Deletions: deletions, By: author()}
		var err error
		o.Since, err = sinceFlag(since)
		if err != nil {
			return err
		}
		return a.runCopy(cmd.Context(), to, o)
	}
	return cmd
}

// sinceFlag returns the time in the value of --since, the zero Time for "".
func sinceFlag(text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	t, err = when.Parse(text, time.Now())
	if err != nil {
		return t, usagef("--since: %w", err)
	}
	return t, nil
}

// copyTarget is the repository to copy to.
type copyTarget struct {
	repo        string
	credentials string // folder with its credentials; "": those of the environment
}

func (a *app) runCopy(ctx context.Context, to copyTarget, o copying.Options) error {
	store := a.store
	store.credentials = to.credentials
	options, err := store.options()
	if err != nil {
		return err
	}
	policy, err := a.store.policy()
	if err != nil {
		return err
	}
	sources, err := a.clusters(ctx)
	if err != nil {
		return err
	}
	bucket, err := stores.Create(ctx, to.repo, options)
	if err != nil {
		return err
	}
	doc := document.Copy{From: stores.Shown(a.repo), To: stores.Shown(to.repo), Clusters: []document.CopiedCluster{}}
	var done func()
	o.Report, done = a.progress()
	// The target is read with the same trusted keys: a forged tombstone there would keep the objects that it names from being
	// copied.
	target := copyRun{bucket: bucket, policy: records.Policy{Lock: policy.Lock, Trust: policy.Trust, Key: policy.Key}, options: o}
	var found error
	for _, from := range sources {
		var faults error
		faults, err = target.cluster(ctx, from, &doc)
		found = errors.Join(found, faults)
		if err != nil {
			break
		}
	}
	done()
	return errors.Join(err, a.printCopy(doc), found) // print also what was copied before an error
}

// copyRun is one dr copy into a bucket.
type copyRun struct {
	bucket  storage.Bucket
	policy  records.Policy
	options copying.Options
}

// cluster copies one cluster. It returns the faults of single objects as found, and the error that ended the copy as err.
func (r copyRun) cluster(ctx context.Context, from *repository.Cluster, doc *document.Copy) (found, err error) {
	target, err := repository.OpenWith(r.bucket, from.Name(), r.policy)
	if err != nil {
		return nil, err
	}
	result, err := copying.Copy(ctx, from, target, r.options)
	if err == nil && result.Objects+result.Present+result.LeftOut+len(result.Faults) == 0 {
		return fmt.Errorf("cluster %s is %w: dr list shows the clusters", from.Name(), catalog.ErrNotFound), nil
	}
	doc.Clusters = append(doc.Clusters, convert.Copied(from.Name(), result))
	n := len(result.Faults)
	if n > 0 {
		found = fmt.Errorf("%d objects of cluster %s were not copied, the first: %w", n, from.Name(), faultOf(result.Faults[0]))
	}
	return found, err
}

// faultOf returns the fault's error. An object that differs from the target's counts as damaged, and so gets exit code 3.
func faultOf(f copying.Fault) error {
	if errors.Is(f.Err, copying.ErrDiffers) {
		return fmt.Errorf("%w (%w)", f.Err, catalog.ErrDamaged)
	}
	return f.Err
}

func (a *app) printCopy(d document.Copy) error {
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	var rows, faults [][]string
	for _, c := range d.Clusters {
		rows = append(rows, []string{
			c.Cluster, fmt.Sprint(c.Backups), fmt.Sprint(c.Segments), fmt.Sprint(c.Assets), fmt.Sprint(c.Objects), size(c.Bytes),
			fmt.Sprint(c.Present), fmt.Sprint(c.LeftOut), fmt.Sprint(len(c.Faults)),
		})
		for _, f := range c.Faults {
			faults = append(faults, []string{f.Key, f.Message})
		}
	}
	a.printf("copied from %s to %s\n", d.From, d.To)
	a.table([]string{"CLUSTER", "BACKUPS", "SEGMENTS", "ASSETS", "OBJECTS", "BYTES", "PRESENT", "SKIPPED", "NOT COPIED"}, rows)
	if len(faults) > 0 {
		a.printf("\nnot copied:\n")
		a.table([]string{"OBJECT", "WHY"}, faults)
	}
	return nil
}
