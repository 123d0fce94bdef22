package find

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Entry is a key and its value at a point.
type Entry struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value,omitempty"` // only on request
	Size           int64  `json:"size"`            // of the value, in bytes
	SHA256         []byte `json:"sha256"`          // of the value
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
	Version        int64  `json:"version"`
	Lease          int64  `json:"lease,omitempty"` // 0: none
}

// At is the point at which values were read.
type At struct {
	Plan     plan.Plan // used to reach it
	Revision int64     // of the key space
}

// Extract calls take for each key as of the target t, with its value, in key order. It avoids obstacles and fails like
// restore.RunTarget.
func (s Search) Extract(ctx context.Context, t plan.Target, take func(Entry) error) (At, error) {
	scratch, err := child.NewDir(s.Dir, "extract")
	if err != nil {
		return At{}, err
	}
	defer func() { _ = scratch.Remove() }()
	r := &reader{Search: s, scratch: scratch.Path, values: valuesJob{With: true}}
	return r.read(ctx, t, take)
}

// reader reads the values at one point, or at several if it keeps the databases.
type reader struct {
	Search
	scratch string
	values  valuesJob

	runs int     // number of scratch directories that were made
	last *keptAt // the database that was kept; nil: none
}

// keptAt is a kept database and the point that it is at.
type keptAt struct {
	dir      string
	plan     plan.Plan
	revision int64
	position uint64 // 0: the log was not replayed
}

func (r *reader) read(ctx context.Context, t plan.Target, take func(Entry) error) (At, error) {
	run := func(ctx context.Context, p plan.Plan) (restore.Result, error) {
		revision, err := r.run(ctx, p, take)
		return restore.Result{Revision: revision}, err
	}
	layout := scratchLayout(filepath.Join(r.scratch, "member"))
	request := plan.Request{Catalog: r.Catalog, Target: t, Layout: layout, Now: r.Now}
	plan, result, err := restore.RunTarget(ctx, restore.Attempt{Request: request, Unfold: r.Unfold, Run: run})
	return At{plan, result.Revision}, err
}

func (r *reader) run(ctx context.Context, p plan.Plan, take func(Entry) error) (int64, error) {
	j := job{Plan: p, Source: r.Source, Keys: r.Keys, Values: &r.values}
	err := r.prepare(&j)
	if err != nil {
		return 0, err
	}
	r.last = nil
	end, err := readValues(ctx, j, take, r.Report)
	if err != nil || !r.values.Keep {
		return end.Revision, errors.Join(err, os.RemoveAll(j.Dir))
	}
	r.last = &keptAt{dir: j.Dir, plan: p, revision: end.Revision, position: end.Position}
	return end.Revision, nil
}

// prepare sets the directory of j to the kept one if the database there leads to j's target. If not, it removes the kept directory and
// makes a new one.
func (r *reader) prepare(j *job) error {
	if r.last != nil && r.last.leadsTo(j.Plan) {
		j.Dir, j.Values.Go = r.last.dir, true
		return nil
	}
	if r.last != nil {
		_ = os.RemoveAll(r.last.dir)
	}
	r.runs++
	j.Dir, j.Values.Go = filepath.Join(r.scratch, fmt.Sprintf("run-%d", r.runs)), false
	err := os.Mkdir(j.Dir, 0o700)
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	return nil
}

// leadsTo reports whether a replay of the rest of the log leads from k's database to the target of p: base and history are the same, and
// the target is not before k.
func (k *keptAt) leadsTo(p plan.Plan) bool {
	return p.Log != nil && p.Backup.ID == k.plan.Backup.ID && (k.plan.Log == nil || k.plan.Log.Lineage == p.Log.Lineage) &&
		(p.Log.Revision == 0 || p.Log.Revision >= k.revision) && (p.Log.Position == 0 || p.Log.Position >= k.position)
}

// readValues runs j in a child and calls take for each entry. It returns an obstacle after the first entry as damage: with another plan,
// take would get entries twice.
func readValues(ctx context.Context, j job, take func(Entry) error, report storage.Report) (ended, error) {
	taken := false
	end, err := spawn(ctx, j, report, func(item json.RawMessage) error {
		var e Entry
		err := json.Unmarshal(item, &e)
		if err != nil {
			return fmt.Errorf("read the child's result: %w", err)
		}
		taken = true
		return take(e)
	})
	_, obstacle := errors.AsType[*restore.ObstacleError](err)
	if obstacle && taken {
		return end, fmt.Errorf("%w: the output is incomplete: %s", catalog.ErrDamaged, err.Error())
	}
	return end, err
}
