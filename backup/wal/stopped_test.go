package wal_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage"
)

// rest returns all entries of a stopped member's log.
func rest(t tb, dir string, after uint64) (entries []wal.Entry, s *wal.Stopped) {
	t.Helper()
	s, err := wal.OpenStopped(dir, after)
	ok(t, err)
	for e, err := range s.Entries(context.Background()) {
		ok(t, err)
		entries = append(entries, e)
	}
	ok(t, s.Close())
	return entries, s
}

// wantRest fails unless got is want, and the first entries, as many as committed, are committed.
func wantRest(t tb, got []wal.Entry, committed int, want ...*raftpb.Entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries came, want %d", len(got), len(want))
	}
	for i, e := range want {
		if got[i].End() != endOf(e) || got[i].Committed != (i < committed) {
			t.Errorf("entry %d: %+v", i, got[i])
		}
	}
}

func TestStoppedLogIsReadToItsEnd(t *testing.T) {
	j := fresh(t)
	entries := append(puts(1, 50, 2, "a"), entry(51, 2, nil))
	j.save(2, 40, entries...)
	ok(t, j.Close())
	got, s := rest(t, j.dir, 0)
	wantRest(t, got, 40, entries...)
	cluster, member := s.IDs()
	if cluster != clusterID || member != memberID || s.Damage() != nil || s.Torn() {
		t.Errorf("cluster %x, member %x, damage %v, torn %t", cluster, member, s.Damage(), s.Torn())
	}
	if !got[49].Request || got[50].Request {
		t.Errorf("requests: %+v", got[49:])
	}
}

// A request that a replay refuses is still the member's.
func TestStoppedLogWithAnUnusableRequest(t *testing.T) {
	j := fresh(t)
	role := field(nil, 1200, field(nil, 1, []byte("x\xff")))
	entries := append(puts(1, 3, 2, "a"), entry(4, 2, role), entry(5, 2, nil))
	j.save(2, 4, entries...)
	ok(t, j.Close())
	got, s := rest(t, j.dir, 0)
	wantRest(t, got, 4, entries...)
	if s.Damage() != nil || !got[3].Request || got[3].Unusable == nil || got[2].Unusable != nil || got[4].Unusable != nil {
		t.Errorf("damage %v, entries %+v", s.Damage(), got[2:])
	}
}

func TestStoppedLogWithASnapshotFromAnother(t *testing.T) {
	j := fresh(t)
	j.save(2, 20, puts(1, 30, 2, "a")...)
	j.snapshot(100, 3)
	behind := puts(101, 110, 3, "b")
	j.save(3, 105, behind...)
	ok(t, j.Close())
	got, _ := rest(t, j.dir, 0)
	if len(got) != 31 || !got[20].Missing || got[20].Position != 100 || got[20].Term != 3 {
		t.Fatalf("%d entries came: %+v", len(got), got[20])
	}
	wantRest(t, got[21:], 5, behind...)
}

