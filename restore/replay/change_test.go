package replay_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// script makes the changes that follow a base.
type script struct {
	testing.TB
	revision int64 // of the base
}

func behind(t testing.TB, base string) script {
	t.Helper()
	at, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch(), replay.Options{})
	if err != nil || at.Position != uint64(at.Revision) || at.Term != 0 {
		t.Fatalf("got %+v, %v", at, err)
	}
	return script{t, at.Revision}
}

func (s script) change(nth int64, ops ...*pb.RequestOp) segment.Record {
	s.Helper()
	return change(s.TB, s.revision+nth, changeOf(ops))
}

func (s script) put(nth int64, key string) segment.Record {
	s.Helper()
	return s.change(nth, putOf(key, "value", 0))
}

func (s script) grant(nth, id, ttl int64) segment.Record {
	s.Helper()
	return change(s.TB, s.revision+nth, grantOf(id, ttl))
}

// A change in any shape outside the format is an error; neither it nor a later record is applied.
func TestUnknownChanges(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	known := s.put(1, "key")
	of := func(r *pb.InternalRaftRequest) segment.Record { return change(t, s.revision+2, r) }
	raw := func(data []byte) segment.Record {
		return segment.Record{Kind: segment.Change, Position: uint64(s.revision + 2), Data: data}
	}
	txn := func(ops ...*pb.RequestOp) segment.Record {
		return of(&pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: ops}})
	}
	key, end := []byte("key"), []byte("kez")
	onto := putOf("a", "", 0)
	for name, record := range map[string]segment.Record{
		"empty":                     raw(nil),
		"no protobuf":               raw([]byte("\xff\xff")),
		"an unknown request":        raw(field(1400, nil)),
		"beside a known one":        raw(append(slices.Clone(known.Data), field(1400, nil)...)),
		"a put with a new field":    raw(field(4, append(field(1, key), field(99, nil)...))),
		"a put without a key":       of(&pb.InternalRaftRequest{Put: &pb.PutRequest{Value: key}}),
		"a put of the same value":   of(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key, IgnoreValue: true}}),
		"a put on the same lease":   of(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key, IgnoreLease: true}}),
		"a delete without a key":    of(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{}}),
		"a delete of a range":       of(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}),
		"an empty transaction":      txn(),
		"one with a comparison":     of(&pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{onto}, Compare: []*pb.Compare{{Key: key}}}}),
		"one with a failure":        of(&pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{onto}, Failure: []*pb.RequestOp{onto}}}),
		"one that reads":            txn(onto, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}),
		"one within another":        txn(onto, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}),
		"one with an empty op":      txn(onto, &pb.RequestOp{}),
		"one that deletes a range":  txn(onto, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}}),
		"one that deletes it twice": txn(onto, deleteOf("a"), deleteOf("a")),
		"a lease without an id":     of(grantOf(0, 60)),
		"a lease that has ended":    of(grantOf(7, -1)),
		"a lease for ever":          of(grantOf(7, 1<<40)),
		"a lease's end":             of(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}}),
		"a compaction":              of(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1}}),
		"a user":                    of(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a"}}),
	} {
		t.Run(name, func(t *testing.T) {
			at, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch([]segment.Record{known, record, s.put(3, "key")}), replay.Options{})
			if !errors.Is(err, replay.ErrRequest) || at.Revision != s.revision+1 {
				t.Fatalf("got %+v, %v, want ErrRequest", at, err)
			}
			stops(t, uint64(s.revision+1), err)
			stops(t, uint64(s.revision+1), replay.Check(t.Context(), fromWatch([]segment.Record{known, record, s.put(3, "key")})))
		})
	}
}

// stops fails the test unless err is that of a record after the position.
func stops(t *testing.T, after uint64, err error) {
	t.Helper()
	bad, ok := errors.AsType[*replay.RecordError](err)
	if !ok || bad.After != after {
		t.Errorf("got %+v, %v; want a record behind position %d", bad, err, after)
	}
}

