package restore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Replayed is what the log added to a backup, or to a disk's database.
type Replayed struct {
	Lineage  string         `json:"lineage,omitempty"` // absent if nothing of it came from an archive
	Source   segment.Source `json:"source"`
	Segments int            `json:"segments"`
	Requests int            `json:"requests"` // that the backup did not hold; from watch: revisions
	Position uint64         `json:"position"` // of the last one
	From     int64          `json:"from"`     // revision of the key space in the backup
	To       int64          `json:"to"`       // and after the replay
	// Proven says how the replay was compared with what the member had said of itself, in words.
	Proven string `json:"proven"`
	// Unseen says what the log's source does not see, in words; "" if it sees everything.
	Unseen string `json:"unseen,omitempty"`
	// GuessedLeases is how many leases of these segments have a time to live that nobody knew.
	GuessedLeases int `json:"guessedLeases,omitempty"`
}

// replay brings the database from the backup's point to the target's.
func (r *run) replay(ctx context.Context) error { return r.replayWatched(ctx, nil) }

// replayWatched is replay with somebody who watches, or nobody.
func (r *run) replayWatched(ctx context.Context, w *replay.Watch) error {
	log := plan.Log{Source: segment.WAL} // as a disk's is
	var segments iter.Seq2[catalog.Segment, error] = noSegments
	if r.plan.Log != nil {
		var err error
		log = *r.plan.Log
		if segments, err = r.segments(ctx, log); err != nil {
			return err
		}
	}
	stop := replay.Stop{Revision: log.Revision, Position: log.Position}
	r.disk = r.fromDisk(&stop)
	records := oneAfterTheOther(r.records(ctx, segments), r.disk.records(ctx))
	at, err := replay.ApplyWatched(ctx, r.db, replay.Log{Source: log.Source, Records: records}, stop, w, r.report)
	if err != nil {
		return r.explain(err)
	}
	if stop.Revision > 0 && at.Revision != stop.Revision {
		return &ObstacleError{plan.Obstacle{Ended: at.Revision},
			fmt.Errorf("revision %d is %w: the log ends at revision %d: make the plan anew", stop.Revision, catalog.ErrNotFound, at.Revision)}
	}
	r.result.Replayed = &Replayed{
		Lineage: log.Lineage, Source: log.Source, Segments: log.Segments, Requests: at.Requests, Position: at.Position,
		From: r.facts.revision, To: at.Revision, Proven: provenText(at),
		Unseen: plan.UnseenBy(log.Source), GuessedLeases: at.GuessedLeases + r.guessedLeases,
	}
	return r.lookAgain(at)
}

func noSegments(func(catalog.Segment, error) bool) {}

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

// lookAgain takes up what the replay has changed.
func (r *run) lookAgain(at replay.At) error {
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
	return errors.Join(err, r.checkAlarms())
}

func provenText(at replay.At) string {
	switch {
	case at.Proven > 0:
		return fmt.Sprintf("key space proven at revision %d", at.Proven)
	case at.Marked > 0:
		return fmt.Sprintf("the revision is the member's at position %d; it was asked for no hash on the way", at.Marked)
	}
	return "not compared: the member said nothing of itself on the way"
}

// segments yields the plan's, and holds the last one against it first: a log that has changed since is another plan's.
func (r *run) segments(ctx context.Context, log plan.Log) (iter.Seq2[catalog.Segment, error], error) {
	lineage, err := r.cluster.Log().LoadLineage(ctx, log.Lineage)
	if err != nil {
		return nil, err
	}
	for _, s := range lineage.Stretches() {
		if log.First < s.Segments[0].FirstSeq() || log.Last > s.Segments[len(s.Segments)-1].Seq {
			continue
		}
		for last, err := range r.cluster.Log().Unfolded(ctx, s.Segments, log.Last, log.Last) {
			if err == nil && last.Digest != log.Digest {
				err = fmt.Errorf("%w: segment %d of lineage %s is another one by now: make the plan anew", plan.ErrLayout, log.Last, log.Lineage)
			}
			if err != nil {
				return nil, err
			}
		}
		return r.cluster.Log().Unfolded(ctx, s.Segments, log.First, log.Last), nil
	}
	return nil, &ObstacleError{
		plan.Obstacle{Segment: firstFault(lineage, log)},
		fmt.Errorf("segments %d to %d of lineage %s are %w without a gap any more: make the plan anew", log.First, log.Last, log.Lineage, catalog.ErrNotFound),
	}
}

