package archive

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// slowSource is a source whose member needs an hour for its hash.
type slowSource struct {
	fakeSource
	position uint64
}

func (s slowSource) hasher() func(context.Context, cluster.HashLimit) (segment.Hash, error) {
	return func(context.Context, cluster.HashLimit) (segment.Hash, error) {
		time.Sleep(time.Hour)
		return segment.Hash{Position: s.position, Revision: int64(s.position), CompactRevision: -1, Hash: 7}, nil
	}
}

func (slowSource) continueAfter(context.Context, segment.End) error { return nil }

// TestHashDoesNotBlockArchiving checks that a slow hash does not delay archiving, and is kept if its position is not stored yet.
func TestHashDoesNotBlockArchiving(t *testing.T) {
	for position, want := range map[uint64]int{100: 1, 101: 1, 99: 0} { // pending begins behind 100
		synctest.Test(t, func(t *testing.T) {
			w := workOf(t, spool{})
			w.source, w.config.HashEvery = slowSource{position: position}, 2*time.Hour
			began := time.Now()
			w.hash(t.Context())
			w.hash(t.Context())
			waited := time.Since(began)
			if waited > 0 {
				t.Errorf("archiving stood still for %s", waited)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			w.hash(t.Context())
			got := len(w.pending.hashes)
			if got != want {
				t.Errorf("of position %d there are %d hashes, want %d", position, got, want)
			}
		})
	}
}

// silentSource is a source whose member reports position 200, and which returns no request. heard is when it last received something.
type silentSource struct {
	fakeSource
	heard time.Time
	limit time.Duration
}

func (s silentSource) mark(context.Context) (segment.Mark, error) {
	now := time.Now()
	return segment.Mark{Position: 200, Interval: segment.Interval{NotBefore: now, NotAfter: now}}, nil
}

func (s silentSource) lastDataAt() time.Time      { return s.heard }
func (s silentSource) normalDelay() time.Duration { return s.limit }
func (silentSource) version() string              { return "3.5.0" }
func (silentSource) name() string                 { return "the log" }

// TestStuckWhateverTheNumberOfMarks checks that an agent whose source returns nothing of a committed position reports it after its
// patience, and not before, although about one mark per second arrives and not all are kept.
func TestStuckWhateverTheNumberOfMarks(t *testing.T) {
	for _, limit := range []time.Duration{time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := workOf(t, spool{})
			began := time.Now()
			w.source, w.takenAt = silentSource{heard: began, limit: limit}, began
			for w.stuck() == nil {
				if time.Since(began) > limit+time.Minute {
					t.Fatalf("no error after %s", time.Since(began))
				}
				err := w.mark(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(markEvery)
			}
			if time.Since(began) < limit {
				t.Errorf("an error after %s, want none before %s", time.Since(began), limit)
			}
			if len(w.unconfirmed) > maxMarks {
				t.Errorf("%d marks are kept, want at most %d", len(w.unconfirmed), maxMarks)
			}
		})
	}
}

// TestConfirmationsKeepTheFirstAndTheNewest checks that of many marks the first, the newest, and some in between can be confirmed.
func TestConfirmationsKeepTheFirstAndTheNewest(t *testing.T) {
	const marks = 10 * maxMarks
	var c confirmations
	for i := range marks {
		at := time.Unix(int64(i), 0)
		c.add(segment.Mark{Position: uint64(i), Interval: segment.Interval{NotBefore: at, NotAfter: at}})
	}
	if len(c) > maxMarks {
		t.Errorf("%d marks are kept, want at most %d", len(c), maxMarks)
	}
	for _, test := range []struct{ position, atLeast int }{{0, 0}, {marks - maxMarks, marks - 2*maxMarks}, {marks - 1, marks - 1}} {
		at, ok := c.upTo(uint64(test.position))
		if !ok || at.Unix() < int64(test.atLeast) || at.Unix() > int64(test.position) {
			t.Errorf("up to position %d: %d s (%v), want at least %d s", test.position, at.Unix(), ok, test.atLeast)
		}
	}
}

