// Package longlog creates the log of weeks as a store lists it. It stores only the objects that a reader opens: the
// indexes, the first segment and those after the newest index. All others are names and sizes, also the packs.
package longlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// The parts of a log as an agent with --flush 2s writes it.
const (
	Cluster  = "c"
	Lineage  = "000000000000000000000000000000a1"
	Index    = 512 // segments in each index
	Recent   = 64  // segments after which the recent index is replaced
	Tail     = 100 // segments, at least, that are in no other index
	Flush    = 2 * time.Second
	Requests = 20 // in each segment, and each makes a revision
)

// Begin is the time of the log's first segment.
var Begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Log is a store with one log. It measures the live memory of the process during some of its requests.
type Log struct {
	storage.Bucket // with the stored objects
	Segments       int

	sizes  []uint32         // of all segments
	packed int              // segments at the beginning that are in packs
	packs  []storage.Object // of these

	mu        sync.Mutex
	measuring bool
	before    int64 // bytes of the live heap
	memory    Memory
	opens     int
	listings  int // requests, of pageSize objects each
}

const pageSize = 1000 // objects that a request for a listing to S3 returns

// New returns a log of n segments. It has backups at its beginning, in its middle and, if n is 300 above a multiple of
// Index, in its newest index.
func New(tb testing.TB, n int) *Log {
	tb.Helper()
	l := &Log{Bucket: mem.New(), Segments: n}
	c, err := repository.Open(l.Bucket, Cluster)
	if err != nil {
		tb.Fatal(err)
	}
	var unindexed []catalog.Segment
	var last catalog.Segment
	for i := range n {
		e := next(tb, last, i == 0 || i >= n-Tail-Index)
		last = e.segment
		l.sizes = append(l.sizes, uint32(last.Size))
		unindexed = append(unindexed, last)
		if e.encoded != nil {
			fatal(tb, c.Log().StoreSegment(tb.Context(), *e.encoded))
		}
		if len(unindexed) == Index && i < n-Tail {
			fatal(tb, c.Log().StoreIndex(tb.Context(), Lineage, unindexed))
			unindexed = nil
		}
		if len(unindexed) > 0 && len(unindexed)%Recent == 0 && i >= n-Index {
			fatal(tb, c.Log().StoreRecent(tb.Context(), Lineage, unindexed))
		}
		if i == 0 || i == n/2 || i == n-Tail-250 {
			storeBackup(tb, c, last)
		}
	}
	return l
}

// Pack packs all segments but about the newest ones, as prunes do, and stores the summary.
func (l *Log) Pack(tb testing.TB, newest int) {
	tb.Helper()
	for last := Index; last <= l.Segments-max(newest, Tail+Index); last += Index {
		var size int64
		for _, s := range l.sizes[last-Index : last] {
			size += int64(s)
		}
		key := catalog.PackKey(Cluster, Lineage, uint64(last-Index+1), uint64(last))
		l.packed, l.packs = last, append(l.packs, storage.Object{Key: key, Size: size, ModTime: Begin})
	}
	c, err := repository.Open(l, Cluster)
	fatal(tb, err)
	c.Remembering(&log.Headers{})
	_, err = c.Log().Load(tb.Context(), log.LoadOptions{})
	fatal(tb, err)
	fatal(tb, c.Log().StoreSummary(tb.Context()))
}

// Requests returns how many requests to read and to list there were so far.
func (l *Log) Requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opens + l.listings
}

