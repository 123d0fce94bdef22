package restore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Replayed describes the replay of a log onto a backup, or onto a disk's database.
type Replayed struct {
	Lineage  string         `json:"lineage,omitempty"` // absent if no request came from an archive
	Source   segment.Source `json:"source"`
	Segments int            `json:"segments"`
	Requests int            `json:"requests"` // that the backup did not contain; from watch: revisions
	Position uint64         `json:"position"` // of the last one
	From     int64          `json:"from"`     // revision of the key space in the backup
	To       int64          `json:"to"`       // of the key space after the replay
	// Proven describes how the replay was compared with the member's own revisions and hashes.
	Proven string `json:"proven"`
	// Unseen describes the state that the log does not contain; "": it contains everything.
	Unseen string `json:"unseen,omitempty"`
	// GuessedLeases is the number of leases in these segments whose time to live the agent guessed.
	GuessedLeases int `json:"guessedLeases,omitempty"`
}

// replay brings the database from the backup's point to the target's.
func (r *run) replay(ctx context.Context) error { return r.replayWatched(ctx, nil) }

// replayWatched is like replay, and passes the changes of the watched keys to w; nil: no keys are watched.
func (r *run) replayWatched(ctx context.Context, w *replay.Watch) error {
	log := plan.Log{Source: segment.WAL} // the source of a disk's log
	var segments iter.Seq2[catalog.Segment, error] = noSegments
	if r.plan.Log != nil {
		var err error
		log = *r.plan.Log
		segments, err = r.segments(ctx, log)
		if err != nil {
			return err
		}
	}
	stop := replay.Stop{Revision: log.Revision, Position: log.Position}
	r.disk = r.fromDisk(&stop)
	records := oneAfterTheOther(r.records(ctx, segments), r.disk.records(ctx))
	at, err := replay.Apply(ctx, r.db, replay.Log{Source: log.Source, Records: records}, replay.Options{Stop: stop, Watch: w, Report: r.report})
	if err != nil {
		return r.explain(err)
	}
	if stop.Revision > 0 && at.Revision != stop.Revision {
		return &ObstacleError{plan.Obstacle{Ended: at.Revision},
			fmt.Errorf("revision %d is %w: the log ends at revision %d: make a new plan", stop.Revision, catalog.ErrNotFound, at.Revision)}
	}
	r.result.Replayed = &Replayed{
		Lineage: log.Lineage, Source: log.Source, Segments: log.Segments, Requests: at.Requests, Position: at.Position,
		From: r.facts.revision, To: at.Revision, Proven: provenText(at),
		Unseen: plan.UnseenBy(log.Source), GuessedLeases: at.GuessedLeases + r.guessedLeases,
	}
	return r.rereadFacts(at)
}

// noSegments yields nothing.
func noSegments(func(catalog.Segment, error) bool) {}

// oneAfterTheOther yields the records of each sequence in turn, up to the first error.
func oneAfterTheOther(all ...iter.Seq2[segment.Record, error]) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		for _, records := range all {
			for record, err := range records {
				if !yield(record, err) || err != nil {
					return
				}
			}
		}
	}
}

// rereadFacts reads the facts that the replay has changed.
func (r *run) rereadFacts(at replay.At) error {
	db, err := bolt.Open(r.db, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open the database after the replay: %w", err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		r.facts, err = readFacts(tx)
		return err
	})
	r.facts.revision, r.facts.keys, r.facts.kubernetes = at.Revision, at.Keys, at.Kubernetes
	r.result.Revision, r.result.Keys = at.Revision, at.Keys
	return errors.Join(err, r.checkRaised(at))
}

