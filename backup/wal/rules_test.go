package wal_test

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func TestOnlyCommittedEntriesLeave(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	cluster, member := l.IDs()
	if cluster != clusterID || member != memberID {
		t.Errorf("the ids are %x and %x", cluster, member)
	}
	one := puts(1, 10, 2, "a")
	j.save(2, 7, one...)
	mustTake(t, l, one[:7]...)
	j.save(2, 9)
	mustTake(t, l, one[7:9]...)
	mustTake(t, l)
	if l.Confirm(10, 3) || !l.Confirm(9, 3) {
		t.Error("an entry of term 2 is not committed because a member of term 3 has applied something at its place")
	}
	mustTake(t, l)
	if l.Confirm(11, 2) || !l.Confirm(10, 2) {
		t.Error("entry 10 is committed, 11 was not read")
	}
	mustTake(t, l, one[9])
	l.Confirm(12, 2) // the member's report came before its log was read
	two := puts(11, 13, 2, "a")
	j.save(2, 0, two...)
	mustTake(t, l, two[:2]...)
}

func TestAnEntryReplacesLaterOnes(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	j.save(2, 5, puts(1, 10, 2, "a")...)
	readAll(t, l)
	j.save(3, 0, puts(6, 8, 3, "b")...) // 9 and 10 are discarded
	readAll(t, l)
	if l.Confirm(10, 2) || l.Confirm(8, 2) {
		t.Error("discarded entries were confirmed")
	}
	// Figure 8 of the raft paper: the replacement of an entry may be of an older term.
	j.save(4, 0, puts(6, 6, 2, "a")...)
	j.save(4, 8, puts(7, 8, 4, "b")...)
	mustTake(t, l, slices.Concat(puts(1, 5, 2, "a"), puts(6, 6, 2, "a"), puts(7, 8, 4, "b"))...)
}

// TestCutOffLeaderThatGetsASnapshot has a leader that was cut off with 40 writes of its own, and then received a
// snapshot. The order of the snapshot's record and the commit index differs between versions of etcd.
func TestCutOffLeaderThatGetsASnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot  uint64
		stateNext bool // the commit index is written before the snapshot's record
	}{
		"behind its entries":                {snapshot: 500},
		"behind, commit first":              {snapshot: 500, stateNext: true},
		"in the middle of them":             {snapshot: 120},
		"in the middle, commit first":       {snapshot: 120, stateNext: true},
		"at the last of them":               {snapshot: 140},
		"at the last of them, commit first": {snapshot: 140, stateNext: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := fresh(t)
			live := opened(t, j.dir, segment.End{})
			common := puts(1, 100, 2, "all")
			j.save(2, 100, common...)
			j.save(2, 0, puts(101, 140, 2, "cut off")...)
			j.save(3, 100)
			if c.stateNext {
				j.save(3, c.snapshot)
			}
			mustTake(t, live, common...)
			j.snapshot(c.snapshot, 3)
			if !c.stateNext {
				j.save(3, c.snapshot)
			}
			later := puts(c.snapshot+1, c.snapshot+20, 3, "new")
			j.save(3, c.snapshot+20, later...)
			late := opened(t, j.dir, segment.End{})
			readAll(t, late)
			got, _, _ := takeAll(t, late)
			same(t, got, common)
			for _, l := range []*wal.Log{live, late} {
				wantGap(t, l, 101, c.snapshot)
				wantGap(t, l, 101, c.snapshot) // until Resume or Skip
				l.Resume(c.snapshot + 1)
				mustTake(t, l, later...)
			}
		})
	}
}

func TestAMembersOwnSnapshotLeavesNoHole(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	entries := puts(1, 30, 2, "a")
	j.save(2, 10, entries[:20]...)
	mustTake(t, l, entries[:10]...)
	j.snapshot(5, 2)  // taken long ago
	j.snapshot(15, 2) // held, and not known to be committed
	j.save(2, 30, entries[20:]...)
	mustTake(t, l, entries[10:]...)
}

// TestASnapshotThatWasLostInACrash has a member that dies between the snapshot's record and its commit index. When it
// starts again, it ignores the record and continues with its old log.
func TestASnapshotThatWasLostInACrash(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	entries := puts(1, 60, 2, "a")
	j.save(2, 10, entries[:40]...)
	j.snapshot(500, 3)
	j.save(2, 60, entries[40:]...)
	readAll(t, l)
	got, _, _ := takeAll(t, l)
	same(t, got, entries[:10])
	wantGap(t, l, 11, 40)
	l.Resume(0)
	mustTake(t, l, entries[40:]...)
}

func TestImpossibleHistoryIsDamage(t *testing.T) {
	for name, write := range map[string]func(j *journal){
		"a term that falls": func(j *journal) { j.save(3, 0, put(11, 1, "a")) },
		"a missing entry":   func(j *journal) { j.save(3, 0, put(12, 3, "a")) },
	} {
		t.Run(name, func(t *testing.T) {
			j := fresh(t)
			l := opened(t, j.dir, segment.End{})
			j.save(2, 5, puts(1, 10, 2, "a")...)
			readAll(t, l)
			write(j)
			for range 2 {
				_, err := l.Read()
				if !errors.Is(err, storage.ErrDamaged) {
					t.Errorf("got %v, want damage", err)
				}
			}
		})
	}
}