// TestResumedWatchMayBeAnotherHistory checks that the history after a gap is not assumed to be the same when a watch is resumed: the cluster may have been
// restored in place.
func TestResumedWatchMayBeAnotherHistory(t *testing.T) {
	w := workOf(t, spool{})
	w.source, w.hasTaken, w.sourceErr = slowSource{}, true, errors.New("the connection broke")
	w.queue = []queued{{}}
	w.resumeSource(t.Context())
	_, gap, same := w.positionAfterGap(&watch.GapError{From: 101, To: 200})
	if !gap || same {
		t.Errorf("behind a gap: gap %v, the same history %v", gap, same)
	}
}

// gapSource is a source that continues at any position.
type gapSource struct{ fakeSource }

func (gapSource) skipTo(context.Context, uint64) error { return nil }
func (gapSource) headroom() Headroom                   { return Headroom{} }

// TestAGapIsReportedUntilThereIsABackup checks that the status has the reason of a gap at once, although no segment names it yet, and
// until there is a backup after it.
func TestAGapIsReportedUntilThereIsABackup(t *testing.T) {
	w := workOf(t, spool{})
	w.source = gapSource{}
	taken := make(chan error)
	w.config.Snapshot = func(context.Context, string) error { return <-taken }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := w.continueAfterGap(ctx, &breach{why: "the cluster has compacted the revisions 57 to 58", from: 59})
	if err != nil {
		t.Fatal(err)
	}
	w.publishStatus()
	s := w.board.status
	if s.GapReason != "the cluster has compacted the revisions 57 to 58" || s.Gaps != 1 || s.LastGap.IsZero() {
		t.Errorf("while there is no backup: %+v", s)
	}
	cancel() // watchHistory ends at once
	taken <- nil
	w.snapshots.Wait()
	w.publishStatus()
	s = w.board.status
	if s.GapReason != "" || s.Gaps != 1 {
		t.Errorf("after the backup: %+v", s)
	}
}

// writtenSource is a source whose cluster has made its first revision, 101, at began, and one more after each pause.
type writtenSource struct {
	silentSource
	began time.Time
	pause time.Duration
	taken uint64
}

// at returns when a revision was made.
func (s *writtenSource) at(revision uint64) time.Time {
	return s.began.Add(time.Duration(revision-101) * s.pause)
}

func (s *writtenSource) take(context.Context, int) (segment.Batch, error) {
	next := max(s.taken, 100) + 1
	if s.at(next).After(time.Now()) {
		return segment.Batch{}, nil
	}
	s.taken = next
	return batchOf(next, 1), nil
}

// memberDelay is the time in which a member answers.
const memberDelay = 3 * time.Millisecond

// mark returns a mark at the last revision that was taken: a mark is requested after that.
func (s *writtenSource) mark(context.Context) (segment.Mark, error) {
	time.Sleep(memberDelay)
	now, at := time.Now(), max(s.taken, 100)
	return segment.Mark{Position: at, Revision: int64(at), Interval: segment.Interval{NotBefore: now, NotAfter: now}}, nil
}

func (s *writtenSource) listen(context.Context) (bool, error) { return false, nil }
func (s *writtenSource) hold() error                          { return nil }
func (s *writtenSource) waiting() <-chan struct{}             { return nil }
func (s *writtenSource) release(uint64)                       {}
func (s *writtenSource) headroom() Headroom                   { return Headroom{} }

// TestNoRequestWaitsLongerThanFlush checks that each request is cut into a segment about Config.Flush after it was made at the latest, whenever
// that was, that there are no more segments than that needs, and that each has a mark.
func TestNoRequestWaitsLongerThanFlush(t *testing.T) {
	const lasts = 10 * time.Minute
	_, err := seal.Bytes(nil, seal.Recipients{}) // the first call makes channels, which must not belong to a bubble
	if err != nil {
		t.Fatal(err)
	}
	for _, pause := range []time.Duration{7 * time.Millisecond, 333 * time.Millisecond, 1700 * time.Millisecond, 61 * time.Second} {
		for _, flush := range []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := workOf(t, spool{})
				from := &writtenSource{began: time.Now().Add(123 * time.Millisecond), pause: pause}
				w.source, w.config.Flush, w.config.SegmentSize, w.emptiedAt = from, flush, 1<<20, time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				err := w.follow(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				lineages, err := w.to.Log().Load(t.Context(), log.LoadOptions{Details: true})
				if err != nil {
					t.Fatal(err)
				}
				segments := lineages[0].Segments
				for _, s := range segments[:len(segments)-1] { // the end of ctx cuts the last one
					waited := s.Written.Sub(from.at(s.First))
					if waited > flush+3*memberDelay {
						t.Errorf("with --flush %s, revision %d waited for %s", flush, s.First, waited)
					}
					if len(s.Marks) == 0 {
						t.Errorf("with --flush %s, the segment from revision %d on has no mark", flush, s.First)
					}
				}
				last := segments[len(segments)-1]
				most := min(int(last.Last-100), int(lasts/flush)+1)
				if len(segments) > most {
					t.Errorf("with --flush %s, there are %d segments, want at most %d", flush, len(segments), most)
				}
			})
		}
	}
}