// checkRaised refuses a log that raised the alarm CORRUPT, unless the plan allows it. With an older backup the same log would raise it
// again, so the obstacle is the rest of the log.
func (r *run) checkRaised(at replay.At) error {
	if at.CorruptAt == 0 || r.plan.AllowCorrupt {
		return nil
	}
	return &ObstacleError{plan.Obstacle{Marked: at.CorruptAt - 1, Reached: at.CorruptRevision},
		fmt.Errorf("%w: the log raises the alarm CORRUPT at position %d: restore the state before it with --to-revision %d, or pass --allow-corrupt",
			fault.Refused, at.CorruptAt, at.CorruptRevision)}
}

// provenText returns the description for Replayed.Proven.
func provenText(at replay.At) string {
	switch {
	case at.Proven > 0:
		return fmt.Sprintf("key space proven at revision %d", at.Proven)
	case at.Marked > 0:
		return fmt.Sprintf("the revision equals the member's at position %d; the log contains no hash", at.Marked)
	}
	return "not compared: the log contains neither a revision nor a hash of the member"
}

// segments returns the plan's segments. It first compares the last segment with the plan: the log may have changed since the plan was
// made.
func (r *run) segments(ctx context.Context, log plan.Log) (iter.Seq2[catalog.Segment, error], error) {
	lineage, err := r.cluster.Log().LoadRange(ctx, log.Lineage, log.First, log.Last)
	if err != nil {
		return nil, err
	}
	for _, s := range lineage.Stretches() {
		if log.First < s.Segments[0].FirstSeq() || log.Last > s.Segments[len(s.Segments)-1].Seq {
			continue
		}
		for last, err := range r.cluster.Log().Unfolded(ctx, s.Segments, log.Last, log.Last) {
			if err == nil && last.Digest != log.Digest {
				err = fmt.Errorf("%w: segment %d of lineage %s has changed since the plan was made: make a new plan", plan.ErrLayout, log.Last, log.Lineage)
			}
			if err != nil {
				return nil, err
			}
		}
		return r.cluster.Log().Unfolded(ctx, s.Segments, log.First, log.Last), nil
	}
	return nil, &ObstacleError{
		plan.Obstacle{Segment: firstFault(lineage, log)},
		fmt.Errorf("segments %d to %d of lineage %s: %w: the log has a gap there since the plan was made: make a new plan", log.First, log.Last, log.Lineage, catalog.ErrNotFound),
	}
}

// firstFault returns the first faulty segment of l that log needs; the first segment of log if l has no such fault.
func firstFault(l catalog.Lineage, log plan.Log) uint64 {
	for _, f := range l.Faults {
		if f.Upto >= log.First && f.Seq <= log.Last {
			return max(f.Seq, log.First)
		}
	}
	return log.First
}

// Segments are fetched and unsealed ahead of the replay, many small ones at a time, because each takes a round trip to the store. At most
// two large ones are in memory: the one that is replayed, and the next.
const (
	segmentsAhead = 16
	bytesHeld     = 32 << 20 // bytes of all these, where a segment counts as 2 MiB at least and 16 MiB at most
)

// records yields the records of the segments in order. It yields a segment's records only after it has checked the whole segment.
func (r *run) records(ctx context.Context, segments iter.Seq2[catalog.Segment, error]) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		queue := r.fetchAhead(ctx, segments)
		defer func() { // waits for all fetches to end
			cancel()
			for waiting := range queue {
				<-waiting
			}
		}()
		for waiting := range queue {
			fetched := <-waiting
			if fetched.err != nil {
				yield(segment.Record{}, fetched.err)
				return
			}
			r.guessedLeases += fetched.guessedLeases
			for _, record := range fetched.records {
				if !yield(record, nil) {
					return
				}
			}
			fetched.release()
		}
	}
}

type fetched struct {
	records       []segment.Record
	guessedLeases int // leases of the segment whose time to live the agent guessed
	err           error
	release       func() // to be called when the records are no longer needed, unless there is an error
}

