// Package wal reads the write-ahead log of an etcd member from its disk, read-only, while the member writes it. Open
// returns a Log for a running member, OpenStopped one for the disk of a dead member.
//
//	member/wal/*.wal ── Read ──► entries held ── HardState, Confirm ──► committed ── Take ──► requests
//
// Such a log is a journal of edits to a raft log and not the log itself: an entry in it may never be committed, may be
// overwritten, or may be replaced by another member's snapshot. The type history has the rules. Take returns only
// entries that are known to be committed, in order and without a hole.
//
// No file is ever locked or written: etcd locks its files when it starts, and would fail.
package wal

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Errors of a Log, to be matched with errors.Is. Damaged files cause storage.ErrDamaged.
var (
	// ErrForked means that the log does not continue the entries read or stored before. It has another history, for
	// example after etcd's --force-new-cluster or after a restore.
	ErrForked = errors.New("the member's log has another history")
	// ErrEntry means that a committed entry is not a request that this version knows. The log ends there, because no
	// entry may be omitted.
	ErrEntry = errors.New("entry of an unknown kind")
)

// GapError means that this log does not have the positions From to To, both inclusive: they were purged, or the member
// received them in a snapshot. To is From-1 if From exists, but the entry before it is missing, which would prove that
// From continues the stored entries.
//
// If Unusable is not nil, From and To are the same position. The log has its entry, but no replay can apply it, for the reason
// in Unusable.
type GapError struct {
	From, To uint64
	Unusable error
}

func (e *GapError) Error() string {
	if e.Unusable != nil {
		return fmt.Sprintf("the member's log has a request at position %d that cannot be replayed: %v", e.From, e.Unusable)
	}
	return fmt.Sprintf("the member's log lacks the entries %d to %d: read them from another member's log, or start over with a snapshot",
		e.From, e.To)
}

// Log reads a member's log. Its methods are for one goroutine at a time.
type Log struct {
	dir     string
	files   []*file // in order, without those that are completely stored
	at      int     // index in files of the file being read
	started bool    // start has closed the files that are not needed
	crc     uint32  // of all records read so far; 0: unknown
	read    int64   // bytes read since Open
	listing listing // the last listing of the directory

	cluster, member uint64

	history  history
	reported claim       // from the last Confirm
	next     uint64      // the next position to take; with anywhere, the lowest allowed one
	anywhere bool        // take may continue at any position from next on
	end      segment.End // of the entry that was taken last
	err      error       // ends the log: each later call returns it
}

// Open opens the log of the member with the data dir dir. The member need not run. The log continues with the entry that
// follows the one named by after, which must exist and be the same. With the zero End the log begins with the oldest
// entry.
func Open(dir string, after segment.End) (*Log, error) {
	l := &Log{dir: filepath.Join(dir, "member", "wal"), next: 1, anywhere: true}
	l.history.loose = true
	err := l.Hold()
	if err != nil {
		return nil, err
	}
	err = l.readIDs(l.files[len(l.files)-1])
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, l.Skip(after)
}

// Close closes all files.
func (l *Log) Close() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Close())
	}
	l.files, l.at = nil, 0
	return errors.Join(errs...)
}

// IDs returns the cluster's and the member's id.
func (l *Log) IDs() (cluster, member uint64) { return l.cluster, l.member }

// readAtOnce bounds the bytes of one Read: 4 MiB, or a single record if that is larger.
const readAtOnce = 4 << 20

// Read reads new records, or a part of them; more reports that there are more. If the caller calls Take after each Read,
// memory stays bounded, however much of the log is unread.
//
// After an error that matches storage.ErrDamaged or ErrForked, every call returns this error.
func (l *Log) Read() (more bool, err error) {
	if l.err != nil {
		return false, l.err
	}
	err = l.Hold()
	if err != nil {
		return false, err
	}
	l.start()
	more, l.err = l.readFiles(readAtOnce)
	l.history.acceptCommit(l.reported)
	if l.err == nil {
		l.err = l.history.err
	}
	return more, l.err
}

// readFiles reads up to budget bytes, across files. A file that is followed by a newer one is complete: etcd truncates
// and syncs it before it gives the newer one its name.
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
			l.history.skipFiles()
		}
	}
}

// Confirm passes on the member's report: applied is the RaftAppliedIndex of one Status, term the RaftTerm of a later
// Status. It returns whether the entries up to applied are known to be committed. If they have not been read yet, the
// report takes effect once they are.
//
// The order of the two Status matters: before a member applies an entry, it has reached at least the entry's term. So if
// the held entry at applied has the term that is reported later, it is the entry that was applied.
func (l *Log) Confirm(applied, term uint64) bool {
	l.reported = claim{index: applied, term: term}
	return l.history.acceptCommit(l.reported)
}

// damaged returns an error that matches storage.ErrDamaged and names the file and the offset.
func (f *file) damaged(offset int64, cause error) error {
	return fmt.Errorf("read %s at offset %d: %w: %w", f.Name(), offset, storage.ErrDamaged, cause)
}
