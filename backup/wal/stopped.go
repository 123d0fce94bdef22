package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Stopped is the log of a member that does not run any more, and whose disk may be all that is left of it. It is read
// once, to its end: all of raft's log as it stood last, what is known to be committed and what came behind.
type Stopped struct {
	log    *Log
	damage error
	torn   bool
}

// Entry is one entry of a raft log or, where entries are missing, all that are missing up to Position.
type Entry struct {
	Position, Term uint64 // the term is 0 where it is not known
	Kind           raftpb.EntryType
	Data           []byte
	Request        bool // it changes the database
	Committed      bool // for sure; else it may have been, and nobody had told this member's disk
	Missing        bool
}

// End is the place right behind e.
func (e Entry) End() segment.End {
	return item{index: e.Position, term: e.Term, data: e.Data}.end()
}

// OpenStopped opens the log of the member whose data dir is dir, without a lock. It begins with the file in which the
// entry behind after was first written, so that damage before it does not matter; with 0 it begins where the log does.
func OpenStopped(dir string, after uint64) (*Stopped, error) {
	l := &Log{dir: filepath.Join(dir, "member", "wal"), next: 1, anywhere: true, started: true}
	l.history.loose = true
	if err := l.Hold(); err != nil {
		return nil, err
	}
	var err error
	for i := len(l.files) - 1; i >= 0; i-- { // the head of one file may be damaged
		if err = l.readIDs(l.files[i]); err == nil {
			break
		}
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.letGo(after)
	return &Stopped{log: l}, nil
}

// IDs are those of the cluster and of the member whose log it is.
func (s *Stopped) IDs() (cluster, member uint64) { return s.log.IDs() }

// Close lets go of all files.
func (s *Stopped) Close() error { return s.log.Close() }

// Damage says why Entries ended before the log did, nil if it did not. It is for when Entries is done.
func (s *Stopped) Damage() error { return s.damage }

// Torn says that the last record is half written, as a crash leaves it: nobody was ever told that it was kept.
func (s *Stopped) Torn() bool { return s.torn }

// Entries yields the log in order, up to its end or to where it cannot be read. An error ends it that is no damage of the
// log. Memory is bounded by what is not known to be committed.
func (s *Stopped) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for more := true; more && s.damage == nil; {
			var err error
			if more, err = s.log.Read(); errors.Is(err, storage.ErrDamaged) || errors.Is(err, ErrForked) {
				s.damage, err = err, nil // what was read before it is good
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				yield(Entry{}, err)
				return
			}
			if !s.give(yield, true) {
				return
			}
		}
		if s.damage == nil {
			s.torn, s.damage = s.log.behind()
		}
		s.log.history.commit = s.log.history.last().index
		s.give(yield, false)
	}
}

// give yields what counts as committed. An entry that this version does not know ends it: nothing may follow.
func (s *Stopped) give(yield func(Entry, error) bool, committed bool) bool {
	h := &s.log.history
	for h.ready() {
		it := h.pop()
		e := Entry{Position: it.index, Term: it.term, Kind: it.kind, Data: it.data, Committed: committed, Missing: it.missing}
		if !it.missing {
			var err error
			if e.Request, err = classify(it); err != nil {
				s.damage = err
				return false
			}
		}
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// behind looks at what follows the last record that could be read. A member that runs may be about to finish it; of one
// that does not run it tells whether the log ends there. etcd fills its files with zeros in advance, and cuts what was torn
// off when it starts, so what follows the end is zeros, or one record that lacks what the disk had not written yet. Anything
// else had been written, perhaps told to clients, and is gone.
func (l *Log) behind() (torn bool, err error) {
	f := l.files[len(l.files)-1]
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read the log of an etcd member: %w", err)
	}
	end, record := f.offset, int64(0)
	if r, ok := f.frame(); ok {
		end, torn = f.offset+8+r.size, r.torn
		record = r.size
	}
	if record == 0 {
		end, torn = f.offset, false
	}
	zero, err := onlyZeros(io.NewSectionReader(f.File, end, info.Size()-end))
	switch {
	case err != nil:
		return false, f.damaged(f.offset, err)
	case zero && (torn || record == 0):
		return torn, nil
	}
	return false, f.damaged(f.offset, errors.New("what follows cannot be read"))
}

// onlyZeros reads r to its end.
func onlyZeros(r io.Reader) (bool, error) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := r.Read(buffer)
		for _, b := range buffer[:n] {
			if b != 0 {
				return false, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}
