package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// fakeSource implements only the methods that return names.
type fakeSource struct{ source }

func (fakeSource) server() *cluster.Server {
	return &cluster.Server{MemberID: 1, Status: &pb.StatusResponse{}}
}
func (fakeSource) clusterID() string { return "1" }

func workOf(t *testing.T, s spool) *work {
	t.Helper()
	to, err := repository.Open(mem.New(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Source: segment.Watch, Flush: time.Millisecond, SegmentSize: 4 << 10, Spool: s.dir, SpoolMax: s.max, Version: "v"}
	w := &work{
		archiver: &archiver{config: config, to: to, writer: "w", board: &board{}, spool: s}, source: fakeSource{}, version: "3.5.0",
	}
	w.next = segment.Header{Lineage: newLineage(), Seq: 1, Reason: "the first"}
	w.pending = startAfter(segment.End{Position: 100})
	return w
}

func batchOf(revision uint64, bytes int) segment.Batch {
	return segment.Batch{
		First: revision, Last: revision, End: segment.End{Position: revision, Digest: fmt.Sprintf("%064x", revision)},
		Requests: []segment.Record{{Kind: segment.Change, Position: revision, Data: []byte(strings.Repeat("x", bytes))}},
	}
}

// TestAFullDiskUnderTheSpool checks that segments stay in memory if the spool fails, and that their number is bounded.
func TestAFullDiskUnderTheSpool(t *testing.T) {
	w := workOf(t, spool{dir: filepath.Join(t.TempDir(), "gone"), max: 1 << 30}) // every put fails
	w.storing = make(chan error, 1)                                              // the first is being stored
	w.storeFailure.Store("the store is away")
	for revision := uint64(101); revision < 201; revision++ {
		w.spoolFailed = time.Time{} // much later
		w.pending.add(batchOf(revision, 8<<10), time.Now())
		if w.due() {
			err := w.send(t.Context())
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.queue) > 2 {
		t.Errorf("%d segments wait in memory", len(w.queue))
	}
}

// TestSpoolFollowsTheChain checks that the segments in the spool are returned in the order of their chain, whatever their times, and that other files
// are removed.
func TestSpoolFollowsTheChain(t *testing.T) {
	s := spool{dir: t.TempDir(), max: 1 << 30}
	w := workOf(t, s)
	clock := time.Now().UTC()
	for i := range 4 {
		w.pending.add(batchOf(uint64(101+i), 100), time.Now())
		p := w.pending.cut()
		h := w.header(p)
		h.Written = clock.Add(-time.Duration(i) * time.Minute)
		e, err := segment.Encode(h, p.requests, w.config.To)
		if err != nil {
			t.Fatal(err)
		}
		err = s.put(e)
		if err != nil {
			t.Fatal(err)
		}
		w.cutUpTo(catalog.SegmentOf(e))
	}
	for name, content := range map[string]string{"half.seg.part": "x", "junk.seg": "no segment"} {
		err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	var warned []string
	s.warn = func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }
	following, stranded, err := s.sort(log.Tail{})
	if err != nil || len(following) != 4 || len(stranded) != 0 || s.segments != 4 {
		t.Fatalf("%d go on, %d do not, %v", len(following), len(stranded), err)
	}
	left := count(t, s.dir)
	if left != 4 || len(warned) != 2 {
		t.Errorf("%d files are left, want the 4 segments; reported: %q", left, warned)
	}
	stored := log.Tail{Lineage: following[1].Lineage, Last: following[1]}
	following, stranded, err = s.sort(stored)
	if err != nil || len(following) != 2 || len(stranded) != 2 || count(t, s.dir) != 4 {
		t.Errorf("behind the second one %d go on, %d do not, %d files, %v", len(following), len(stranded), count(t, s.dir), err)
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestPatience checks that each wait without progress at one position doubles the next one, up to a bound.
func TestPatience(t *testing.T) {
	const first = time.Second
	var p patience
	for n, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64} {
		got := p.at(7, first)
		if got != want*first {
			t.Errorf("wait %d is %s, want %s", n, got, want*first)
		}
		elsewhere := p.at(8, first)
		if elsewhere != first {
			t.Errorf("at another place it is %s", elsewhere)
		}
		p.extend(7, got)
	}
}
