// Package copying copies a cluster's backups, log and assets from one repository to another. Copy first lists both sides and plans
// which objects are missing at the target. It then copies these objects byte for byte, so that signatures stay valid, and checks
// each object while it copies it. It overwrites nothing. A repeated Copy continues where an interrupted one stopped.
package copying

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// ErrDiffers means that the target has a different object under the name of one to be copied. Copy never overwrites it.
var ErrDiffers = errors.New("the target has a different object with this name")

// Options are the options of Copy, mostly the selection of the objects. The zero Options copy everything and delete nothing.
type Options struct {
	// Since leaves out the backups and segments that began before it, except those that a restore of a copied segment needs.
	// Zero leaves out nothing. Assets are small, and are copied whatever their age.
	Since time.Time
	// BackupsOnly leaves out the log and the assets, and ignores deletions at the source. It copies the oldest backup first: if the copy is
	// interrupted, the newest one at the target shows where to continue.
	BackupsOnly bool
	// Deletions deletes backups at the target that are deleted at the source, by new tombstones of the target. If it is
	// not set, an attacker who can write only to the source can delete nothing at the target.
	Deletions bool
	By        string // host and version of dr, recorded in those tombstones
	Report    storage.Report
}

// Result is the result of a Copy. After an error it counts the work until then.
type Result struct {
	Backups  int     // backups that the target did not have before
	Segments int     // segments of the log that the target did not have before
	Assets   int     // versions of assets that the target did not have before
	Objects  int     // copied objects of all kinds
	Bytes    int64   // size of the copied objects
	Present  int     // objects that the target already had, and backups that are deleted at both
	Deleted  int     // backups deleted at the target because they are deleted at the source
	LeftOut  int     // backups and segments that are not copied: older than Since, deleted on one side only, or pruned on either
	Faults   []Fault // objects that could not be copied
}

// Fault is an object that was not copied because it is damaged or missing at the source, or different at the target. Err names
// the object, and matches catalog.ErrDamaged (and sign.ErrUntrusted if it is untrusted), catalog.ErrNotFound or ErrDiffers.
type Fault struct {
	Key string
	Err error
}

// Copy copies the backups, the log and the assets that from has and to lacks. Leases and leftovers are not copied. Copy needs no decryption
// key. It locks the copies as the policy of to requires.
//
// Every object is checked while it is copied, and the manifest of a backup comes last, so that to never lists an incomplete
// backup. An object that is damaged, not trusted by the policy of from, or different at to is not copied: it becomes a fault of
// the result, and Copy continues with the rest. Any other error ends Copy, which may be repeated. Clusters with different names
// give catalog.ErrName, as manifests and headers contain the name. Repositories with the same id give records.ErrSameID.
//
// If the policy of to has a key, Copy creates the marker of to if that is missing.
func Copy(ctx context.Context, from, to *repository.Cluster, o Options) (Result, error) {
	if from.Records().Cluster != to.Records().Cluster {
		return Result{}, fmt.Errorf("%w: cluster %s cannot be copied to cluster %s: a backup contains the name of its cluster: use the same name",
			catalog.ErrName, from.Records().Cluster, to.Records().Cluster)
	}
	err := to.Records().CheckDistinct(ctx, from.Records())
	if err != nil {
		return Result{}, fmt.Errorf("copy cluster %s: the target: %w", from.Records().Cluster, err)
	}
	o.Report.Say(storage.Event{Stage: "ask", Message: "reading what both repositories hold of cluster " + from.Records().Cluster})
	held, release := records.Hold(ctx)
	defer release()
	source, err := readSource(held, from, o)
	if err != nil {
		return Result{}, fmt.Errorf("copy cluster %s: %w", from.Records().Cluster, err)
	}
	target, err := readTarget(ctx, to, o)
	if err != nil {
		return Result{}, fmt.Errorf("copy cluster %s: read the target: %w", from.Records().Cluster, err)
	}
	plan := planCopy(source, target, o)
	c := &copying{from: from, to: to, by: o.By, report: o.Report, total: plan.bytes(), result: plan.result}
	err = c.run(ctx, plan)
	if err != nil {
		return c.result, fmt.Errorf("copy cluster %s: %w", from.Records().Cluster, err)
	}
	if !to.Policy().Key.None() {
		to.Records().EnsureMarker(ctx) // else an attacker who can only create objects could give it the marker of from
	}
	return c.result, nil
}