// Check passes a log that fits some database.
func TestCheckPasses(t *testing.T) {
	s := script{t, 1000}
	for name, log := range map[string]replay.Log{
		"of a watch": fromWatch(
			[]segment.Record{{Kind: segment.ServerVersion, Position: 1000, Data: []byte("3.5.9")}, s.compaction(2, 1), s.hash(2, 7, 1001)},
			[]segment.Record{s.grant(1, 7, 60), s.put(1, "a"), s.change(2, deleteOf("nothing"), putOf("a", "", 7), deleteOf("a"))}),
		"of a member": fromWAL(inSegments([]segment.Record{{Kind: segment.ServerVersion, Position: 6, Data: []byte("3.4.20")},
			put(t, 7, 2), put(t, 9, 3), request(t, 10, 3, grantOf(7, 60)), request(t, 12, 3, grantOf(8, 60))})),
		"nothing": fromWatch(),
	} {
		err := replay.Check(t.Context(), log)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	version := fromWatch([]segment.Record{{Kind: segment.ServerVersion, Position: 1000, Data: []byte("4.0.0")}, s.put(1, "a")})
	stops(t, 1000, replay.Check(t.Context(), version))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := replay.Check(ended, fromWatch([]segment.Record{s.put(1, "a")}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Nested transactions may put a key and then delete it. The changes that a watch shows of them make the same key space as the
// request, with every sub-revision.
func TestKeysChangedTwiceInOneRevision(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	nested := func(ops ...*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: ops}}}
	}
	requests := []*pb.InternalRaftRequest{
		{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 300}},
		changeOf([]*pb.RequestOp{nested(putOf("new", "1", 7)), nested(deleteOf("new"))}),
		changeOf([]*pb.RequestOp{putOf("kept", "1", 0), putOf("other", "1", 7)}),
		changeOf([]*pb.RequestOp{nested(putOf("kept", "2", 7), putOf("more", "1", 0)), nested(deleteOf("kept"), deleteOf("other"))}),
		changeOf([]*pb.RequestOp{putOf("kept", "3", 0), putOf("new", "2", 7)}),
	}
	changes := [][]*pb.RequestOp{
		{putOf("new", "1", 7), deleteOf("new")},
		{putOf("kept", "1", 0), putOf("other", "1", 7)},
		{putOf("kept", "2", 7), putOf("more", "1", 0), deleteOf("kept"), deleteOf("other")},
		{putOf("kept", "3", 0), putOf("new", "2", 7)},
	}
	live, replayed := copyOf(t, base), copyOf(t, base)
	var asked []segment.Record
	for i, r := range requests {
		asked = append(asked, request(t, uint64(2+i), 1, r))
	}
	at, err := replay.Apply(t.Context(), live, fromWAL(inSegments(asked)), replay.Options{})
	if err != nil || at.Revision != s.revision+4 {
		t.Fatalf("the requests: %+v, %v", at, err)
	}
	seen := []segment.Record{s.grant(1, 7, 300)}
	for i, ops := range changes {
		seen = append(seen, s.change(int64(i+1), ops...))
	}
	_, hash, err := database.Newest(copyOf(t, live))
	if err != nil {
		t.Fatal(err)
	}
	at, err = replay.Apply(t.Context(), replayed, fromWatch([]segment.Record{s.hash(4, hash.Hash, -1)}, seen), replay.Options{})
	if err != nil || at.Proven != s.revision+4 {
		t.Fatalf("the changes: %+v, %v", at, err)
	}
	if !maps.Equal(keyBucket(t, live), keyBucket(t, replayed)) {
		t.Error("the key spaces differ")
	}
	a, b := bucket(t, live, []byte("lease")), bucket(t, replayed, []byte("lease"))
	if !maps.Equal(a, b) {
		t.Errorf("the leases are %v, live %v", b, a)
	}
}

