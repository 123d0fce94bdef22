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

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ChildVerb is the verb under which a child serves this package: see Serve.
const ChildVerb = "find"

// job is what a child does: it reads one leg, or the values at a point.
type job struct {
	Plan   plan.Plan    `json:"plan"`
	Source child.Source `json:"source"`
	Dir    string       `json:"dir"` // of its own
	Keys   Keys         `json:"keys"`

	Leg    *legJob    `json:"leg,omitempty"`
	Values *valuesJob `json:"values,omitempty"`
}

type legJob struct {
	Seen   int64  `json:"seen"`             // what came up to this revision is known
	Before string `json:"before,omitempty"` // file with what was there at that revision; "": nobody knows
	Other  bool   `json:"other,omitempty"`  // Before is of another history
	Keep   string `json:"keep,omitempty"`   // file to write the same into, as it is at the leg's end; "": nobody needs it
}

type valuesJob struct {
	With bool `json:"with"`           // the values themselves, and not only their digests
	Keep bool `json:"keep,omitempty"` // leave the database in Dir
	Go   bool `json:"go,omitempty"`   // go on from the database that another child has left there
}

// ended is a child's answer.
type ended struct {
	Revision int64        `json:"revision"`
	Position uint64       `json:"position,omitempty"` // 0: nothing was replayed
	Met      *restore.Met `json:"met,omitempty"`
}

// spawn does a job in a child.
func spawn(ctx context.Context, j job, report storage.Report, take func(json.RawMessage) error) (ended, error) {
	var e ended
	if err := child.RunItems(ctx, ChildVerb, j, &e, report, take); err != nil {
		err = child.Died(err)
		if errors.Is(err, catalog.ErrDamaged) {
			return e, restore.Obstructed(plan.Obstacle{Base: true}, err)
		}
		return e, err
	}
	return e, e.Met.Err()
}

// Serve does what spawn asks for: it is the child's side, for its main.
func Serve(ctx context.Context, input []byte, give func(any) error, report storage.Report) (any, error) {
	var j job
	if err := json.Unmarshal(input, &j); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	defer func() { // a parent that dies cannot
		if j.Values == nil || !j.Values.Keep || ctx.Err() != nil {
			_ = os.RemoveAll(j.Dir)
		}
	}()
	debug.SetGCPercent(200) // as in a restore: a replay spends a quarter of its time on collecting otherwise
	s := &server{job: j, give: give, report: report}
	e, err := s.serve(ctx)
	e.Met = restore.Meet(err)
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

// prepare brings the database to where the job wants it.
func (s *server) prepare(ctx context.Context) (restore.Prepared, error) {
	c, keys, err := s.Source.Open(ctx)
	switch {
	case err != nil:
		return restore.Prepared{}, err
	case s.Leg != nil:
		watch := &replay.Watch{Keys: s.Keys.Keys, Tell: s.tell}
		return restore.Prepare(ctx, s.Plan, c, keys, s.Dir, s.readBase, watch, s.report)
	case s.Values.Go:
		return restore.Continue(ctx, s.Plan, c, keys, s.Dir, s.report)
	}
	return restore.Prepare(ctx, s.Plan, c, keys, s.Dir, nil, nil, s.report)
}

// values gives every key that is there, in order.
func (s *server) values(bucket *bolt.Bucket) error {
	there, err := newest(bucket, s.Keys)
	if err != nil {
		return err
	}
	for _, h := range there {
		kv, err := decodeKV(bucket.Get(h.at))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(kv.Value)
		e := Entry{
			Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
			Size: int64(len(kv.Value)), SHA256: sum[:],
		}
		if s.Values.With {
			e.Value = kv.Value
		}
		if err := s.give(e); err != nil {
			return err
		}
	}
	return nil
}

// sighting is what a leg's child gives: its base, then changes.
type sighting struct {
	Base *baseSeen   `json:"base,omitempty"`
	Put  *changeSeen `json:"change,omitempty"`
}

type baseSeen struct {
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"` // what was overwritten or deleted up to there is not in it any more
}

type changeSeen struct {
	Key            []byte             `json:"key"`
	Revision       int64              `json:"revision,omitempty"` // 0: not known, it is what two states differ in
	Deleted        bool               `json:"deleted,omitempty"`
	Position       uint64             `json:"position,omitempty"` // 0: it is in the backup
	Request        replay.RequestKind `json:"request,omitempty"`
	Keys           int                `json:"keys,omitempty"`
	Size           int64              `json:"size,omitempty"`
	Lease          int64              `json:"lease,omitempty"`
	Version        int64              `json:"version,omitempty"`
	CreateRevision int64              `json:"createRevision,omitempty"`
	Marked         bool               `json:"marked,omitempty"` // it is the namespace, marked for deletion
}

func (s *server) tell(c replay.Change) error {
	if !s.Keys.Has(c.KV.Key) {
		return nil
	}
	return s.give(sighting{Put: &changeSeen{
		Key: c.KV.Key, Revision: c.Revision.Main, Deleted: c.Deleted, Position: c.Position, Request: c.Request, Keys: c.Keys,
		Size: int64(len(c.KV.Value)), Lease: c.KV.Lease, Version: c.KV.Version, CreateRevision: c.KV.CreateRevision,
		Marked: !c.Deleted && s.Keys.marked(c.KV.Key, c.KV.Value),
	}})
}

// readBase gives what the backup tells of what came behind Seen.
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
	if err := s.give(sighting{Base: &baseSeen{p.Revision, compacted}}); err != nil {
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

// vanished gives the keys that were there before and are gone, where nothing in the database says when.
func (s *server) vanished(bucket *bolt.Bucket) error {
	left, err := readKept(s.Leg.Before)
	if err != nil {
		return err
	}
	err = since(bucket, s.Keys, s.Leg.Seen, func(c replay.Change) error {
		delete(left, string(c.KV.Key)) // it has a later state, or a deletion that is known
		return nil
	})
	if err != nil {
		return err
	}
	there, err := newest(bucket, s.Keys)
	if err != nil {
		return err
	}
	for _, h := range there {
		delete(left, h.key)
	}
	return s.giveVanished(left)
}

func (s *server) giveVanished(gone map[string]kept) error {
	for _, key := range sorted(gone) {
		if err := s.give(sighting{Put: &changeSeen{Key: []byte(key), Deleted: true}}); err != nil {
			return err
		}
	}
	return nil
}

// differences gives what is not as it was at the end of another history.
func (s *server) differences(bucket *bolt.Bucket) error {
	left, err := readKept(s.Leg.Before)
	if err != nil {
		return err
	}
	there, err := newest(bucket, s.Keys)
	if err != nil {
		return err
	}
	for _, h := range there {
		kv, err := decodeKV(bucket.Get(h.at))
		if err != nil {
			return err
		}
		before, was := left[h.key]
		delete(left, h.key)
		if was && before == keep(kv) {
			continue
		}
		err = s.give(sighting{Put: &changeSeen{
			Key: kv.Key, Revision: kv.ModRevision, Size: int64(len(kv.Value)), Lease: kv.Lease, Version: kv.Version,
			CreateRevision: kv.CreateRevision, Marked: s.Keys.marked(kv.Key, kv.Value),
		}})
		if err != nil {
			return err
		}
	}
	return s.giveVanished(left)
}

// keepFile is where a leg's end is kept for the next leg.
func keepFile(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("keys-%d", n)) }
