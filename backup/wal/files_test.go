package wal_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// logFiles returns the paths of a log's files, in order.
func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	ok(t, err)
	slices.Sort(names)
	return names
}

func logBytes(t *testing.T, dir string) []byte {
	t.Helper()
	var all []byte
	for _, name := range logFiles(t, dir) {
		data, err := os.ReadFile(name)
		ok(t, err)
		all = append(all, data...)
	}
	return all
}

// big returns puts of 4 KiB: 16 of them fill a file.
func big(first, last uint64) []*raftpb.Entry {
	return puts(first, last, 2, strings.Repeat("x", 4<<10))
}

// saveEach writes entries one by one, as a member does: a new file begins between two of them.
func (j *journal) saveEach(entries []*raftpb.Entry) {
	j.t.Helper()
	for _, e := range entries {
		j.save(e.GetTerm(), e.GetIndex(), e)
	}
}

func TestFilesAreReadOneAfterTheOther(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	entries := big(1, 100)
	j.saveEach(entries[:10])
	mustTake(t, l, entries[:10]...)
	j.saveEach(entries[10:])
	n := len(logFiles(t, j.dir))
	if n < 5 {
		t.Fatalf("%d files", n)
	}
	mustTake(t, l, entries[10:]...)
	// A log that continues after an end reads only the files that it needs.
	late := opened(t, j.dir, endOf(entries[79]))
	mustTake(t, late, entries[80:]...)
	all := int64(len(logBytes(t, j.dir)))
	if late.Backlog().Read > all/2 {
		t.Errorf("%d of %d bytes were read", late.Backlog().Read, all)
	}
}

func TestPurgedFilesAreReadWhileTheyAreOpen(t *testing.T) {
	j := fresh(t)
	entries := big(1, 100)
	j.saveEach(entries)
	l, late := opened(t, j.dir, segment.End{}), opened(t, j.dir, endOf(entries[0]))
	names := logFiles(t, j.dir)
	for _, name := range names[:3] {
		ok(t, os.Remove(name))
	}
	ok(t, l.Hold())
	b := l.Backlog()
	left, ever := b.UntilPurge(5)
	if b.UnlinkedBytes < 3*smallSegment || left != 0 || !ever || b.Files != len(names) {
		t.Errorf("backlog %+v", b)
	}
	mustTake(t, l, entries...)
	l.Release(100)
	b = l.Backlog()
	left, ever = b.UntilPurge(5)
	if b.UnlinkedBytes != 0 || b.Files != 1 || left < 4*64e6 || !ever || b.Held != 0 || b.Unread != 0 {
		t.Errorf("backlog %+v", b)
	}
	_, ever = b.UntilPurge(0)
	if ever {
		t.Error("a member that keeps all its files purges some")
	}
	mustTake(t, late, entries[1:]...)
	// A log that is opened now does not find them.
	first := opened(t, j.dir, segment.End{})
	readAll(t, first)
	got, _, err := takeAll(t, first)
	ok(t, err)
	wantGap(t, opened(t, j.dir, endOf(entries[9])), 11, got[0].Position-1)
}

// TestMissingFilesAreAGap purges files between two reads.
func TestMissingFilesAreAGap(t *testing.T) {
	j := fresh(t)
	entries := big(1, 100)
	j.saveEach(entries[:5])
	l := opened(t, j.dir, segment.End{})
	j.saveEach(entries[5:])
	names := logFiles(t, j.dir)
	for _, name := range names[:3] {
		ok(t, os.Remove(name))
	}
	readAll(t, l)
	got, end, err := takeAll(t, l)
	same(t, got, entries[:len(got)])
	var gap *wal.GapError
	if !errors.As(err, &gap) || gap.From != end.Position+1 || gap.To <= gap.From {
		t.Fatalf("got %v behind %d, want a gap", err, end.Position)
	}
	l.Resume(gap.To + 1)
	mustTake(t, l, entries[gap.To:]...)
}

func TestABacklogIsNotHeldAtOnce(t *testing.T) {
	j := fresh(t)
	value := strings.Repeat("x", 1<<20)
	var entries []*raftpb.Entry
	for i := range uint64(40) {
		entries = append(entries, puts(i+1, i+1, 2, value)...)
	}
	j.saveEach(entries)
	l := opened(t, j.dir, segment.End{})
	var got []segment.Record
	for more := true; more; {
		var err error
		more, err = l.Read()
		ok(t, err)
		held := l.Backlog().Held
		if held > 8<<20 {
			t.Fatalf("%d bytes are held", held)
		}
		batch, _, err := takeAll(t, l)
		ok(t, err)
		got = append(got, batch...)
	}
	same(t, got, entries)
}

func TestAReplacedDataDirIsAnotherHistory(t *testing.T) {
	j := fresh(t)
	j.saveEach(big(1, 20))
	l := opened(t, j.dir, segment.End{})
	readAll(t, l)
	ok(t, os.Rename(filepath.Join(j.dir, "member"), filepath.Join(j.dir, "old")))
	_, err := l.Read()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that it is not there", err)
	}
	other := newJournal(t, j.dir)
	defer other.Close()
	_, err = l.Read()
	if !errors.Is(err, wal.ErrForked) {
		t.Errorf("got %v, want another history", err)
	}
}

// written returns where the last record of the last file begins and ends.
func written(t *testing.T, data []byte) (last, end int) {
	t.Helper()
	for at := 0; ; {
		length := binary.LittleEndian.Uint64(data[at:])
		if length == 0 {
			return last, at
		}
		size := int(length &^ (0xff << 56))
		last, at = at, at+8+(size+7)/8*8
	}
}