func TestChangesThatDoNotFit(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	for name, records := range map[string][]segment.Record{
		"a hole before the first":       {s.put(2, "a")},
		"a hole":                        {s.put(1, "a"), s.put(3, "a")},
		"a hole where the base ends":    {s.put(0, "a"), s.put(2, "a")},
		"a hole within the base":        {s.put(-3, "a"), s.put(-1, "a"), s.put(0, "a"), s.put(1, "a")},
		"a revision twice":              {s.put(1, "a"), s.put(1, "b")},
		"one that goes back":            {s.put(1, "a"), s.put(2, "a"), s.put(1, "a")},
		"one that goes back into it":    {s.put(1, "a"), s.put(0, "a")},
		"a lease behind its change":     {s.put(1, "a"), s.grant(1, 7, 60)},
		"a lease alone":                 {s.grant(1, 7, 60), s.put(2, "a")},
		"a lease alone at the end":      {s.put(1, "a"), s.grant(2, 7, 60)},
		"a request":                     {s.put(1, "a"), put(t, uint64(s.revision+2), 1)},
		"a mark that comes late":        {s.put(1, "a"), s.put(2, "a"), {Kind: segment.RevisionMark, Position: uint64(s.revision + 1), Revision: s.revision + 1}},
		"a compaction of what is later": {{Kind: segment.CompactionMark, Position: uint64(s.revision + 1), CompactRevision: s.revision + 2}, s.put(1, "a"), s.put(2, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch(records), replay.Options{})
			if !errors.Is(err, replay.ErrForeign) {
				t.Errorf("got %+v, %v, want ErrForeign", at, err)
			}
			_, ofRecord := errors.AsType[*replay.RecordError](err)
			_, found := errors.AsType[*replay.RecordError](replay.Check(t.Context(), fromWatch(records)))
			byBase := name == "a hole before the first" || name == "a compaction of what is later"
			if ofRecord == byBase || found == byBase {
				t.Errorf("it is the record's: %t, by the check %t, want %t", ofRecord, found, !byBase)
			}
		})
	}
	for name, record := range map[string]segment.Record{
		"a change":     change(t, 2, changeOf([]*pb.RequestOp{putOf("a", "", 0)})),
		"a compaction": {Kind: segment.CompactionMark, Position: 2, CompactRevision: 1},
	} {
		t.Run("of WAL, "+name, func(t *testing.T) {
			_, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(inSegments([]segment.Record{record})), replay.Options{})
			if !errors.Is(err, replay.ErrForeign) {
				t.Errorf("got %v, want ErrForeign", err)
			}
		})
	}
	t.Run("of no source", func(t *testing.T) {
		_, err := replay.Apply(t.Context(), copyOf(t, base), replay.Log{Records: inSegments()}, replay.Options{})
		if !errors.Is(err, replay.ErrRequest) {
			t.Errorf("got %v, want ErrRequest", err)
		}
	})
}

// Deleting a key that does not exist proves a different history; the database stays unchanged.
func TestDeletesOfNothing(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	for name, record := range map[string]segment.Record{
		"alone":            s.change(2, deleteOf("nothing")),
		"behind a put":     s.change(2, putOf("b", "", 0), deleteOf("nothing")),
		"gone before that": s.change(2, deleteOf("gone")),
		"before its put":   s.change(2, deleteOf("nothing"), putOf("nothing", "", 0)),
	} {
		db := copyOf(t, base)
		mark := segment.Record{Kind: segment.RevisionMark, Position: uint64(s.revision), Revision: s.revision}
		records := []segment.Record{mark, s.put(1, "a"), record, s.put(3, "a")}
		if name == "gone before that" {
			records = []segment.Record{mark, s.change(1, putOf("a", "", 0)), s.put(2, "gone"), s.change(3, deleteOf("gone")), s.change(4, deleteOf("gone"))}
		}
		for range 2 { // a second run does not get further
			at, err := replay.Apply(t.Context(), db, fromWatch(records), replay.Options{})
			var mismatch *replay.MismatchError
			if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "not there") {
				t.Fatalf("%s: got %v, want a mismatch", name, err)
			}
			if int64(mismatch.Position) != at.Revision+1 || mismatch.Last.Revision > at.Revision {
				t.Errorf("%s: got %+v, %+v", name, at, mismatch)
			}
		}
	}
}

