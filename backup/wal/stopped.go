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

// Stopped reads the log of a stopped member once, to its end. It yields each entry in its last version: first the entries
// known to be committed, then those after them, because this disk may be the only one left.
type Stopped struct {
	log    *Log
	damage error // returned by Damage
	torn   bool  // returned by Torn
}

// Entry is one entry of a raft log, or a run of missing entries up to Position.
type Entry struct {
	Position, Term uint64 // Term is 0 if unknown
	Kind           raftpb.EntryType
	Data           []byte
	Request        bool  // it changes the database
	Unusable       error // why a replay refuses the request; nil: it does not
	Committed      bool  // known to be committed; if false, the entry may be committed, but this disk does not prove it
	Missing        bool  // e is a run of missing entries
}

// End identifies e as the last entry of a history.
func (e Entry) End() segment.End {
	return item{index: e.Position, term: e.Term, data: e.Data}.end()
}

// OpenStopped opens the log of the member with the data dir dir, without a lock. It skips the files that are not needed
// for the entries from index after on, so that damage in them does not matter; 0 skips none.
func OpenStopped(dir string, after uint64) (*Stopped, error) {
	l := &Log{dir: filepath.Join(dir, "member", "wal"), next: 1, anywhere: true, started: true}
	l.history.loose = true
	err := l.Hold()
	if err != nil {
		return nil, err
	}
	for i := len(l.files) - 1; i >= 0; i-- { // any file will do, and the head of one may be damaged
		err = l.readIDs(l.files[i])
		if err == nil {
			break
		}
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.closeBefore(after)
	return &Stopped{log: l}, nil
}

// IDs returns the cluster's and the member's id.
func (s *Stopped) IDs() (cluster, member uint64) { return s.log.IDs() }

// Close closes all files.
func (s *Stopped) Close() error { return s.log.Close() }

// Damage returns why Entries ended before the end of the log, or nil. It is valid once Entries has ended.
func (s *Stopped) Damage() error { return s.damage }

// Torn reports whether the last record is incomplete, as after a crash: its write was never acknowledged.
func (s *Stopped) Torn() bool { return s.torn }

// Entries yields the log in order, up to its end or to the first damage, which Damage returns. Any other error is
// yielded and ends the sequence. Memory holds only the entries that are not yet known to be committed.
func (s *Stopped) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for more := true; more && s.damage == nil; {
			var err error
			more, err = s.log.Read()
			if errors.Is(err, storage.ErrDamaged) || errors.Is(err, ErrForked) {
				s.damage, err = err, nil // the entries before it are good
			}
			err = errors.Join(err, ctx.Err())
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !s.yieldReady(yield, true) {
				return
			}
		}
		if s.damage == nil {
			s.torn, s.damage = s.log.checkTail()
		}
		s.log.history.commit = s.log.history.last().index
		s.yieldReady(yield, false)
	}
}

// yieldReady yields the entries up to the commit index. It returns false if yield does, or at an entry of an unknown kind,
// which it records as damage: no later entry may be used.
func (s *Stopped) yieldReady(yield func(Entry, error) bool, committed bool) bool {
	h := &s.log.history
	for h.ready() {
		it := h.pop()
		e := Entry{Position: it.index, Term: it.term, Kind: it.kind, Data: it.data, Committed: committed, Missing: it.missing}
		if !it.missing {
			var err error
			e.Request, e.Unusable, err = classify(it)
			if err != nil {
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

// checkTail checks the bytes after the last readable record, to find out whether the log ends there. A running member
// may be about to finish a record, but a stopped one is not. etcd fills its files with zeros in advance, and removes a
// torn record when it starts. So in an intact log only zeros follow, or one record that lacks sectors and then zeros.
// Any other bytes are lost entries, which may have been acknowledged to clients.
func (l *Log) checkTail() (torn bool, err error) {
	f := l.files[len(l.files)-1]
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read the log of an etcd member: %w", err)
	}
	end, size := f.offset, int64(0) // of the record after the last readable one; size 0: there is none
	r, ok := f.frame()
	if ok {
		end, torn = f.offset+8+r.size, r.torn
		size = r.size
	}
	if size == 0 {
		end, torn = f.offset, false
	}
	zero, err := onlyZeros(io.NewSectionReader(f.File, end, info.Size()-end))
	switch {
	case err != nil:
		return false, f.damaged(f.offset, err)
	case zero && (torn || size == 0):
		return torn, nil
	}
	return false, f.damaged(f.offset, errors.New("unreadable bytes follow the last record: they may be entries that are lost"))
}

// onlyZeros reads r to its end and reports whether all bytes are zero.
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