// TestNextLook checks that a standby looks again soon after a lease can have ended, and less often at the lease of an idle agent.
func TestNextLook(t *testing.T) {
	now := time.Now()
	a := &archiver{config: Config{Lease: 30 * time.Second}}
	for left, want := range map[time.Duration]time.Duration{
		-time.Hour: 10 * time.Second, 0: 10 * time.Second, 30 * time.Second: 10 * time.Second,
		31 * time.Second: 10 * time.Second, // of a busy agent, by a clock that is one second ahead
		50 * time.Second: 20 * time.Second, 2 * time.Minute: 30 * time.Second,
	} {
		got := a.nextLook(now.Add(left), now).Sub(now)
		if got != want {
			t.Errorf("at a lease that lasts %s it looks again in %s, want %s", left, got, want)
		}
	}
}

// TestIndexFails checks that an agent whose headers cannot be indexed, here because they are not consecutive, warns once, and does not keep
// all of them.
func TestIndexFails(t *testing.T) {
	one := catalog.SegmentOf(stored.NewWriter(t, "prod", stored.LineageID(1)).Next()) // by an encoder that is in no bubble
	synctest.Test(t, func(t *testing.T) {
		w, warnings := workOf(t, spool{}), 0
		w.config.Report = func(storage.Event) { warnings++ }
		for range 2 * mostUnindexed {
			w.unindexed = append(w.unindexed, one)
			err := w.index(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if warnings != 1 || len(w.unindexed) > mostUnindexed {
			t.Errorf("%d warnings, %d headers are kept", warnings, len(w.unindexed))
		}
	})
}

// TestAnotherIndexExists checks that an agent whose index begins like one of another agent, which is shorter, stores one that begins later.
func TestAnotherIndexExists(t *testing.T) {
	all := stored.NewWriter(t, "prod", stored.LineageID(1)).Some(indexSegments + 60) // by an encoder that is in no bubble
	synctest.Test(t, func(t *testing.T) {
		w := workOf(t, spool{})
		w.to = stored.OpenCluster(t, mem.New(), "prod")
		stored.StoreIndex(t, w.to, stored.SegmentsOf(all[:2]))
		for _, e := range all {
			stored.StoreSegments(t, w.to, e)
			w.unindexed = append(w.unindexed, catalog.SegmentOf(e))
			err := w.index(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		tail, err := w.to.Log().Tail(t.Context())
		if err != nil || len(tail.Unindexed) > 60 {
			t.Errorf("%d segments are in no index, %v", len(tail.Unindexed), err)
		}
	})
}

// TestReadersReadFewHeaders checks that a reader of a log opens at most recentSegments segments, and one object for each index.
func TestReadersReadFewHeaders(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	w, writer := workOf(t, spool{}), stored.NewWriter(t, "prod", stored.LineageID(1))
	w.to = stored.OpenCluster(t, b, "prod")
	for n := 1; n <= indexSegments+200; n++ {
		e := writer.Next(func(h *segment.Header) { h.Written = time.Now() })
		stored.StoreSegments(t, w.to, e)
		w.unindexed = append(w.unindexed, catalog.SegmentOf(e))
		err := w.index(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n%89 != 0 {
			continue
		}
		before := b.Calls(storagetest.VerbOpen)
		lineages := stored.LoadLog(t, stored.OpenCluster(t, b, "prod"), 1)
		opened := b.Calls(storagetest.VerbOpen) - before
		if len(lineages[0].Segments) != n || opened > recentSegments+2 {
			t.Errorf("of %d segments, %d are loaded with %d objects", n, len(lineages[0].Segments), opened)
		}
	}
}
