// Package wal reads the write-ahead log of an etcd member from its disk, read-only, while the member writes it.
//
//	member/wal/*.wal ── Read ──► entries held ── HardState, Confirm ──► committed ── Take ──► requests
//
// Such a log is a journal of edits to a raft log and not the log itself: entries are written that never get committed,
// are overwritten, and are replaced by a snapshot that came from another member. History says how it is read. Only
// entries that are known to be committed leave, in order and without a hole.
//
// No file is ever locked or written: etcd takes locks on its files when it starts, and would not start.
package wal

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Errors of a Log, to be matched with errors.Is. What was read is damaged where storage.ErrDamaged says so.
var (
	// ErrForked: what is in the log does not continue what was read or stored before. It is another history, for example
	// after etcd's --force-new-cluster or after a restore.
	ErrForked = errors.New("the member's log is another history")
	// ErrUnknown: a committed entry is no request that this version knows. It must not be left out.
	ErrUnknown = errors.New("entry of an unknown kind")
)

// GapError says that the positions From to To, both inclusive, are not to be had from this log: they were purged, or the
// member got them in a snapshot. To is From-1 if only the entry is missing that would prove that From continues what came
// before.
type GapError struct {
	From, To uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the member's log has not got the entries %d to %d: take them from another member's, or begin anew with a snapshot",
		e.From, e.To)
}

// Log is a member's log that is being read. Its methods are for one goroutine at a time.
type Log struct {
	dir     string
	files   []*file // in order, without those that are stored in full
	at      int     // the one that is being read
	started bool    // files that are not needed have been let go of
	crc     uint32  // of all records up to here; 0: not known
	read    int64   // bytes, in total
	looked  looked  // at the directory

	cluster, member uint64

	history  history
	told     word        // the newest of Confirm
	next     uint64      // the position to take next, or where that begins to be looked for
	anywhere bool        // the first position from next on that is held will do
	end      segment.End // of the entry that was taken last
	err      error       // what nothing mends
}

// Open opens the log of the member whose data dir is dir. The member need not run. It goes on behind after, whose entry
// must be there and the same; after the zero End it begins at the oldest entry that is held.
func Open(dir string, after segment.End) (*Log, error) {
	l := &Log{dir: filepath.Join(dir, "member", "wal"), next: 1, anywhere: true}
	l.history.loose = true
	if err := l.Hold(); err != nil {
		return nil, err
	}
	if err := l.readIDs(l.files[len(l.files)-1]); err != nil {
		l.Close()
		return nil, err
	}
	return l, l.Skip(after)
}

// Close lets go of all files.
func (l *Log) Close() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Close())
	}
	l.files, l.at = nil, 0
	return errors.Join(errs...)
}

// IDs are those of the cluster and of the member whose log it is.
func (l *Log) IDs() (cluster, member uint64) { return l.cluster, l.member }

// readAtOnce bounds what one Read takes in: 4 MiB, or a single record if that is larger.
const readAtOnce = 4 << 20

// Read takes in what was written since, or a part of it; more says that there is more. Whoever takes in between keeps
// memory bounded, however far behind this log is.
//
// An error that matches storage.ErrDamaged or ErrForked comes again with every call.
func (l *Log) Read() (more bool, err error) {
	if l.err != nil {
		return false, l.err
	}
	if err := l.Hold(); err != nil {
		return false, err
	}
	l.start()
	more, l.err = l.readFiles(readAtOnce)
	l.history.vouch(l.told)
	if l.err == nil {
		l.err = l.history.err
	}
	return more, l.err
}

// readFiles reads up to budget bytes, from one file into the next. A file that a newer one follows is complete: etcd cuts
// it off and syncs it before it gives the newer one its name.
func (l *Log) readFiles(budget int64) (more bool, err error) {
	for {
		f, newest := l.files[l.at], l.at == len(l.files)-1
		begin := f.offset
		ended, err := l.readFile(f, newest, budget)
		l.read += f.offset - begin
		budget -= f.offset - begin
		if err != nil || !ended {
			return err == nil, err
		}
		if newest {
			return false, nil
		}
		f.complete = true
		l.at++
		if l.files[l.at].seq != f.seq+1 {
			l.crc = 0
			l.history.jump()
		}
	}
}

// Confirm takes the member's word: applied is the RaftAppliedIndex of one Status, term the RaftTerm of a second that was
// asked for later. It returns whether the entries up to applied are known to be committed. If they have not been read yet,
// the word holds for when they are.
//
// The order matters: a member that applies an entry has its term at least, and has it before. So if the entry that is held
// at applied has a term as high as what the member said later, it is the one that was applied.
func (l *Log) Confirm(applied, term uint64) bool {
	l.told = word{applied, term}
	return l.history.vouch(l.told)
}

// damaged says where.
func (f *file) damaged(offset int64, cause error) error {
	return fmt.Errorf("read %s at offset %d: %w: %w", f.Name(), offset, storage.ErrDamaged, cause)
}
