package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// file is one file of the log. It stays open from its discovery on, so that its content survives etcd's purge.
type file struct {
	*os.File
	seq      uint64 // etcd numbers its files without a gap
	index    uint64 // of the entry that was next when etcd began the file
	offset   int64  // everything before it has been read
	last     uint64 // the highest index of an entry that was read from the file
	complete bool   // read to its end, and etcd will not write to it again
	linked   bool   // still in the directory
}

// parseName parses a file name in etcd's format (storage/wal/util.go, walName).
func parseName(name string) (seq, index uint64, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".wal")
	first, second, isPair := strings.Cut(stem, "-")
	seq, err := strconv.ParseUint(first, 16, 64)
	index, err2 := strconv.ParseUint(second, 16, 64)
	return seq, index, isLog && isPair && err == nil && err2 == nil
}

// Hold opens new files without reading them. Read calls Hold too. A caller that cannot read, because the store is
// unreachable, must call Hold every few seconds: etcd may purge files that were never opened.
func (l *Log) Hold() error {
	now := time.Now()
	dir, err := os.Stat(l.dir)
	if err == nil && l.listing.isCurrent(dir) {
		return nil
	}
	found, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("look for the log of an etcd member: %w: check that this is the member's data dir", err)
	}
	var logs []fs.DirEntry
	for _, entry := range found {
		_, _, ok := parseName(entry.Name())
		if ok {
			logs = append(logs, entry) // in order, because ReadDir sorts by name
		}
	}
	if len(logs) == 0 {
		return fmt.Errorf("look for the log of an etcd member: no .wal file in %s: %w", l.dir, fs.ErrNotExist)
	}
	err = l.checkReplaced(logs)
	if err != nil {
		return err
	}
	for _, entry := range logs {
		err := l.openFile(entry.Name())
		if err != nil {
			return err
		}
	}
	l.listing = listing{dir, now}
	return nil
}

// listing records the directory at its last listing, so that an unchanged directory need not be listed again. To list the
// files in every poll costs more than to read the new records.
type listing struct {
	dir fs.FileInfo // from before the listing
	at  time.Time
}

// longestTick is an upper bound for the time in which a directory can change twice with one modification time: file
// systems use ticks of the clock.
const longestTick = 2 * time.Second

// isCurrent reports whether dir is the same directory with the same files. A directory that had just changed at the
// listing may have changed again within the same tick, and so is not current.
func (l listing) isCurrent(dir fs.FileInfo) bool {
	return l.dir != nil && os.SameFile(l.dir, dir) && l.dir.ModTime().Equal(dir.ModTime()) &&
		l.at.Sub(dir.ModTime()) > longestTick
}

// openFile opens one file, unless it is known or older than the known ones.
func (l *Log) openFile(name string) error {
	seq, index, _ := parseName(name)
	n := len(l.files)
	if n > 0 && seq <= l.files[n-1].seq {
		return nil
	}
	f, err := storage.OpenRegular(filepath.Join(l.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // purged since the directory was read
	}
	if err != nil {
		return fmt.Errorf("open the log of an etcd member: %w", err)
	}
	l.files = append(l.files, &file{File: f, seq: seq, index: index, linked: true})
	return nil
}

// checkReplaced updates which files are still in the directory. It returns ErrForked if the newest file is missing
// without a newer one, or if another file has its name: the data dir was replaced.
func (l *Log) checkReplaced(logs []fs.DirEntry) error {
	if len(l.files) == 0 {
		return nil
	}
	present := map[uint64]bool{} // by seq
	for _, entry := range logs {
		seq, _, _ := parseName(entry.Name())
		present[seq] = true
	}
	for _, f := range l.files {
		f.linked = present[f.seq]
	}
	newest := l.files[len(l.files)-1]
	highest, _, _ := parseName(logs[len(logs)-1].Name())
	if !newest.linked && highest > newest.seq {
		return nil
	}
	same, err := newest.isAt(newest.Name())
	if err != nil || same {
		return err
	}
	return fmt.Errorf("%w: %s is another file than before: the data dir was replaced", ErrForked, newest.Name())
}

// isAt reports whether path names this file, and not another one with the same name.
func (f *file) isAt(path string) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(now, opened), nil
}

// start closes, before the first read, the files that are not needed for the entries from the anchor on.
func (l *Log) start() {
	if l.started {
		return
	}
	l.started = true
	l.closeBefore(l.history.anchor.Position)
}

// closeBefore closes the files that are not needed for the entries from position on. A file's name contains the index of
// the entry that was next when etcd began the file. The last version of an entry is in the newest file that was begun at
// or before this entry, or in a newer one.
func (l *Log) closeBefore(position uint64) {
	from := 0
	for i, f := range l.files {
		if f.index <= position {
			from = i
		}
	}
	for _, f := range l.files[:from] {
		f.Close() // opened for reading
	}
	l.files = l.files[from:]
}

// Release closes the files that end at or before stored, the position up to which everything is stored. Before the
// first Read it chooses the files by their names.
func (l *Log) Release(stored uint64) {
	if !l.started {
		l.closeBefore(stored)
		return
	}
	for len(l.files) > 1 && l.at > 0 && l.files[0].complete && l.files[0].last <= stored {
		l.files[0].Close() // opened for reading
		l.files = l.files[1:]
		l.at--
	}
}

// segmentBytes is the size at which etcd begins another file (storage/wal, SegmentSizeBytes).
const segmentBytes = 64 * 1000 * 1000

// Backlog describes the part of the log that is not stored yet, as far as Release was called for.
type Backlog struct {
	Files         int   // with content that is not stored, including the newest file
	Unread        int64 // unread bytes of all files except the newest
	Held          int64 // bytes of entries in memory, not taken yet
	UnlinkedBytes int64 // bytes of files that etcd has purged and that exist only because they are open
	Read          int64 // bytes read since Open; once the log has caught up, they grow at the member's write rate
	Room          int64 // bytes until etcd begins another file
	purged        bool  // a file that is not completely stored is no longer in the directory
}

// UntilPurge returns how many bytes the member may write before it purges the oldest file that is not completely
// stored. 0 bytes means that the file may be purged already: if this process ended now, that part of the log would be
// lost. maxWALs is the number of files that the member keeps (etcd's --max-wals, 5 by default). If it is 0, the member
// never purges, and ok is false.
func (b Backlog) UntilPurge(maxWALs int) (bytes int64, ok bool) {
	if maxWALs == 0 {
		return 0, false
	}
	if b.purged || b.Files > maxWALs {
		return 0, true
	}
	return b.Room + int64(maxWALs-b.Files)*segmentBytes, true
}

// Backlog returns the backlog as of the last Read or Hold.
func (l *Log) Backlog() Backlog {
	b := Backlog{Files: len(l.files), Held: l.history.bytes, Read: l.read}
	for i, f := range l.files {
		newest := i == len(l.files)-1
		if newest {
			b.Room = max(0, segmentBytes-f.offset)
		}
		if newest && f.linked {
			break
		}
		size := f.offset
		info, err := f.Stat()
		if err == nil {
			size = info.Size()
		}
		if !newest {
			b.Unread += size - f.offset
		}
		if !f.linked {
			b.UnlinkedBytes += size
			b.purged = true
		}
	}
	return b
}
