// Package copying copies the part of one cluster from a repository to another: backups and the log, byte for byte, each object
// checked while it is copied. Nothing is overwritten, and a copy that was interrupted continues where it stopped.
package copying

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// ErrDiffers: another object stands under the name of one that was to be copied. Nothing is ever overwritten.
var ErrDiffers = errors.New("another object is there under that name")

// Options say what to leave out.
type Options struct {
	// Since leaves out the backups and segments that began before it, but for those on top of which a segment that is
	// copied is restored. Zero: nothing is left out.
	Since time.Time
	// BackupsOnly leaves out the log, and what is deleted at the source.
	BackupsOnly bool
	// Deletions deletes at the target what is deleted at the source, by tombstones of the target's own. Without it a person who
	// may write to the source alone deletes nothing at the target.
	Deletions bool
	By        string // host and version of dr, for those tombstones
}

// Result is what came of a Copy.
type Result struct {
	Backups  int   // that the target has now and had not before
	Segments int   // the same of the log's
	Objects  int   // that were copied, of every kind
	Bytes    int64 // of them
	Present  int   // objects that were there already
	Deleted  int   // backups that were deleted at the target since they are at the source
	LeftOut  int   // what began before Since; what is deleted or pruned at either side, also meanwhile
	Faults   []Fault
}

// Fault is an object that was not copied because of what it is, or of what stands in its place. Err names it, and
// matches ErrDamaged (and sign.ErrUntrusted), ErrNotFound or ErrDiffers.
type Fault struct {
	Key string
	Err error
}

// Copy copies what from holds and to does not: backups and the log, byte for byte, so that signatures stay
// valid. It needs no private key. Leases and what killed backups left are not copied.
//
// Everything is checked while it is copied, and a backup's manifest comes last, so that nothing is listed at to before it
// is whole. What is damaged, not trusted by from's policy, or stands against another object at to is not copied: it is a
// fault of the result, and the rest goes on. Any other error ends the copy; it may be repeated, and goes on where it
// ended. Both sides must have the same cluster name, which manifests and headers repeat. What is copied is locked as to's
// policy says.
func Copy(ctx context.Context, from, to *repository.Cluster, o Options, report storage.Report) (Result, error) {
	if from.Records().Cluster != to.Records().Cluster {
		return Result{}, fmt.Errorf("%w: cluster %s cannot be copied to cluster %s: a backup contains the name of its cluster: use the same name",
			catalog.ErrName, from.Records().Cluster, to.Records().Cluster)
	}
	report.Say(storage.Event{Stage: "ask", Message: "reading what both repositories hold of cluster " + from.Records().Cluster})
	source, err := readSource(ctx, from, o)
	if err != nil {
		return Result{}, fmt.Errorf("copy cluster %s: %w", from.Records().Cluster, err)
	}
	target, err := readTarget(ctx, to, o)
	if err != nil {
		return Result{}, fmt.Errorf("copy cluster %s: look at the target: %w", from.Records().Cluster, err)
	}
	plan := planCopy(source, target, o)
	c := &copying{from: from, to: to, by: o.By, report: report, total: plan.bytes(), result: plan.result}
	if err := c.run(ctx, plan); err != nil {
		return c.result, fmt.Errorf("copy cluster %s: %w", from.Records().Cluster, err)
	}
	return c.result, nil
}

// side is what a side of a copy shows in listings and small documents.
type side struct {
	c       *repository.Cluster
	folders []backups.Folder    // of backups, ascending
	sizes   map[string]int64    // of every object of backups and log
	indexes map[string][]uint64 // of the log, by lineage: their first seqs, ascending
	deleted map[catalog.ID]bool // by a tombstone that counts
	ignored []Fault             // tombstones that do not
	pinned  map[catalog.ID]bool // of the target
	pruned  map[string]uint64   // of the target, by lineage: the seqs up to which they are

	catalog catalog.Catalog   // of the source
	headers map[string]string // of the target: the digests of its segments' headers, by key
}

func readSource(ctx context.Context, c *repository.Cluster, o Options) (side, error) {
	// The catalog comes before the listing: what it has seen is listed then, unless somebody deletes it.
	catalog, err := c.Load(ctx, backups.LoadOptions{Log: !o.BackupsOnly, Details: true, Proofs: !o.Since.IsZero()})
	if err != nil {
		return side{}, err
	}
	s, err := readSide(ctx, c, o)
	s.catalog = catalog
	return s, err
}

func readTarget(ctx context.Context, c *repository.Cluster, o Options) (side, error) {
	s, err := readSide(ctx, c, o)
	if err != nil {
		return side{}, err
	}
	s.pinned = map[catalog.ID]bool{}
	for _, f := range s.folders {
		pins, _, err := c.Backups().LoadPins(ctx, f)
		if err != nil {
			return side{}, err
		}
		s.pinned[f.Id] = len(pins) > 0
	}
	if o.BackupsOnly {
		return s, nil
	}
	lineages, err := c.Log().Load(ctx, true)
	if err != nil {
		return side{}, err
	}
	s.headers, s.pruned = map[string]string{}, map[string]uint64{}
	for _, l := range lineages {
		s.pruned[l.ID] = l.Pruned
		for _, segment := range l.Segments {
			s.headers[catalog.SegmentKey(c.Records().Cluster, l.ID, segment.Seq)] = segment.Digest
		}
	}
	return s, nil
}

// side lists.
func readSide(ctx context.Context, c *repository.Cluster, o Options) (s side, err error) {
	s = side{c: c, sizes: map[string]int64{}, indexes: map[string][]uint64{}, deleted: map[catalog.ID]bool{}}
	if s.folders, err = c.Backups().Folders(ctx, backups.LoadOptions{}); err != nil {
		return s, err
	}
	for _, f := range s.folders {
		for _, o := range f.Objects {
			s.sizes[o.Key] = o.Size
		}
		deleted, err := c.Backups().IsDeleted(ctx, f)
		if err != nil && !errors.Is(err, catalog.ErrDamaged) {
			return s, err
		}
		if err != nil {
			s.ignored = append(s.ignored, Fault{f.Tombstones()[0], err})
		}
		s.deleted[f.Id] = deleted
	}
	if o.BackupsOnly {
		return s, nil
	}
	for o, err := range c.Records().Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(c.Records().Cluster)}) {
		if _, unlisted := c.Log().UnlistedLineage(err); unlisted { // a fault of its lineage
			continue
		}
		if err != nil {
			return s, fmt.Errorf("list the log of cluster %s: %w", c.Records().Cluster, err)
		}
		s.sizes[o.Key] = o.Size
		if name, ok := catalog.SplitLogKey(c.Records().Cluster, o.Key); ok && name.Kind == catalog.LogIndex {
			s.indexes[name.Lineage] = append(s.indexes[name.Lineage], name.Seq)
		}
	}
	return s, nil
}