func fatal(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// made is a segment; encoded is nil if only its header was created.
type made struct {
	segment catalog.Segment
	encoded *segment.Encoded
}

// next returns the segment after last.
func next(tb testing.TB, last catalog.Segment, whole bool) made {
	tb.Helper()
	h := segment.Header{
		Cluster: Cluster, Lineage: Lineage, Seq: last.Seq + 1, Previous: last.Digest, First: last.Last + 1, Last: last.Last + Requests,
		Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.7.3",
		Writer: "w", Written: Begin.Add(time.Duration(last.Seq+1) * Flush), DRVersion: "v0.2.0",
	}
	for i := range uint64(2) { // about one a second
		at := h.Written.Add(-time.Duration(2-i) * Flush / 2)
		h.Marks = append(h.Marks, segment.Mark{
			Position: h.First + i*Requests/2, Revision: int64(h.First + i*Requests/2),
			Interval: segment.Interval{NotBefore: at, NotAfter: at.Add(300 * time.Millisecond)},
		})
	}
	if h.Seq%1800 == 0 {
		h.Hashes = []segment.Hash{{Position: h.First, Revision: int64(h.First), CompactRevision: -1, Hash: uint32(h.Seq)}}
	}
	h.End = segment.End{Position: h.Last, Term: 2, Digest: cmp.Or(last.Digest, strings.Repeat("e", 64))}
	if whole {
		e, err := segment.Encode(h, requests(h), seal.Recipients{})
		fatal(tb, err)
		return made{catalog.SegmentOf(e), &e}
	}
	h.Format, h.Requests, h.Seal = segment.Format, Requests, last.Seal
	h.Plain = segment.Blob{Size: 4000 + int64(h.Seq%97), SHA256: last.Digest}
	h.Stored = segment.Blob{Size: 3000 + int64(h.Seq%89), SHA256: last.Digest}
	doc, err := document.Encode(h)
	fatal(tb, err)
	h, digest, err := segment.DecodeHeader(doc)
	fatal(tb, err)
	return made{catalog.Segment{Header: h, Digest: digest, Size: int64(segment.PrefixSize+len(doc)) + h.Stored.Size}, nil}
}

func requests(h segment.Header) (all []segment.Record) {
	for position := h.First; position <= h.Last; position++ {
		all = append(all, segment.Record{Kind: segment.Request, Position: position, Term: h.End.Term, Data: []byte("request")})
	}
	return all
}

// storeBackup stores a backup that was taken in the middle of s.
func storeBackup(tb testing.TB, c *repository.Cluster, s catalog.Segment) {
	tb.Helper()
	content := []byte("snapshot")
	stream, err := seal.New(bytes.NewReader(content), seal.Recipients{})
	fatal(tb, err)
	defer stream.Close()
	at := s.First + Requests/2
	m := catalog.Manifest{
		Started: s.Written.Add(-Flush / 2), Finished: s.Written, DRVersion: "v0.2.0", ClusterID: s.ClusterID, EtcdVersion: "3.7.3",
		Revision: int64(at), RevisionMax: int64(at), RaftIndex: at, RaftIndexMax: at, RaftTerm: 2,
		Plain:   catalog.Blob{Name: "snapshot.db", Size: 8, SHA256: strings.Repeat("a", 64)},
		Members: []catalog.Member{{ID: s.Member, Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"}}},
	}
	_, err = stored.CreateFrom(tb.Context(), c, catalog.NewID(m.Started, m.Revision), seal.Recipients{}.Seal(), stream,
		func() (catalog.Manifest, error) { return m, nil })
	fatal(tb, err)
}

// List implements storage.Bucket: it yields all segments and packs.
func (l *Log) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		yielded := 0
		send := func(object storage.Object, err error) bool {
			yielded++
			return yield(object, err)
		}
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.listings += 1 + yielded/pageSize
		}()
		prefix := Cluster + "/log/" + Lineage + "/"
		inLog := strings.HasPrefix(prefix, o.Prefix) || strings.HasPrefix(o.Prefix, prefix)
		wanted := func(key string) bool { return strings.HasPrefix(key, o.Prefix) && key > o.After }
		if inLog {
			for i, size := range l.sizes[l.packed:] {
				key := fmt.Sprintf("%s%016x.seg", prefix, l.packed+i+1)
				if wanted(key) && !send(storage.Object{Key: key, Size: int64(size), ModTime: Begin}, nil) {
					return
				}
			}
			l.mu.Lock()
			l.sample(&l.memory.Listed)
			l.mu.Unlock()
		}
		for object, err := range l.Bucket.List(ctx, o) {
			if !strings.HasSuffix(object.Key, ".seg") && !send(object, err) {
				return
			}
		}
		for _, p := range l.packs { // after the indexes; the log has no tombstones
			if wanted(p.Key) && !send(p, nil) {
				return
			}
		}
	}
}

// Open implements storage.Bucket.
func (l *Log) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens++
	if l.opens%10 == 0 {
		l.sample(&l.memory.Peak)
	}
	return l.Bucket.Open(ctx, key, o)
}

// Memory has the growth of the process's live heap, in bytes.
type Memory struct {
	Listed int64 // when all segments were listed
	Held   int64 // by a result
	Peak   int64 // at most, of all samples
}

// sample measures the live heap. The caller holds l.mu.
func (l *Log) sample(into *int64) {
	if l.measuring {
		*into = max(*into, live()-l.before)
		l.memory.Peak = max(l.memory.Peak, *into)
	}
}

func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Measure returns the memory that do needs while it reads l, and that of its result.
func (l *Log) Measure(do func() any) Memory {
	l.mu.Lock()
	l.measuring, l.before, l.memory = true, live(), Memory{}
	l.mu.Unlock()
	result := do()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sample(&l.memory.Held)
	runtime.KeepAlive(result)
	l.measuring = false
	return l.memory
}
