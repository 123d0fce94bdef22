package find

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ChildVerb is the verb of the child process that runs Serve.
const ChildVerb = "find"

// job is the child's task: it reads one leg, or the values at a point.
type job struct {
	Plan   plan.Plan    `json:"plan"`
	Source child.Source `json:"source"`
	Dir    string       `json:"dir"` // used by this job alone
	Keys   Keys         `json:"keys"`

	Leg    *legJob    `json:"leg,omitempty"`
	Values *valuesJob `json:"values,omitempty"`
}

// From returns the repository that the child reads.
func (j job) From() child.Source { return j.Source }

type legJob struct {
	Seen   int64  `json:"seen"`             // changes up to this revision are known
	Before string `json:"before,omitempty"` // file with the keys at that revision; "": unknown
	Other  bool   `json:"other,omitempty"`  // Before belongs to a different history
	Keep   string `json:"keep,omitempty"`   // file to write the keys at the leg's end to; "": not needed
}

type valuesJob struct {
	With bool `json:"with"`           // include the values, not only their digests
	Keep bool `json:"keep,omitempty"` // keep the database in Dir
	Go   bool `json:"go,omitempty"`   // continue from the database that another child kept in Dir
}

// ended is a child's result.
type ended struct {
	Revision int64                    `json:"revision"`
	Position uint64                   `json:"position,omitempty"` // 0: the log was not replayed
	Met      *restore.EncodedObstacle `json:"met,omitempty"`
}

// spawn runs a job in a child.
func spawn(ctx context.Context, j job, report storage.Report, take func(json.RawMessage) error) (ended, error) {
	var e ended
	err := child.Call{Verb: ChildVerb, Job: j, Result: &e, Report: report, Take: take}.Run(ctx)
	if err != nil {
		err = child.Died(err)
		if errors.Is(err, catalog.ErrDamaged) {
			return e, restore.Obstructed(plan.Obstacle{Base: true}, err)
		}
		return e, err
	}
	return e, e.Met.Err()
}

// Serve runs a job of spawn. The main function of the child calls it.
func Serve(ctx context.Context, input []byte, give func(any) error, report storage.Report) (any, error) {
	var j job
	err := json.Unmarshal(input, &j)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	defer func() { // a killed parent cannot remove j.Dir
		if j.Values == nil || !j.Values.Keep || ctx.Err() != nil {
			_ = os.RemoveAll(j.Dir)
		}
	}()
	debug.SetGCPercent(200) // as in a restore: with the default of 100, a replay spends a quarter of its time in the garbage collector
	s := &server{job: j, give: give, report: report}
	e, err := s.serve(ctx)
	e.Met = restore.EncodeObstacle(err)
	if e.Met != nil {
		return e, nil
	}
	return e, err
}

type server struct {
	job
	give   func(any) error
	report storage.Report
}

func (s *server) serve(ctx context.Context) (ended, error) {
	p, err := s.prepare(ctx)
	if err != nil {
		return ended{}, err
	}
	e := ended{Revision: p.Revision}
	if p.Replayed != nil {
		e.Position = p.Replayed.Position
	}
	if s.Leg != nil && s.Leg.Keep == "" {
		return e, nil
	}
	db, err := openDatabase(p.DB)
	if err != nil {
		return ended{}, err
	}
	defer db.close()
	if s.Leg != nil {
		return e, db.view(s.keep)
	}
	return e, db.view(s.values)
}

// prepare brings the database to the point that the job names.
func (s *server) prepare(ctx context.Context) (restore.Prepared, error) {
	from, err := s.Source.Open(ctx)
	p := restore.Preparation{Plan: s.Plan, From: from, Dir: s.Dir, Report: s.report}
	switch {
	case err != nil:
		return restore.Prepared{}, err
	case s.Leg != nil:
		p.Between, p.Watch = s.readBase, &replay.Watch{Keys: s.Keys.watched(), Tell: s.tell}
	case s.Values.Go:
		return p.Continue(ctx)
	}
	return p.Prepare(ctx)
}

// values sends every existing key, in key order.
func (s *server) values(bucket *bolt.Bucket) error {
	return values(bucket, s.Keys, func(kv *mvccpb.KeyValue) error {
		sum := sha256.Sum256(kv.Value)
		e := Entry{
			Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
			Size: int64(len(kv.Value)), SHA256: sum[:],
		}
		if s.Values.With {
			e.Value = kv.Value
		}
		return s.give(e)
	})
}