// side is the state of one side of a copy, from its listings and small documents.
type side struct {
	c       *repository.Cluster
	folders []backups.Folder    // ascending by ID
	sizes   map[string]int64    // bytes of each object of backups and log, by key
	indexes map[string][]uint64 // first seqs of the log's indexes, by lineage, ascending
	deleted map[catalog.ID]bool // backups with a valid tombstone and no pin
	ignored []Fault             // invalid tombstones
	pinned  map[catalog.ID]bool // target only
	assets  []assets.Version    // newest first
	pruned  map[string]uint64   // target only: the last pruned seq, by lineage

	catalog catalog.Catalog   // source only
	headers map[string]string // target only: digests of segment headers, by key
}

func readSource(ctx context.Context, c *repository.Cluster, o Options) (side, error) {
	// The catalog must be read before the listing, so that the listing contains all objects of the catalog that are not deleted in between.
	catalog, err := c.Load(ctx, backups.LoadOptions{Imported: true, Log: !o.BackupsOnly, Details: true, Proofs: !o.Since.IsZero()})
	if err != nil {
		return side{}, err
	}
	s, err := readSide(ctx, c, o)
	s.catalog = catalog
	s.addPacked(catalog.Lineages)
	return s, err
}

// addPacked adds the segments that are in packs.
func (s *side) addPacked(lineages []catalog.Lineage) {
	for _, l := range lineages {
		for _, segment := range l.Segments {
			s.sizes[catalog.SegmentKey(s.c.Records().Cluster, l.ID, segment.Seq)] = segment.Size
		}
	}
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
		s.pinned[f.ID] = len(pins) > 0
	}
	if o.BackupsOnly {
		return s, nil
	}
	lineages, err := c.Log().Load(ctx, log.LoadOptions{Details: true})
	if err != nil {
		return side{}, err
	}
	s.addPacked(lineages)
	s.headers, s.pruned = map[string]string{}, map[string]uint64{}
	for _, l := range lineages {
		s.pruned[l.ID] = l.Pruned
		for _, segment := range l.Segments {
			s.headers[catalog.SegmentKey(c.Records().Cluster, l.ID, segment.Seq)] = segment.Digest
		}
	}
	return s, nil
}

// readSide reads the fields that both sides need.
func readSide(ctx context.Context, c *repository.Cluster, o Options) (s side, err error) {
	s = side{c: c, sizes: map[string]int64{}, indexes: map[string][]uint64{}, deleted: map[catalog.ID]bool{}}
	s.folders, err = c.Backups().Folders(ctx, backups.LoadOptions{Imported: true})
	if err != nil {
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
		s.deleted[f.ID] = deleted
	}
	if o.BackupsOnly {
		return s, nil
	}
	s.assets, err = c.Assets().List(ctx, "")
	if err != nil {
		return s, err
	}
	for o, err := range c.Records().Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(c.Records().Cluster)}) {
		_, unlisted := c.Log().UnlistedLineage(err)
		if unlisted { // the catalog has it as a fault of its lineage
			continue
		}
		if err != nil {
			return s, fmt.Errorf("list the log of cluster %s: %w", c.Records().Cluster, err)
		}
		s.sizes[o.Key] = o.Size
		name, ok := catalog.SplitLogKey(c.Records().Cluster, o.Key)
		if ok && name.Kind == catalog.LogIndex {
			s.indexes[name.Lineage] = append(s.indexes[name.Lineage], name.Seq)
		}
	}
	return s, nil
}