func TestMarksOfRevisions(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	// The database at the second of four changes.
	two := copyOf(t, base)
	changes := []segment.Record{s.put(1, "a"), s.change(2, putOf("b", "", 0), deleteOf("a")), s.put(3, "a"), s.put(4, "b")}
	_, err := replay.Apply(t.Context(), two, fromWatch(changes), replay.Options{Stop: replay.Stop{Revision: s.revision + 2}})
	if err != nil {
		t.Fatal(err)
	}
	_, plain, err := database.Newest(two)
	if err != nil {
		t.Fatal(err)
	}
	compacted := copyOf(t, base)
	at := s.compaction(2, 1)
	_, err = replay.Apply(t.Context(), compacted, fromWatch([]segment.Record{at}, changes), replay.Options{Stop: replay.Stop{Revision: s.revision + 2}})
	if err != nil {
		t.Fatal(err)
	}
	_, less, err := database.Newest(compacted)
	if err != nil || less.CompactRevision != s.revision+1 || less.Hash == plain.Hash {
		t.Fatalf("%+v, %+v, %v", plain, less, err)
	}
	own := copyOf(t, base)
	_, err = replay.Apply(t.Context(), own, fromWatch([]segment.Record{s.compaction(2, 2)}, changes), replay.Options{Stop: replay.Stop{Revision: s.revision + 2}})
	if err != nil {
		t.Fatal(err)
	}
	_, least, err := database.Newest(own)
	if err != nil || least.CompactRevision != s.revision+2 {
		t.Fatal(least, err)
	}
	for _, test := range []struct {
		name      string
		marks     []segment.Record
		stop      int64
		proven    int64 // relative to the base's revision
		compacted int64 // 0: no compaction
		bad       int64
	}{
		{name: "a hash", marks: []segment.Record{s.hash(2, plain.Hash, -1)}, proven: 2},
		{name: "a hash that compacts", marks: []segment.Record{s.hash(2, less.Hash, s.revision+1)}, proven: 2, compacted: 1},
		{name: "a hash that compacts to itself", marks: []segment.Record{s.hash(2, least.Hash, s.revision+2)}, proven: 2, compacted: 2},
		{name: "both", marks: []segment.Record{s.hash(2, plain.Hash, -1), s.compaction(2, 1), s.hash(2, less.Hash, s.revision+1)}, proven: 2, compacted: 1},
		{name: "a hash of an older compaction", marks: []segment.Record{s.compaction(1, 1), s.hash(2, plain.Hash+1, -1)}, compacted: 1},
		{name: "an older compaction", marks: []segment.Record{s.compaction(2, 2), s.compaction(3, 1)}, compacted: 2},
		{name: "a wrong hash", marks: []segment.Record{s.hash(2, plain.Hash+1, -1)}, bad: 2},
		{name: "of the plain one", marks: []segment.Record{s.hash(2, plain.Hash, s.revision+1)}, bad: 2, compacted: 1},
		{name: "a revision that is not its position", marks: []segment.Record{{Kind: segment.RevisionMark, Position: uint64(s.revision + 2), Revision: s.revision + 3}}, bad: 2},
		{name: "before the base", marks: []segment.Record{s.compaction(-1, -2), s.hash(-1, 7, -1)}},
		{name: "behind the stop", marks: []segment.Record{s.compaction(3, 2)}, stop: 2},
		{name: "at the stop", marks: []segment.Record{s.compaction(2, 2)}, stop: 2, compacted: 2},
		{name: "behind the end", marks: []segment.Record{s.compaction(6, 2)}, bad: 6},
		{name: "a hash behind the end", marks: []segment.Record{s.hash(6, 7, -1)}, bad: 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			stop := replay.Stop{}
			if test.stop > 0 {
				stop.Position = uint64(s.revision + test.stop)
			}
			at, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch(test.marks, changes), replay.Options{Stop: stop})
			var mismatch *replay.MismatchError
			if errors.As(err, &mismatch) != (test.bad != 0) || err != nil && (mismatch == nil || int64(mismatch.Position) != s.revision+test.bad) {
				t.Fatalf("got %v", err)
			}
			want := int64(-1)
			if test.compacted > 0 {
				want = s.revision + test.compacted
			}
			if at.CompactRevision != want || at.Proven != 0 && at.Proven != s.revision+test.proven || (at.Proven == 0) != (test.proven == 0) {
				t.Errorf("got %+v, want it compacted to %d", at, want)
			}
		})
	}
}