// fetchAhead fetches segments ahead, and returns a queue of their results in order. It closes the queue after the last one.
func (r *run) fetchAhead(ctx context.Context, segments iter.Seq2[catalog.Segment, error]) <-chan chan fetched {
	queue := make(chan chan fetched, segmentsAhead)
	held := semaphore.NewWeighted(bytesHeld)
	go func() {
		defer close(queue)
		for s, err := range segments {
			one := make(chan fetched, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			if err != nil {
				one <- fetched{err: err}
				return
			}
			size := min(max(s.Plain.Size, bytesHeld/segmentsAhead), bytesHeld/2)
			err = held.Acquire(ctx, size)
			if err != nil {
				one <- fetched{err: err}
				return
			}
			go func() {
				records, err := r.fetchSegment(ctx, s)
				one <- fetched{records, s.GuessedLeases, err, func() { held.Release(size) }}
			}()
		}
	}()
	return queue
}

// maxArena bounds the buffer that is allocated for the size in a segment's header, which is not verified yet. The buffer grows if the
// segment is longer.
const maxArena = 64 << 20

// maxRecords bounds the records for which memory is allocated by the number in a segment's header, which is not verified yet. The
// slice grows if the segment has more.
const maxRecords = 1 << 16

// fetchSegment returns all records of one segment.
func (r *run) fetchSegment(ctx context.Context, s catalog.Segment) ([]segment.Record, error) {
	opened, err := r.cluster.Log().OpenSegment(ctx, s, r.keys)
	if err != nil {
		return nil, badSegment(s, err)
	}
	defer opened.Close()
	records := make([]segment.Record, 0, min(s.Requests, maxRecords)+len(s.Marks)+len(s.Hashes)+1)
	arena := make([]byte, 0, min(s.Plain.Size, maxArena))
	for record, err := range opened.Records() {
		if err != nil {
			return nil, badSegment(s, err)
		}
		start := len(arena)
		arena = append(arena, record.Data...)
		record.Data = arena[start:len(arena):len(arena)]
		records = append(records, record)
	}
	return records, nil
}

// badSegment returns an ObstacleError for a segment that is damaged or missing; err itself for an unreachable store.
func badSegment(s catalog.Segment, err error) error {
	if errors.Is(err, storage.ErrDamaged) || errors.Is(err, catalog.ErrNotFound) {
		return &ObstacleError{plan.Obstacle{Segment: s.Seq}, err}
	}
	return err
}

// explain returns an error of the replay that another way may avoid as an ObstacleError. It returns any other error without an obstacle.
func (r *run) explain(err error) error {
	m, ok := errors.AsType[*replay.MismatchError](err)
	if ok {
		return &ObstacleError{plan.Obstacle{Marked: m.Last.Position, Base: m.Last.Marked == 0}, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)}
	}
	bad, ok := errors.AsType[*replay.RecordError](err)
	if ok {
		return &ObstacleError{plan.Obstacle{Marked: bad.After, Reached: bad.Revision}, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)}
	}
	if errors.Is(err, salvage.ErrChanged) {
		return fmt.Errorf("%w: %w: make a new plan", fault.Refused, err)
	}
	if errors.Is(err, replay.ErrForeign) || errors.Is(err, replay.ErrPast) || errors.Is(err, salvage.ErrForeign) {
		return &ObstacleError{plan.Obstacle{Base: true}, fmt.Errorf("%s: %w: %w", r.name(), catalog.ErrDamaged, err)}
	}
	return err
}

// CheckSegment returns an error if a replay could not apply the records of s. It finds only the faults that show without a database. The
// error matches catalog.ErrDamaged, or is the error of the records.
func CheckSegment(ctx context.Context, s catalog.Segment, records iter.Seq2[segment.Record, error]) error {
	err := replay.Check(ctx, replay.Log{Source: s.Source, Records: records})
	bad, ok := errors.AsType[*replay.RecordError](err)
	if ok {
		return fmt.Errorf("%w: the log can be replayed only up to position %d: %w", catalog.ErrDamaged, bad.After, err)
	}
	return err
}