func firstFault(l catalog.Lineage, log plan.Log) uint64 {
	for _, f := range l.Faults {
		if f.Upto >= log.First && f.Seq <= log.Last {
			return max(f.Seq, log.First)
		}
	}
	return log.First
}

// How many segments are fetched and unsealed at a time, ahead of what is applied. Each is held in memory.
const segmentsAhead = 2

// records are those of the segments, one after the other. A segment's records come only after all of it has been
// checked.
func (r *run) records(ctx context.Context, segments iter.Seq2[catalog.Segment, error]) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		queue := r.fetchAhead(ctx, segments)
		defer func() { // until all that fetch have ended
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
		}
	}
}

type fetched struct {
	records       []segment.Record
	guessedLeases int // that the segment's writer had to guess
	err           error
}

// fetchAhead yields the segments in order while later ones are on their way. The queue is closed when all have ended.
func (r *run) fetchAhead(ctx context.Context, segments iter.Seq2[catalog.Segment, error]) <-chan chan fetched {
	queue := make(chan chan fetched, segmentsAhead-1)
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
			go func() {
				records, err := r.fetchSegment(ctx, s)
				one <- fetched{records, s.GuessedLeases, err}
			}()
		}
	}()
	return queue
}

// maxArena bounds what is taken on a header's word; a longer segment takes more as it comes.
const maxArena = 64 << 20

// fetchSegment reads one segment to its end.
func (r *run) fetchSegment(ctx context.Context, s catalog.Segment) ([]segment.Record, error) {
	opened, err := r.cluster.Log().OpenSegment(ctx, s, r.keys)
	if err != nil {
		return nil, badSegment(s, err)
	}
	defer opened.Close()
	records := make([]segment.Record, 0, s.Requests+len(s.Marks)+len(s.Hashes)+1)
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

// badSegment tells a segment that cannot be used from a store that cannot be reached.
func badSegment(s catalog.Segment, err error) error {
	if errors.Is(err, storage.ErrDamaged) || errors.Is(err, catalog.ErrNotFound) {
		return &ObstacleError{plan.Obstacle{Segment: s.Seq}, err}
	}
	return err
}

// explain makes an obstacle of what stands in the way of a target.
func (r *run) explain(err error) error {
	if m, ok := errors.AsType[*replay.MismatchError](err); ok {
		return &ObstacleError{plan.Obstacle{Marked: m.Last.Position, Base: m.Last.Marked == 0}, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)}
	}
	if bad, ok := errors.AsType[*replay.RecordError](err); ok {
		return &ObstacleError{plan.Obstacle{Marked: bad.After, Reached: bad.Revision}, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)}
	}
	if errors.Is(err, salvage.ErrChanged) {
		return fmt.Errorf("%w: %w: make the plan anew", fault.Refused, err)
	}
	if errors.Is(err, replay.ErrForeign) || errors.Is(err, replay.ErrPast) || errors.Is(err, salvage.ErrForeign) {
		return &ObstacleError{plan.Obstacle{Base: true}, fmt.Errorf("%s: %w: %w", r.name(), catalog.ErrDamaged, err)}
	}
	return err
}

// CheckSegment reports whether a replay could apply the records of s, as far as that shows without a database. An error matches
// repository.ErrDamaged, or is that of the records.
func CheckSegment(ctx context.Context, s catalog.Segment, records iter.Seq2[segment.Record, error]) error {
	err := replay.Check(ctx, replay.Log{Source: s.Source, Records: records})
	if bad, ok := errors.AsType[*replay.RecordError](err); ok {
		return fmt.Errorf("%w: the log can be replayed up to position %d and no further: %w", catalog.ErrDamaged, bad.After, err)
	}
	return err
}