// sighting is one item of a leg's output: first the base, then changes.
type sighting struct {
	Base   *baseSeen   `json:"base,omitempty"`
	Change *changeSeen `json:"change,omitempty"`
}

type baseSeen struct {
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"` // values overwritten or deleted up to this revision are gone
}

type changeSeen struct {
	Key            []byte             `json:"key"`
	Revision       int64              `json:"revision,omitempty"` // 0: unknown, found by comparing two states
	Deleted        bool               `json:"deleted,omitempty"`
	Position       uint64             `json:"position,omitempty"` // 0: found in the backup
	Request        replay.RequestKind `json:"request,omitempty"`
	Keys           int                `json:"keys,omitempty"`
	Size           int64              `json:"size,omitempty"`
	Lease          int64              `json:"lease,omitempty"`
	Version        int64              `json:"version,omitempty"`
	CreateRevision int64              `json:"createRevision,omitempty"`
	Deleting       bool               `json:"deleting,omitempty"` // the object is marked for deletion
}

// tell sends c if its key is watched.
func (s *server) tell(c replay.Change) error {
	if !s.Keys.watches(c.KV.Key) {
		return nil
	}
	return s.give(sighting{Change: &changeSeen{
		Key: c.KV.Key, Revision: c.Revision.Main, Deleted: c.Deleted, Position: c.Position, Request: c.Request, Keys: c.Keys,
		Size: int64(len(c.KV.Value)), Lease: c.KV.Lease, Version: c.KV.Version, CreateRevision: c.KV.CreateRevision,
		Deleting: !c.Deleted && s.Keys.deleting(c.KV.Key, c.KV.Value),
	}})
}

// readBase sends the changes after Seen that the backup contains.
func (s *server) readBase(p restore.Prepared) error {
	db, err := openDatabase(p.DB)
	if err != nil {
		return err
	}
	defer db.close()
	compacted, err := db.compacted()
	if err != nil {
		return err
	}
	err = s.give(sighting{Base: &baseSeen{Revision: p.Revision, Compacted: compacted}})
	if err != nil {
		return err
	}
	return db.view(func(bucket *bolt.Bucket) error {
		switch {
		case s.Leg.Other:
			return s.differences(bucket)
		case s.Leg.Before != "" && compacted > s.Leg.Seen:
			return errors.Join(s.vanished(bucket), since(bucket, s.Keys, s.Leg.Seen, s.tell))
		}
		return since(bucket, s.Keys, s.Leg.Seen, s.tell)
	})
}

// vanished sends a deletion for each key that existed before and is missing now, unless the database contains its deletion.
func (s *server) vanished(bucket *bolt.Bucket) error {
	left, err := readKept(s.Leg.Before)
	if err != nil {
		return err
	}
	err = since(bucket, s.Keys, s.Leg.Seen, func(c replay.Change) error {
		delete(left, string(c.KV.Key)) // the key has a later state, or a known deletion
		return nil
	})
	if err != nil {
		return err
	}
	existing, err := newest(bucket, s.Keys)
	if err != nil {
		return err
	}
	for _, h := range existing {
		delete(left, h.key)
	}
	return s.giveVanished(left)
}

// giveVanished sends deletions of the keys, with unknown revisions.
func (s *server) giveVanished(gone map[string]keptState) error {
	for _, key := range sorted(gone) {
		err := s.give(sighting{Change: &changeSeen{Key: []byte(key), Deleted: true}})
		if err != nil {
			return err
		}
	}
	return nil
}

// differences sends a change for each key that differs from the end of another history.
func (s *server) differences(bucket *bolt.Bucket) error {
	left, err := readKept(s.Leg.Before)
	if err != nil {
		return err
	}
	err = values(bucket, s.Keys, func(kv *mvccpb.KeyValue) error {
		key := string(kv.Key)
		before, was := left[key]
		delete(left, key)
		if was && before == stateOf(kv) {
			return nil
		}
		return s.give(sighting{Change: &changeSeen{
			Key: kv.Key, Revision: kv.ModRevision, Size: int64(len(kv.Value)), Lease: kv.Lease, Version: kv.Version,
			CreateRevision: kv.CreateRevision, Deleting: s.Keys.deleting(kv.Key, kv.Value),
		}})
	})
	if err != nil {
		return err
	}
	return s.giveVanished(left)
}

// keepFile returns the file for the keys at the end of leg n.
func keepFile(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("keys-%d", n)) }