func (s script) compaction(nth, to int64) segment.Record {
	return segment.Record{Kind: segment.CompactionMark, Position: uint64(s.revision + nth), CompactRevision: s.revision + to}
}

func (s script) hash(nth int64, hash uint32, compact int64) segment.Record {
	revision := s.revision + nth
	return segment.Record{Kind: segment.HashMark, Position: uint64(revision), Revision: revision, Hash: hash, CompactRevision: compact}
}

func TestStopAtRevisions(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	changes := []segment.Record{s.put(-1, "a"), s.put(0, "a"), s.put(1, "a"), s.grant(2, 7, 60), s.put(2, "a"), s.put(3, "a")}
	for _, test := range []struct {
		stop    replay.Stop
		nth     int64
		stopped bool
	}{
		{replay.Stop{}, 3, false},
		{replay.Stop{Revision: s.revision}, 0, true},
		{replay.Stop{Position: uint64(s.revision)}, 0, true},
		{replay.Stop{Revision: s.revision + 2}, 2, true},
		{replay.Stop{Position: uint64(s.revision + 2)}, 2, true},
		{replay.Stop{Position: uint64(s.revision + 9)}, 3, false},
	} {
		db := copyOf(t, base)
		for run := range 2 {
			at, err := replay.Apply(t.Context(), db, fromWatch(changes), replay.Options{Stop: test.stop})
			if err != nil || at.Revision != s.revision+test.nth || at.Position != uint64(at.Revision) || at.Stopped != test.stopped {
				t.Errorf("stop %+v: got %+v, %v", test.stop, at, err)
			}
			if run == 0 && at.Requests != int(test.nth) || run == 1 && at.Requests != 0 {
				t.Errorf("stop %+v, run %d: got %+v", test.stop, run, at)
			}
		}
		position, term, err := database.Place(db)
		if position != 1 || term != 1 || err != nil {
			t.Errorf("stop %+v: the consistent index is %d, term %d, %v", test.stop, position, term, err)
		}
	}
	for _, past := range []replay.Stop{{Revision: s.revision - 1}, {Position: uint64(s.revision - 1)}} {
		_, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch(changes), replay.Options{Stop: past})
		if !errors.Is(err, replay.ErrPast) {
			t.Errorf("stop %+v: got %v, want ErrPast", past, err)
		}
	}
}

func TestLeasesOfChanges(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	db := copyOf(t, base)
	for _, test := range []struct {
		name    string
		changes []segment.Record
		ttl     map[int64]int64
		guessed int
	}{
		{"granted", []segment.Record{s.grant(1, 7, 100), s.grant(1, 8, 1), s.change(1, putOf("a", "", 7), putOf("b", "", 8))}, map[int64]int64{7: 100, 8: 2}, 0},
		{"there already", []segment.Record{s.grant(2, 7, 200), s.change(2, putOf("c", "", 7))}, map[int64]int64{7: 100, 8: 2}, 0},
		{"not granted", []segment.Record{s.change(3, putOf("d", "", 9), putOf("e", "", 10), putOf("f", "", 9))}, map[int64]int64{7: 100, 8: 2, 9: 60, 10: 60}, 2},
		{"not granted, of one put", []segment.Record{s.change(4, putOf("g", "", 11))}, map[int64]int64{7: 100, 8: 2, 9: 60, 10: 60, 11: 60}, 1},
		{"without keys", []segment.Record{s.change(5, deleteOf("a"), deleteOf("b")), s.grant(6, 8, 1), s.change(6, deleteOf("c")),
			s.grant(7, 7, 300), s.change(7, putOf("a", "", 7))}, map[int64]int64{7: 300, 8: 2, 9: 60, 10: 60, 11: 60}, 0},
	} {
		at, err := replay.Apply(t.Context(), db, fromWatch(test.changes), replay.Options{})
		if err != nil || at.GuessedLeases != test.guessed {
			t.Fatalf("%s: got %+v, %v", test.name, at, err)
		}
		got := leaseTTLs(t, db)
		if !maps.Equal(got, test.ttl) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.ttl)
		}
	}
}

