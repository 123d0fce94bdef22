package replay_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"testing"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestIndexAndStore replays random requests that an index can serve, in several runs, and all at once by etcd's own store. Both databases
// must be the same, with the same hashes on the way.
func TestIndexAndStore(t *testing.T) {
	base := makeBase(t, smallBase)
	start := behind(t, base).revision
	seeds, count := uint64(25), 600
	if testing.Short() {
		seeds = 10
	} else if soak.On() {
		seeds = 400
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random, l := newGuess(seed, 5, 8<<(seed%5), start), newRecords(t)
			var records []segment.Record
			for range count {
				records = append(records, l.add(random.directRequest(seed%4 == 0)))
			}
			indexed, stored := copyOf(t, base), copyOf(t, base)
			var got replay.At
			for from := 0; from < count; {
				to := min(count, from+1+random.IntN(200))
				got = apply(t, indexed, inSegments(records[:to]), replay.Stop{})
				from = to
			}
			want, err := replay.ApplyWithStore(t.Context(), stored, fromWAL(inSegments(records)), replay.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got.Requests = want.Requests // of the last run alone
			if got != want || got.Revision < start+20 || got.CompactRevision < start {
				t.Errorf("with an index %+v, with etcd's store %+v", got, want)
			}
			same(t, "with an index and with etcd's store", indexed, stored, database.Exempt{})
			sameHash(t, indexed, stored)
		})
	}
}

// TestHashAfterItsCompaction compares marks whose hash is from before the compaction to the hashed revision. A member remembers such a hash:
// the mark then comes after the compaction, possibly in another segment.
func TestHashAfterItsCompaction(t *testing.T) {
	base := makeBase(t, smallBase)
	start := behind(t, base).revision
	records := newRecords(t)
	first := []segment.Record{records.put("key"), records.put("key")}
	compaction := records.compact(start + 2)
	last := records.put("key")
	mark := hashOf(t, base, first...)
	mark.Position = last.Position
	wrong := mark
	wrong.Hash++
	for _, m := range []segment.Record{mark, wrong} {
		for name, log := range map[string]iter.Seq2[segment.Record, error]{
			"in the same segment": inSegments([]segment.Record{m}, first, []segment.Record{compaction, last}),
			"in the next segment": inSegments(append(first[:2:2], compaction), []segment.Record{m}, []segment.Record{last}),
		} {
			got, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(log), replay.Options{})
			isWrong := m.Hash == wrong.Hash
			if isWrong != errors.Is(err, replay.ErrMismatch) || !isWrong && got.Proven != mark.Revision {
				t.Errorf("%s, the hash %x: %+v, %v", name, m.Hash, got, err)
			}
		}
	}
}

// hashOf returns a mark with the hash after some records, at the position of the last one.
func hashOf(t *testing.T, base string, records ...segment.Record) segment.Record {
	t.Helper()
	db := copyOf(t, base)
	at := apply(t, db, inSegments(records), replay.Stop{})
	_, hash, err := database.Newest(db)
	if err != nil {
		t.Fatal(err)
	}
	return segment.Record{
		Kind: segment.HashMark, Position: at.Position, Revision: at.Revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash,
	}
}

// recordMaker makes requests, from position 2 on.
type recordMaker struct {
	t        *testing.T
	position uint64
}

func newRecords(t *testing.T) *recordMaker { return &recordMaker{t, 1} }

func (l *recordMaker) add(r *pb.InternalRaftRequest) segment.Record {
	l.t.Helper()
	l.position++
	r.Header = &pb.RequestHeader{ID: l.position}
	return request(l.t, l.position, 1, r)
}

func (l *recordMaker) put(key string) segment.Record {
	return l.add(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key)}})
}

func (l *recordMaker) remove(key string) segment.Record {
	return l.add(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}})
}

func (l *recordMaker) compact(revision int64) segment.Record {
	return l.add(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision}})
}