func TestACommittedEntryIsNeverReplaced(t *testing.T) {
	j := fresh(t)
	l := opened(t, j.dir, segment.End{})
	j.save(2, 10, puts(1, 10, 2, "a")...)
	readAll(t, l)
	j.save(3, 0, put(10, 3, "b"))
	_, err := l.Read()
	if !errors.Is(err, wal.ErrForked) {
		t.Errorf("got %v, want another history", err)
	}
}

func TestContinueAfterAnEnd(t *testing.T) {
	entries := puts(1, 50, 2, "a")
	stale := puts(21, 40, 2, "a")
	other := puts(21, 40, 3, "b")
	for name, c := range map[string]struct {
		after segment.End
		write func(j *journal)
		want  []*raftpb.Entry
		err   error
	}{
		"the same": {
			after: endOf(entries[29]), want: entries[30:],
			write: func(j *journal) { j.save(2, 50, entries...) },
		},
		"the last": {
			after: endOf(entries[49]),
			write: func(j *journal) { j.save(2, 50, entries...) },
		},
		"committed, for it is stored": {
			after: endOf(entries[29]),
			write: func(j *journal) { j.save(2, 10, entries...) },
		},
		"a stale one first": {
			after: endOf(other[9]), want: other[10:],
			write: func(j *journal) { j.save(2, 20, entries[:20]...); j.save(2, 0, stale...); j.save(3, 40, other...) },
		},
		"another term": {
			after: endOf(put(30, 3, "a")), err: wal.ErrForked,
			write: func(j *journal) { j.save(2, 50, entries...) },
		},
		"another content": {
			after: endOf(put(30, 2, "b")), err: wal.ErrForked,
			write: func(j *journal) { j.save(2, 50, entries...) },
		},
		"not known yet": {
			after: endOf(put(30, 2, "b")),
			write: func(j *journal) { j.save(2, 29, entries...) },
		},
		"to come": {
			after: endOf(put(51, 2, "a")),
			write: func(j *journal) { j.save(2, 50, entries...) },
		},
		"replaced afterwards, as by --force-new-cluster": {
			after: endOf(stale[9]), err: wal.ErrForked,
			write: func(j *journal) { j.save(2, 20, entries[:20]...); j.save(2, 0, stale...); j.save(3, 40, other...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := fresh(t)
			c.write(j)
			byOpen, bySkip := opened(t, j.dir, c.after), opened(t, j.dir, segment.End{})
			skipLate := opened(t, j.dir, segment.End{})
			_, lateErr := skipLate.Read()
			ok(t, lateErr)
			ok(t, bySkip.Skip(c.after))
			lateErr = skipLate.Skip(c.after)
			err := lateErr
			if err != nil && !errors.Is(err, c.err) {
				t.Errorf("skip: %v", err)
			}
			for _, l := range []*wal.Log{byOpen, bySkip, skipLate} {
				_, err := l.Read()
				var got []segment.Record
				if err == nil {
					got, _, err = takeAll(t, l)
				}
				// A log that was read before Skip cannot know that the replaced entries had been stored.
				if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Fatalf("got %v, want %v", err, c.err)
				}
				same(t, got, c.want)
			}
		})
	}
}

func TestGapBeforeTheLogBegins(t *testing.T) {
	j := fresh(t)
	j.snapshot(100, 2)
	entries := puts(101, 150, 2, "a")
	j.save(2, 150, entries...)
	l := opened(t, j.dir, segment.End{})
	mustTake(t, l, entries...)
	wantGap(t, opened(t, j.dir, endOf(put(60, 2, "a"))), 61, 100)
	// Only the proof is missing.
	l = opened(t, j.dir, endOf(put(100, 2, "a")))
	wantGap(t, l, 101, 100)
	l.Resume(101)
	mustTake(t, l, entries...)
}

func TestSkipStoredByAnother(t *testing.T) {
	j := fresh(t)
	entries := puts(1, 50, 2, "a")
	j.save(2, 30, entries[:30]...)
	l := opened(t, j.dir, segment.End{})
	readAll(t, l)
	_, err := l.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, l.Skip(endOf(entries[0])))
	ok(t, l.Skip(endOf(entries[19])))
	mustTake(t, l, entries[20:30]...)
	ok(t, l.Skip(endOf(entries[39]))) // not read yet
	mustTake(t, l)
	j.save(2, 50, entries[30:]...)
	mustTake(t, l, entries[40:]...)
	err = l.Skip(endOf(put(50, 2, "b")))
	if !errors.Is(err, wal.ErrForked) {
		t.Errorf("got %v, want another history", err)
	}
}