func leaseTTLs(t *testing.T, db string) map[int64]int64 {
	t.Helper()
	ttls := map[int64]int64{}
	for id, data := range bucket(t, db, []byte("lease")) {
		var l leasepb.Lease
		err := proto.Unmarshal([]byte(data), &l)
		if err != nil || l.ID != int64(binary.BigEndian.Uint64([]byte(id))) {
			t.Fatal(&l, err)
		}
		ttls[l.ID] = l.TTL
	}
	return ttls
}

// A run that is interrupted anywhere and repeated leaves the same database as one run; a further run changes nothing.
func TestInterruptedChanges(t *testing.T) {
	const count = 20_000
	base := makeBase(t, smallBase)
	s := behind(t, base)
	records := s.mixed(count)
	whole := copyOf(t, base)
	want, err := replay.Apply(t.Context(), whole, fromWatch(records), replay.Options{})
	if err != nil || want.Requests != count {
		t.Fatal(want, err)
	}
	db := copyOf(t, base)
	for cut := 1000; cut < count; cut += 4000 {
		ctx, cancel := context.WithCancel(t.Context())
		at, err := replay.Apply(ctx, db, replay.Log{Source: segment.Watch, Records: func(yield func(segment.Record, error) bool) {
			n := 0
			for record := range inSegments(records) {
				n++
				if n == cut {
					cancel()
				}
				if !yield(record, nil) {
					return
				}
			}
		}}, replay.Options{})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %+v, %v", at, err)
		}
	}
	at, err := replay.Apply(t.Context(), db, fromWatch(records), replay.Options{})
	if err != nil || at.Revision != want.Revision || at.Keys != want.Keys {
		t.Errorf("got %+v, %v; want %+v", at, err, want)
	}
	same(t, "after the interruptions", whole, db, database.Exempt{})
	at, err = replay.Apply(t.Context(), db, fromWatch(records), replay.Options{})
	if err != nil || at.Requests != 0 {
		t.Errorf("a repeated run: %+v, %v", at, err)
	}
	same(t, "after one run more", whole, db, database.Exempt{})
}

