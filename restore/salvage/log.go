package salvage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// readLog reads the log of a data dir to its end. If the log is damaged, readLog also reads it from the position of each intact
// database, and returns the reading that ends at the highest position.
func readLog(ctx context.Context, dir string, databases []disk.Database, ends map[uint64]bool) (l disk.Log, cluster, member uint64, err error) {
	l, cluster, member, err = readLogFrom(ctx, dir, 0, ends)
	if err != nil {
		return l, cluster, member, err
	}
	for _, d := range databases {
		if l.Damage == "" || d.Damage != "" {
			continue
		}
		later, c, m, err := readLogFrom(ctx, dir, d.Index, ends)
		if err != nil {
			return l, cluster, member, err
		}
		if later.Last.Position > l.Last.Position {
			later.Damage = cmp.Or(later.Damage, l.Damage)
			l, cluster, member = later, c, m
		}
	}
	return l, cluster, member, nil
}

// readLogFrom reads the log from the file that has the entry after the position after; 0: from the oldest file. cluster and member
// are the ids in the log; 0: unknown.
func readLogFrom(ctx context.Context, dir string, after uint64, ends map[uint64]bool) (l disk.Log, cluster, member uint64, err error) {
	s, err := wal.OpenStopped(dir, after)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrDamaged) {
		return disk.Log{Damage: err.Error()}, 0, 0, nil
	}
	if err != nil {
		return disk.Log{}, 0, 0, err
	}
	defer s.Close()
	l.Readable = true
	var last wal.Entry
	for e, err := range s.Entries(ctx) {
		if err != nil {
			return disk.Log{}, 0, 0, err
		}
		add(&l, e, ends)
		last = e
	}
	l.Last = (segment.End{Position: last.Position, Term: last.Term})
	if !last.Missing && last.Position > 0 {
		l.Last = last.End()
	}
	l.Torn = s.Torn()
	l.Whole = s.Damage() == nil
	if !l.Whole {
		l.Damage = s.Damage().Error()
	}
	cluster, member = s.IDs()
	return l, cluster, member, nil
}

// add adds an entry to l. It also adds the entry to l.Ends if its position is in ends.
func add(l *disk.Log, e wal.Entry, ends map[uint64]bool) {
	if e.Committed {
		l.Commit = e.Position
	}
	if e.Missing {
		l.First, l.Requests, l.Unusable, l.Ends = e.Position+1, nil, nil, nil
		l.Terms = []disk.Place{{Position: e.Position, Term: e.Term}}
		return
	}
	if l.First == 0 {
		l.First = e.Position
	}
	n := len(l.Terms)
	if n == 0 || l.Terms[n-1].Term != e.Term {
		l.Terms = append(l.Terms, disk.Place{Position: e.Position, Term: e.Term})
	}
	if e.Request {
		l.Requests = append(l.Requests, e.Position)
	}
	if e.Unusable != nil {
		l.Unusable = append(l.Unusable, disk.Unusable{Position: e.Position, Reason: e.Unusable.Error()})
	}
	if ends[e.Position] {
		l.Ends = append(l.Ends, e.End())
	}
	l.Changes = append(l.Changes, changes(e)...)
}

// changes returns the changes of the membership in an entry. etcd encodes one change in an entry, as ConfChange or
// ConfChangeV2.
func changes(e wal.Entry) (all []disk.Change) {
	var singles []*raftpb.ConfChangeSingle
	var one raftpb.ConfChange
	var many raftpb.ConfChangeV2
	switch {
	case e.Kind == raftpb.EntryConfChange && proto.Unmarshal(e.Data, &one) == nil:
		singles = []*raftpb.ConfChangeSingle{{Type: one.GetType().Enum(), NodeId: new(one.GetNodeId())}}
	case e.Kind == raftpb.EntryConfChangeV2 && proto.Unmarshal(e.Data, &many) == nil:
		singles = many.Changes
	}
	for _, c := range singles {
		if c.GetType() == raftpb.ConfChangeUpdateNode {
			continue
		}
		all = append(all, disk.Change{
			Position: e.Position, Member: types.ID(c.GetNodeId()).String(), Voter: c.GetType() == raftpb.ConfChangeAddNode,
		})
	}
	return all
}

var (
	// ErrChanged reports a disk that changed after the plan was made.
	ErrChanged = errors.New("the disk has changed since the plan was made")
	// ErrForeign reports a log that does not continue the data to which it should be applied.
	ErrForeign = errors.New("the log is of another history")
)

// Part is a part of a stopped member's log.
type Part struct {
	Dir   string
	After segment.End // the part begins after it; a Term of 0 or a Digest of "" is unknown and not compared
	UpTo  uint64      // the last position of the part
	End   segment.End // of the whole log when the plan was made
}

// Records yields the requests of a part, in order. It compares the end of the log with p.End last, so the caller must discard all
// requests if an error follows them. Errors match ErrChanged or ErrForeign, or come from the disk.
func (p Part) Records(ctx context.Context) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		s, err := wal.OpenStopped(p.Dir, p.After.Position)
		if errors.Is(err, storage.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %v", ErrChanged, err)
		}
		if err != nil {
			yield(segment.Record{}, err)
			return
		}
		defer s.Close()
		next := p.After.Position + 1
		var last wal.Entry
		for e, err := range s.Entries(ctx) {
			if err == nil {
				err = p.fits(e, next)
			}
			if err != nil {
				yield(segment.Record{}, err)
				return
			}
			last = e
			if e.Position < next {
				continue
			}
			next++
			record := segment.Record{Kind: segment.Request, Position: e.Position, Term: e.Term, Data: e.Data}
			if e.Request && e.Position <= p.UpTo && !yield(record, nil) {
				return
			}
		}
		if last.Missing || last.End() != p.End {
			yield(segment.Record{}, fmt.Errorf("%w: the log in %s ends at position %d, not at %d", ErrChanged, p.Dir, last.Position, p.End.Position))
		}
	}
}

// fits checks that an entry leaves no hole at the position next, and that the entry at p.After is the one that p.After describes.
func (p Part) fits(e wal.Entry, next uint64) error {
	after := p.After
	switch {
	case e.Missing && e.Position >= next, !e.Missing && e.Position > next:
		return fmt.Errorf("%w: the log in %s no longer has position %d", ErrChanged, p.Dir, next)
	case e.Position != after.Position || e.Term == 0:
		return nil
	case after.Term != 0 && e.Term != after.Term, after.Digest != "" && !e.Missing && e.End() != after:
		return fmt.Errorf("%w: position %d in %s is of term %d, and not what comes before it, of term %d",
			ErrForeign, e.Position, p.Dir, e.Term, after.Term)
	}
	return nil
}
