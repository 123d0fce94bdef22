package wal_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// smallSegment is the size of the files in these tests: etcd's own 64 MB only cost time.
const smallSegment = 64 << 10

func TestMain(m *testing.M) {
	etcdwal.SegmentSizeBytes = smallSegment
	os.Exit(m.Run())
}

// tb is the common part of *testing.T and *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// journal is a member's log, written with etcd's own package.
type journal struct {
	t   tb
	dir string // the data dir
	*etcdwal.WAL
}

const clusterID, memberID = 0xc1, 0xa1

func newJournal(t tb, dir string) *journal {
	t.Helper()
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: proto.Uint64(memberID), ClusterID: proto.Uint64(clusterID)})
	ok(t, err)
	ok(t, os.MkdirAll(filepath.Join(dir, "member"), 0o700))
	w, err := etcdwal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), metadata)
	ok(t, err)
	w.SetUnsafeNoFsync()
	return &journal{t, dir, w}
}

// fresh returns a journal for one test.
func fresh(t *testing.T) *journal {
	t.Helper()
	j := newJournal(t, t.TempDir())
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// save writes entries and then a HardState, as one Ready of raft. A commit of 0 omits the HardState.
func (j *journal) save(term, commit uint64, entries ...*raftpb.Entry) {
	j.t.Helper()
	state := &raftpb.HardState{}
	if commit > 0 {
		state = &raftpb.HardState{Term: &term, Vote: proto.Uint64(memberID), Commit: &commit}
	}
	ok(j.t, j.Save(state, entries))
	ok(j.t, j.Sync()) // otherwise a commit index alone stays in a buffer
}

func (j *journal) snapshot(index, term uint64) {
	j.t.Helper()
	ok(j.t, j.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{}}))
}

// put returns an entry with a put whose value depends on who.
func put(index, term uint64, who string) *raftpb.Entry {
	data, err := proto.Marshal(&pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: index},
		Put:    &pb.PutRequest{Key: fmt.Appendf(nil, "%d", index), Value: fmt.Appendf(nil, "%s in term %d", who, term)},
	})
	if err != nil {
		panic(err)
	}
	return entry(index, term, data)
}

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: data}
}

// puts returns entries from first to last.
func puts(first, last, term uint64, who string) []*raftpb.Entry {
	var all []*raftpb.Entry
	for i := first; i <= last; i++ {
		all = append(all, put(i, term, who))
	}
	return all
}

func endOf(e *raftpb.Entry) segment.End {
	sum := sha256.Sum256(e.GetData())
	return segment.End{Position: e.GetIndex(), Term: e.GetTerm(), Digest: hex.EncodeToString(sum[:])}
}

func ok(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func open(t tb, dir string, after segment.End) *wal.Log {
	t.Helper()
	l, err := wal.Open(dir, after)
	ok(t, err)
	return l
}

// opened returns a log for one test.
func opened(t *testing.T, dir string, after segment.End) *wal.Log {
	t.Helper()
	l := open(t, dir, after)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func readAll(t tb, l *wal.Log) {
	t.Helper()
	for {
		more, err := l.Read()
		ok(t, err)
		if !more {
			return
		}
	}
}

// takeAll takes committed entries until there are no more, or an error. Batches must follow each other.
func takeAll(t tb, l *wal.Log) (requests []segment.Record, end segment.End, err error) {
	t.Helper()
	for {
		b, err := l.Take(1000)
		if err != nil || b.Last == 0 {
			return requests, end, err
		}
		if b.End.Position != b.Last || b.Last < b.First || end.Position != 0 && b.First != end.Position+1 {
			t.Fatalf("a batch from %d to %d with the end %+v after %+v", b.First, b.Last, b.End, end)
		}
		for i, r := range b.Requests {
			if r.Kind != segment.Request || r.Position < b.First || r.Position > b.Last || i > 0 && r.Position <= b.Requests[i-1].Position {
				t.Fatalf("request %+v in a batch from %d to %d", r, b.First, b.Last)
			}
		}
		requests, end = append(requests, b.Requests...), b.End
	}
}

// mustTake reads and takes everything, and compares it with want.
func mustTake(t tb, l *wal.Log, want ...*raftpb.Entry) segment.End {
	t.Helper()
	readAll(t, l)
	got, end, err := takeAll(t, l)
	ok(t, err)
	same(t, got, want)
	return end
}

func same(t tb, got []segment.Record, want []*raftpb.Entry) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Fatalf("%d requests came, want %d", len(got), len(want))
		}
		g, w := got[i], want[i]
		if g.Position != w.GetIndex() || g.Term != w.GetTerm() || string(g.Data) != string(w.GetData()) {
			t.Fatalf("request %d is %d of term %d, %q; want %d of term %d, %q", i, g.Position, g.Term, g.Data, w.GetIndex(), w.GetTerm(), w.GetData())
		}
	}
}

// wantGap takes until there is a gap.
func wantGap(t tb, l *wal.Log, from, to uint64) {
	t.Helper()
	readAll(t, l)
	_, _, err := takeAll(t, l)
	var gap *wal.GapError
	if !errors.As(err, &gap) || gap.From != from || gap.To != to {
		t.Fatalf("got %v, want a gap from %d to %d", err, from, to)
	}
}