// TestStoppedLogThatCannotBeReadToItsEnd checks that only an incomplete record may be missing without an error: all
// others had been written, and perhaps acknowledged.
func TestStoppedLogThatCannotBeReadToItsEnd(t *testing.T) {
	j := fresh(t)
	entries := big(1, 40)
	j.saveEach(entries)
	ok(t, j.Close())
	names := logFiles(t, j.dir)
	newest := names[len(names)-1]
	whole, err := os.ReadFile(newest)
	ok(t, err)
	last, end := written(t, whole)
	for name, c := range map[string]struct {
		file           string
		change         func(data []byte) []byte
		damaged, torn  bool
		atLeast, below int
	}{
		"as it is": {newest, func(d []byte) []byte { return d }, false, false, 40, 41},
		"the last record was not written to its end": {newest, func(d []byte) []byte { clear(d[end-2000:]); return d }, false, true, 39, 40},
		"a byte of the last record is another":       {newest, func(d []byte) []byte { d[(last+end)/2] ^= 1; return d }, true, false, 39, 41},
		"a length is another":                        {newest, func(d []byte) []byte { d[last+3] ^= 0x10; return d }, true, false, 39, 41},
		"a length is zero":                           {newest, func(d []byte) []byte { clear(d[last : last+8]); return d }, true, false, 39, 41},
		"a sector is zeros, and more follows":        {newest, func(d []byte) []byte { clear(d[1024:1536]); return d }, true, false, 1, 40},
		"the newest file is cut off":                 {newest, func(d []byte) []byte { return d[:(last+end)/2] }, true, false, 39, 41},
		"a byte of an older file is another":         {names[1], func(d []byte) []byte { d[20000] ^= 1; return d }, true, false, 1, 39},
		"all of the newest file but its head":        {newest, func(d []byte) []byte { return d[:1024] }, true, false, 1, 40},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(c.file)
			ok(t, err)
			ok(t, os.WriteFile(c.file, c.change(append([]byte(nil), data...)), 0o600))
			defer func() { ok(t, os.WriteFile(c.file, data, 0o600)) }()
			got, s := rest(t, j.dir, 0)
			if (s.Damage() != nil) != c.damaged || s.Torn() != c.torn {
				t.Errorf("damage %v, torn %t", s.Damage(), s.Torn())
			}
			if c.damaged && !errors.Is(s.Damage(), storage.ErrDamaged) {
				t.Errorf("damage does not say so: %v", s.Damage())
			}
			if len(got) < c.atLeast || len(got) >= c.below {
				t.Fatalf("%d entries came", len(got))
			}
			for i, e := range got {
				if e.End() != endOf(entries[i]) {
					t.Errorf("entry %d is another", i)
				}
			}
		})
	}
}

// TestStoppedLogIsReadAfterItsDamage checks that damage before the database's position does not matter.
func TestStoppedLogIsReadAfterItsDamage(t *testing.T) {
	j := fresh(t)
	entries := big(1, 40)
	j.saveEach(entries)
	ok(t, j.Close())
	names := logFiles(t, j.dir)
	data, err := os.ReadFile(names[0])
	ok(t, err)
	data[3000] ^= 1
	ok(t, os.WriteFile(names[0], data, 0o600))
	got, s := rest(t, j.dir, 0)
	if len(got) > 20 || s.Damage() == nil {
		t.Errorf("%d entries came, damage %v", len(got), s.Damage())
	}
	got, s = rest(t, j.dir, 39)
	if s.Damage() != nil || len(got) == 0 || got[len(got)-1].End() != endOf(entries[39]) {
		t.Errorf("%d entries came, damage %v", len(got), s.Damage())
	}
}

// TestAnyStoppedHistory checks, for random histories of a member, that its log after the last hole is raft's, and that
// entries marked as committed were.
func TestAnyStoppedHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		ok(rt, err)
		m := &member{journal: newJournal(rt, dir), rt: rt, term: 1}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			m.step(m.draw(0, 7, "step"))
		}
		m.grow(1, true) // so that a snapshot which was lost in a crash is not the last record
		m.replicate()
		m.cutOff()
		ok(rt, m.Close())
		got, s := rest(rt, dir, 0)
		ok(rt, s.Damage())
		n := len(got)
		if n == 0 || got[n-1].Missing || got[n-1].Position != m.last() {
			rt.Fatalf("%d entries came, the log ends at %d", n, m.last())
		}
		for i := len(got) - 1; i >= 0 && !got[i].Missing && got[i].Position > m.base; i-- {
			want := m.log[got[i].Position-m.base-1]
			if got[i].End() != endOf(want) {
				rt.Fatalf("entry %d is another than raft's", got[i].Position)
			}
		}
		for _, e := range got {
			if e.Committed && !e.Missing && e.End() != endOf(m.truth[e.Position-1]) {
				rt.Fatalf("entry %d was not committed", e.Position)
			}
		}
	})
}
