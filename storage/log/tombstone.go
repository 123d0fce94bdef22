package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Tombstone marks the segments of a lineage up to Upto as pruned: they are neither part of the log nor missing. Their objects
// are removed later. The highest tombstone of a lineage is kept, so that pruned segments are never reported as lost.
type Tombstone struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the repository's id
	Cluster    string    `json:"cluster"`
	Lineage    string    `json:"lineage"`
	Upto       uint64    `json:"upto"`   // seq of the last pruned segment
	Reason     string    `json:"reason"` // one plain sentence
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Tombstones reads and writes stored tombstones of the log.
var Tombstones = document.Kind[Tombstone]{Format: 1, Check: Tombstone.validate}

func (t Tombstone) validate() error { return catalog.ValidLineage(t.Lineage) }

// Delete prunes the segments of t.Lineage up to and including t.Upto by storing a tombstone. It fills in Format, Repository
// and Cluster. The objects become Leftovers and are removed after their grace. A call may be repeated.
func (log *Log) Delete(ctx context.Context, t Tombstone) error {
	t.Format, t.Cluster = Tombstones.Format, log.store.Cluster
	err := catalog.ValidLineage(t.Lineage)
	if err != nil || t.Upto == 0 {
		return errors.Join(fmt.Errorf("prune the log up to seq %d: nothing is pruned", t.Upto), err)
	}
	var data []byte
	id, err := log.store.RepositoryID(ctx)
	if err == nil {
		t.Repository = id
		data, err = Tombstones.Encode(t)
	}
	if err == nil {
		err = log.store.CreateSigned(ctx, catalog.LogTombstoneKey(log.store.Cluster, t.Lineage, t.Upto), data)
	}
	if errors.Is(err, storage.ErrExist) {
		err = log.checkLogTombstone(ctx, t.Lineage, t.Upto)
	}
	if err != nil {
		return fmt.Errorf("prune lineage %s up to segment %d: %w", t.Lineage, t.Upto, err)
	}
	return nil
}

// checkLogTombstone returns nil if the tombstone is valid. Errors name it. They match catalog.ErrDamaged if it is not valid,
// and storage.ErrNotExist if it is missing.
func (log *Log) checkLogTombstone(ctx context.Context, lineage string, upto uint64) error {
	key := catalog.LogTombstoneKey(log.store.Cluster, lineage, upto)
	data, err := log.store.ReadSigned(ctx, key)
	var t Tombstone
	if err == nil {
		t, err = Tombstones.Decode(data)
	}
	if err == nil && (t.Cluster != log.store.Cluster || t.Lineage != lineage || t.Upto != upto) {
		err = fmt.Errorf("%w: it is of lineage %s of cluster %s up to segment %d, and was moved here", catalog.ErrDamaged, t.Lineage, t.Cluster, t.Upto)
	}
	if err == nil {
		err = log.store.CheckRepository(ctx, t.Repository)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// removePruned removes the segments from f that its highest valid tombstone prunes. Invalid ones above that become faults.
func (log *Log) removePruned(ctx context.Context, f *logFolder) error {
	for _, upto := range slices.Backward(f.tombstones) {
		err := log.checkLogTombstone(ctx, f.lineage, upto)
		if err == nil {
			f.pruned = upto
			break
		}
		if records.IsAbsent(err) {
			continue
		}
		if !errors.Is(err, catalog.ErrDamaged) {
			return err
		}
		f.ignored = append(f.ignored, catalog.Fault{Key: catalog.LogTombstoneKey(log.store.Cluster, f.lineage, upto), Err: err})
	}
	f.segments = f.segments.after(f.pruned)
	return nil
}