// replace deletes a key and puts it again in one revision.
func (l *recordMaker) replace(key string) segment.Record {
	return l.add(&pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{deleteOf(key), putOf(key, "", 0)}}})
}

// nested is put in a transaction within another one, which only etcd's applier serves.
func (l *recordMaker) nested(key string) segment.Record {
	return l.add(within(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key)}}))
}

// wantAsStore replays, for each n of after, the first n records and then all, and compares with etcd's own store.
func wantAsStore(t *testing.T, base string, records []segment.Record, after ...int) {
	t.Helper()
	stored := copyOf(t, base)
	want, err := replay.ApplyWithStore(t.Context(), stored, fromWAL(inSegments(records)), replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range after {
		db := copyOf(t, base)
		apply(t, db, inSegments(records[:n]), replay.Stop{})
		got := apply(t, db, inSegments(records), replay.Stop{})
		if got.Revision != want.Revision || got.CompactRevision != want.CompactRevision {
			t.Errorf("interrupted after %d: %+v, with etcd's store %+v", n, got, want)
		}
		same(t, fmt.Sprint("interrupted after ", n), db, stored, database.Exempt{})
	}
}

// TestCompactionToAKeyThatIsDeletedAndPut compacts to a revision that deletes a key and puts it again. etcd then deletes the put too, but
// only from the database: it remembers the key until it starts again.
func TestCompactionToAKeyThatIsDeletedAndPut(t *testing.T) {
	base := makeBase(t, smallBase)
	start := behind(t, base).revision
	l := newRecords(t)
	records := []segment.Record{
		l.put("key"), l.replace("key"), l.put("other"), l.compact(start + 2), l.put("other"), l.compact(start + 3),
	}
	wantAsStore(t, base, records, 0, 1, 2, 3, 4, 5)

	l = newRecords(t)
	records = []segment.Record{l.put("key"), l.nested("key"), l.replace("key"), l.put("other"), l.compact(start + 3)}
	for range 3000 { // etcd's store serves these requests too
		records = append(records, l.put("other"))
	}
	wantAsStore(t, base, append(records, l.put("key")), 0)
}

// TestChangesBetweenIndexAndStore replays a log in which one of about a thousand requests is not direct.
func TestChangesBetweenIndexAndStore(t *testing.T) {
	base := makeBase(t, smallBase)
	start := behind(t, base).revision
	random := newGuess(7, 7, 50, start)
	l := newRecords(t)
	var records []segment.Record
	for len(records) < 8000 {
		for range random.IntN(2000) {
			records = append(records, l.add(random.directRequest(false)))
		}
		records = append(records, l.nested("key"))
	}
	wantAsStore(t, base, records, 0, 3000)
}

// TestInterruptedCompaction ends a replay in the middle of a compaction by a server that also deletes the tombstones of its revision.
func TestInterruptedCompaction(t *testing.T) {
	base := makeBase(t, smallBase)
	start := behind(t, base).revision
	l := newRecords(t)
	version := segment.Record{Kind: segment.ServerVersion, Data: []byte("3.5.0")}
	records := []segment.Record{version, l.put("key"), l.remove("key"), l.put("other"), l.compact(start + 2), l.put("last")}
	whole, half := copyOf(t, base), copyOf(t, base)
	apply(t, whole, inSegments(records), replay.Stop{})
	apply(t, half, inSegments(records[:4]), replay.Stop{})
	update(t, half, func(tx *bolt.Tx) error { // the first commit of the compaction
		meta := tx.Bucket(schema.Meta.Name())
		revision := mvcc.RevToBytes(mvcc.Revision{Main: start + 2}, mvcc.NewRevBytes())
		return errors.Join(
			meta.Put(schema.ScheduledCompactKeyName, revision),
			meta.Put(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, records[4].Position)),
		)
	})
	apply(t, half, inSegments(records), replay.Stop{})
	same(t, "whole and interrupted", whole, half, database.Exempt{})
}