// TestATornTailIsWaitedFor checks that an incomplete record, cut at any byte, is no error, and is read once it is
// complete.
func TestATornTailIsWaitedFor(t *testing.T) {
	j := fresh(t)
	entries := big(1, 6)
	j.save(2, 5, entries[:5]...)
	j.save(0, 0, entries[5])
	ok(t, j.Close())
	name := logFiles(t, j.dir)[0]
	whole, err := os.ReadFile(name)
	ok(t, err)
	last, end := written(t, whole)
	for cut := last; cut < end; cut += 97 {
		torn := slices.Clone(whole)
		clear(torn[cut:])
		ok(t, os.WriteFile(name, torn, 0o600))
		l := open(t, j.dir, segment.End{})
		mustTake(t, l, entries[:5]...)
		ok(t, os.WriteFile(name, torn[:cut], 0o600)) // a file system without preallocation
		mustTake(t, l)
		ok(t, os.WriteFile(name, whole, 0o600))
		l.Confirm(6, 2)
		mustTake(t, l, entries[5])
		ok(t, l.Close())
	}
}

// TestAFlippedByteIsDamage checks that a flipped byte is damage if a newer file or newer records follow. The last
// record may just be incomplete.
func TestAFlippedByteIsDamage(t *testing.T) {
	j := fresh(t)
	entries := big(1, 40)
	j.saveEach(entries)
	ok(t, j.Close())
	names := logFiles(t, j.dir)
	flip := func(name string, at int) (came int, err error) {
		data, readErr := os.ReadFile(name)
		ok(t, readErr)
		data[at] ^= 0x55
		ok(t, os.WriteFile(name, data, 0o600))
		data[at] ^= 0x55
		defer func() { ok(t, os.WriteFile(name, data, 0o600)) }()
		l := open(t, j.dir, segment.End{})
		defer l.Close()
		for more := true; more && err == nil; {
			more, err = l.Read()
		}
		got, _, takeErr := takeAll(t, l)
		if err == nil && takeErr != nil {
			t.Errorf("flip at %d: %v", at, takeErr)
		}
		same(t, got, entries[:len(got)])
		return len(got), err
	}
	older, err := os.ReadFile(names[1])
	ok(t, err)
	for at := 4 << 10; at < len(older); at += 4001 {
		came, err := flip(names[1], at)
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), ".wal at offset") {
			t.Errorf("flip at %d of an older file: %v, %d came", at, err, came)
		}
	}
	newest := names[len(names)-1]
	data, err := os.ReadFile(newest)
	ok(t, err)
	last, end := written(t, data)
	_, err = flip(newest, 2000)
	if !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("flip in the middle of the newest file: %v", err)
	}
	came, err := flip(newest, (last+end)/2)
	if err != nil || came != len(entries)-1 && came != len(entries) {
		t.Errorf("flip in the last record: %v, %d came", err, came)
	}
}

func TestOpenNoLog(t *testing.T) {
	_, err := wal.Open(t.TempDir(), segment.End{})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestReleaseBeforeAnythingIsRead checks a standby agent, which opens files and reads none: Release closes the stored
// files, and the rest is complete when it is read.
func TestReleaseBeforeAnythingIsRead(t *testing.T) {
	j := fresh(t)
	entries := big(1, 600)
	j.saveEach(entries[:10])
	l := opened(t, j.dir, segment.End{})
	for i := 10; i < len(entries); i += 10 {
		j.saveEach(entries[i : i+10])
		names := logFiles(t, j.dir)
		for len(names) > 2 { // etcd's purge
			ok(t, os.Remove(names[0]))
			names = names[1:]
		}
		ok(t, l.Hold())
	}
	stored := entries[len(entries)-100]
	before := l.Backlog()
	l.Release(stored.GetIndex())
	after := l.Backlog()
	if after.Files < 2 || after.Files >= before.Files || after.UnlinkedBytes >= before.UnlinkedBytes {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	ok(t, l.Skip(endOf(stored)))
	mustTake(t, l, entries[len(entries)-99:]...)
	l.Release(stored.GetIndex() + 99)
	last := l.Backlog()
	if last.Files != 1 {
		t.Errorf("all is stored, and %d files are open", last.Files)
	}
}

// TestFilesOfTwoMembers checks that the error names both members, and what to do: a backup tool may have copied two logs into one dir.
func TestFilesOfTwoMembers(t *testing.T) {
	j := fresh(t)
	j.saveEach(big(1, 40))
	ok(t, j.Close())
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: proto.Uint64(0xa2), ClusterID: proto.Uint64(clusterID)})
	ok(t, err)
	other := filepath.Join(t.TempDir(), "wal")
	w, err := etcdwal.Create(zap.NewNop(), other, metadata)
	ok(t, err)
	ok(t, w.Close())
	oldest := logFiles(t, j.dir)[0]
	data, err := os.ReadFile(filepath.Join(other, filepath.Base(oldest)))
	ok(t, err)
	ok(t, os.WriteFile(oldest, data, 0o600))
	l := opened(t, j.dir, segment.End{})
	_, err = l.Read()
	for _, words := range []string{
		oldest, "member a2 of cluster c1", "other files are of member a1 of cluster c1", "move the files of the other member out of " + filepath.Dir(oldest),
	} {
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want one with %q", err, words)
		}
	}
}
