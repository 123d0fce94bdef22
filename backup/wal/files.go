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
)

// file is one file of the log. It stays open from the moment it was seen: when etcd purges it, nothing is lost.
type file struct {
	*os.File
	seq      uint64 // etcd numbers its files without a gap
	index    uint64 // the entry that was to be written next when it was begun
	offset   int64  // everything before it has been read
	last     uint64 // the highest entry that was read from it
	complete bool   // read to its end, and nothing more will come
	linked   bool   // still in the directory
}

// parseName reads a name as etcd writes it (storage/wal/util.go, walName).
func parseName(name string) (seq, index uint64, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".wal")
	first, second, isPair := strings.Cut(stem, "-")
	seq, err := strconv.ParseUint(first, 16, 64)
	index, err2 := strconv.ParseUint(second, 16, 64)
	return seq, index, isLog && isPair && err == nil && err2 == nil
}

// Hold opens the files that are new, and nothing else. Read does it too; whoever does not read, because what was taken
// cannot be stored at the moment, calls Hold at least every few seconds, or etcd purges files that were never seen.
func (l *Log) Hold() error {
	now := time.Now()
	dir, err := os.Stat(l.dir)
	if err == nil && l.looked.still(dir) {
		return nil
	}
	found, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("look for the log of an etcd member: %w; is it the member's data dir?", err)
	}
	var logs []fs.DirEntry
	for _, entry := range found {
		if _, _, ok := parseName(entry.Name()); ok {
			logs = append(logs, entry) // in order, for ReadDir sorts by name
		}
	}
	if len(logs) == 0 {
		return fmt.Errorf("look for the log of an etcd member: no .wal file in %s: %w", l.dir, fs.ErrNotExist)
	}
	if err := l.checkReplaced(logs); err != nil {
		return err
	}
	for _, entry := range logs {
		if err := l.hold(entry.Name()); err != nil {
			return err
		}
	}
	l.looked = looked{dir, now}
	return nil
}

// looked is what a directory was when its files were listed. To list them anew at every look costs more than to read what
// was written.
type looked struct {
	dir fs.FileInfo // from before the listing
	at  time.Time
}

// coarse is how long a directory may change without another time of change: file systems count in ticks of the clock.
const coarse = 2 * time.Second

// still says that dir is the same directory, with the same files. One that had just changed may have changed once more
// within the same tick.
func (l looked) still(dir fs.FileInfo) bool {
	return l.dir != nil && os.SameFile(l.dir, dir) && l.dir.ModTime().Equal(dir.ModTime()) &&
		l.at.Sub(dir.ModTime()) > coarse
}

// hold opens one file unless it is known or older than those that are.
func (l *Log) hold(name string) error {
	seq, index, _ := parseName(name)
	if n := len(l.files); n > 0 && seq <= l.files[n-1].seq {
		return nil
	}
	f, err := os.Open(filepath.Join(l.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // purged since the directory was read
	}
	if err != nil {
		return fmt.Errorf("open the log of an etcd member: %w", err)
	}
	l.files = append(l.files, &file{File: f, seq: seq, index: index, linked: true})
	return nil
}

// checkReplaced notes which files are still in the directory. The newest one can have gone only for newer ones, or
// because somebody put another member's data there.
func (l *Log) checkReplaced(logs []fs.DirEntry) error {
	if len(l.files) == 0 {
		return nil
	}
	there := map[uint64]bool{}
	for _, entry := range logs {
		seq, _, _ := parseName(entry.Name())
		there[seq] = true
	}
	for _, f := range l.files {
		f.linked = there[f.seq]
	}
	newest := l.files[len(l.files)-1]
	highest, _, _ := parseName(logs[len(logs)-1].Name())
	if !newest.linked && highest > newest.seq {
		return nil
	}
	same, err := newest.isStill(newest.Name())
	if err != nil || same {
		return err
	}
	return fmt.Errorf("%w: %s is not the file that it was, the data dir was replaced", ErrForked, newest.Name())
}

// isStill says that path names this very file.
func (f *file) isStill(path string) (bool, error) {
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

// start lets go of the files that end before the position to begin at. A file's name says which entry was to come when
// it was begun. The last version of an entry is in the newest file that was begun for it or for one before it, or in a
// newer one.
func (l *Log) start() {
	if l.started {
		return
	}
	l.started = true
	l.letGo(l.history.anchor.Position)
}

// letGo lets go of the files that end before the entry behind position.
func (l *Log) letGo(position uint64) {
	from := 0
	for i, f := range l.files {
		if f.index <= position {
			from = i
		}
	}
	for _, f := range l.files[:from] {
		f.Close() // only read
	}
	l.files = l.files[from:]
}

// Release closes the files in which nothing is behind stored, up to which everything is stored. Before the first Read these
// files are chosen by their names.
func (l *Log) Release(stored uint64) {
	if !l.started {
		l.letGo(stored)
		return
	}
	for len(l.files) > 1 && l.at > 0 && l.files[0].complete && l.files[0].last <= stored {
		l.files[0].Close() // only read
		l.files = l.files[1:]
		l.at--
	}
}

// segmentBytes is how much etcd writes to a file before it begins another (storage/wal, SegmentSizeBytes).
const segmentBytes = 64 * 1000 * 1000

// Backlog is how much of the log is not stored yet, as Release was told, and what keeps it from being lost.
type Backlog struct {
	Files         int   // of which something is not stored, the newest included
	Unread        int64 // bytes of complete files that have not been read yet
	Held          int64 // bytes of entries in memory, not taken yet
	UnlinkedBytes int64 // of files that etcd has purged and that live only because they are open
	Read          int64 // bytes that were read since Open: how fast it grows is the member's pace
	Room          int64 // bytes that fit into the newest file until etcd begins another
	purged        bool
}

// UntilPurge is how many bytes the member writes until it purges the oldest file that is not stored in full, where it
// keeps as many files as maxWALs says (etcd's --max-wals, 5 by default). 0: it may have purged it already, and if this
// process ended now that part of the log would be lost. ok is false if it never purges.
func (b Backlog) UntilPurge(maxWALs int) (bytes int64, ok bool) {
	if maxWALs == 0 {
		return 0, false
	}
	if b.purged || b.Files > maxWALs {
		return 0, true
	}
	return b.Room + int64(maxWALs-b.Files)*segmentBytes, true
}

// Backlog is as of the last Read or Hold.
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
		if info, err := f.Stat(); err == nil {
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