// A killed run leaves all committed changes. Another run continues from there and ends with the same database as an
// uninterrupted one.
func TestKilledChanges(t *testing.T) {
	const count, kills = 12_000, 8
	base := makeBase(t, smallBase)
	s := behind(t, base)
	records, marks := s.mixed(count), []segment.Record{}
	for n := int64(500); n < count; n += 1100 { // each compaction commits
		marks = append(marks, s.compaction(n, n-300))
	}
	whole, told, left := copyOf(t, base), 0, map[int64]string{}
	w := &replay.Watch{Keys: replay.Keys{From: []byte{0}, To: []byte{0}}, Tell: func(c replay.Change) error {
		told++
		if told%(count/kills) == 0 {
			left[c.Revision.Main] = copyOf(t, whole) // nothing is written until this returns
		}
		return nil
	}}
	_, err := replay.Apply(t.Context(), whole, fromWatch(marks, records), replay.Options{Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	behindIt := 0
	for killed, db := range left {
		at, err := replay.Apply(t.Context(), db, fromWatch(marks, records), replay.Options{})
		if err != nil || at.Revision != s.revision+count {
			t.Fatalf("killed at revision %d: %+v, %v", killed, at, err)
		}
		began := at.Revision - int64(at.Requests)
		if began > s.revision && began < killed {
			behindIt++
		}
		same(t, fmt.Sprint("killed at revision ", killed), whole, db, database.Exempt{})
	}
	if behindIt < kills/2 {
		t.Errorf("of %d killed runs only %d had committed a part", len(left), behindIt)
	}
}

// mixed returns changes of every shape for count revisions.
func (s script) mixed(count int64) (records []segment.Record) {
	for n := int64(1); n <= count; n++ {
		key, lease := fmt.Sprint("key/", n), n/100+1
		switch {
		case n%100 == 1:
			records = append(records, s.grant(n, lease, 100+n), s.change(n, putOf(key, "leased", lease)))
		case n%10 == 0:
			records = append(records, s.change(n, deleteOf(fmt.Sprint("key/", n-1)), putOf(key, "in its place", 0)))
		case n%10 == 5:
			records = append(records, s.change(n, deleteOf(fmt.Sprint("key/", n-1))))
		default:
			records = append(records, s.put(n, key))
		}
	}
	return records
}

// In a log without requests a Change names the kinds that are possible.
func TestWatchedChanges(t *testing.T) {
	base := makeBase(t, smallBase)
	s := behind(t, base)
	records := []segment.Record{
		s.grant(1, 7, 60), s.change(1, putOf("a/1", "", 7)),
		s.put(2, "b"),
		s.change(3, putOf("a/2", "", 7), putOf("a/3", "", 0)),
		s.change(4, deleteOf("a/1")), // the end of its lease would have deleted a/2 too
		s.change(5, deleteOf("a/2")), // this may be the end of the lease
		s.change(6, deleteOf("a/3")), // has no lease
		s.grant(7, 8, 60), s.change(7, putOf("a/4", "", 8), putOf("a/5", "", 8), putOf("c", "", 0)),
		s.change(8, deleteOf("a/4"), deleteOf("a/5")),
		s.change(9, putOf("a/6", "", 0), putOf("a/7", "", 0)),
		s.change(10, deleteOf("a/6"), deleteOf("a/7")),
		s.change(11, deleteOf("b"), putOf("a/8", "", 0)),
	}
	var got []string
	w := &replay.Watch{Keys: replay.Keys{From: []byte("a/"), To: []byte("a0")}, Tell: func(c replay.Change) error {
		sign := "+"
		if c.Deleted {
			sign = "-"
		}
		if int64(c.Position) != c.Revision.Main {
			t.Errorf("got %+v", c)
		}
		got = append(got, fmt.Sprintf("%d.%d %s%s: %s", c.Revision.Main-s.revision, c.Revision.Sub, sign, c.KV.Key, c.Request))
		return nil
	}}
	_, err := replay.Apply(t.Context(), copyOf(t, base), fromWatch(records), replay.Options{Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1.0 +a/1: put", "3.0 +a/2: transaction", "3.1 +a/3: transaction",
		"4.0 -a/1: delete", "5.0 -a/2: delete or end of a lease", "6.0 -a/3: delete",
		"7.0 +a/4: transaction", "7.1 +a/5: transaction",
		"8.0 -a/4: delete or end of a lease", "8.1 -a/5: delete or end of a lease",
		"9.0 +a/6: transaction", "9.1 +a/7: transaction",
		"10.0 -a/6: delete of several keys", "10.1 -a/7: delete of several keys", "11.1 +a/8: transaction",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each accepted change can be applied: every op has a key, and no key is deleted twice.
func FuzzChange(f *testing.F) {
	for _, r := range []*pb.InternalRaftRequest{
		grantOf(7, 60), changeOf([]*pb.RequestOp{putOf("a", "b", 7)}), changeOf([]*pb.RequestOp{deleteOf("a")}),
		changeOf([]*pb.RequestOp{putOf("a", "b", 7), deleteOf("b")}), {Compaction: &pb.CompactionRequest{Revision: 1}},
	} {
		f.Add(change(f, 1, r).Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ops, grant, err := replay.DecodeChange(data)
		if err != nil || grant {
			return
		}
		keys := map[string]bool{}
		for _, op := range ops {
			keys[string(op.GetRequestPut().GetKey())+string(op.GetRequestDeleteRange().GetKey())] = true
		}
		if len(ops) == 0 || len(keys) != len(ops) || keys[""] {
			t.Errorf("taken: %q, %v", data, ops)
		}
	})
}
