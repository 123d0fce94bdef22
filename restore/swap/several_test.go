package swap_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// later returns the plan of another target.
func (d disk) later() plan.Plan {
	p := d.plan()
	p.File = "/later.db"
	return p
}

// stageLater stages a second restore, to another target, next to the live data.
func (d disk) stageLater(t *testing.T) *swap.Swap {
	t.Helper()
	s, err := swap.Choose(d.later(), nil)
	if err != nil || s.ID == id {
		t.Fatalf("%+v, %v", s, err)
	}
	stage(t, s, d.later(), "later")
	return s
}

func must(t *testing.T, do ...func() error) {
	t.Helper()
	for i, f := range do {
		err := f()
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

func (d disk) wantBoots(t *testing.T, want string) {
	t.Helper()
	got := d.boots(t)
	if got != want {
		t.Fatalf("etcd starts on %q, want %q", got, want)
	}
}

func wantRefused(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %q", err, words)
	}
}

// Two restores over each other are undone in the opposite order. The first refuses until the second is undone, and names it.
func TestSecondRestoreAfterAFirst(t *testing.T) {
	for _, f := range []form{plain, withLog} {
		t.Run(string(f), func(t *testing.T) {
			d := newDisk(t, f)
			d.stage(t)
			d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
			first := d.open(t)
			second := d.stageLater(t)
			must(t, second.CloseLive)
			wantState(t, first, swap.Blocked)
			wantRefused(t, first.Undo(), "dr restore --undo "+second.ID+" --data-dir "+d.data)
			s, err := swap.Choose(d.later(), nil)
			if err != nil || s.ID != second.ID {
				t.Errorf("closed: %+v, %v", s, err)
			}
			must(t, second.Place)
			wantState(t, first, swap.Superseded)
			wantRefused(t, first.Undo(), "dr restore --undo "+second.ID+" --data-dir "+d.data)
			d.wantBoots(t, "later")
			must(t, second.Undo)
			d.wantBoots(t, newData)
			must(t, first.Undo)
			d.wantBoots(t, oldData)
			wantRefused(t, second.Undo(), "move the current data dir")
			for _, s := range []*swap.Swap{first, second} {
				err := swap.Clean(s.ID, d.data, "")
				if err != nil {
					t.Error(err)
				}
			}
			d.wantBoots(t, oldData)
			left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
			if len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// Without the newer restore, which was removed, the operator moves the live data aside, and goes back.
func TestUndoAfterTheNewerOneIsRemoved(t *testing.T) {
	d := newDisk(t, plain)
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
	first, second := d.open(t), d.stageLater(t)
	must(t, second.CloseLive, second.Place, func() error { return swap.Clean(second.ID, d.data, "") })
	wantRefused(t, first.Undo(), "stop etcd, move the current data dir")
	must(t, func() error { return os.Rename(d.data, d.data+".bak") }, first.Undo)
	d.wantBoots(t, oldData)
}

// Of two restores that were staged for the same data only the first is placed. The next command builds again.
func TestTwoStagedAtOnce(t *testing.T) {
	for _, f := range []form{plain, withLog} {
		d := newDisk(t, f)
		d.stage(t)
		second, err := swap.New("fedcba98", d.data, d.wal)
		if err != nil {
			t.Fatal(err)
		}
		stage(t, second, d.later(), "later")
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		wantState(t, second, swap.Stale)
		wantRefused(t, second.CloseLive(), "builds again")
		d.wantBoots(t, newData)
		s, err := swap.Choose(d.later(), nil)
		if err != nil || s.ID == id || s.ID == second.ID {
			t.Errorf("%s: %+v, %v", f, s, err)
		}
		left := swapDirs(t, d.data)
		if len(left) != 1 {
			t.Errorf("%s: left: %q", f, left)
		}
	}
}

// A process that has opened the old database and waits for its lock must have given up before new data is in place.
func TestOldDataIsOpen(t *testing.T) {
	swap.WaitLess(t)
	for _, f := range forms {
		d := newDisk(t, f)
		d.stage(t)
		db := filepath.Join(d.data, "member", "snap", "db")
		waiting, err := os.OpenFile(db, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := d.open(t)
		must(t, s.CloseLive)
		wantRefused(t, s.Place(), "stop etcd")
		wantState(t, s, swap.Closed)
		must(t, waiting.Close, s.Place)
		d.wantBoots(t, newData)
		waiting, err = os.OpenFile(db, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, s.Undo(), "stop etcd")
		d.wantBoots(t, "")
		must(t, waiting.Close, s.Undo)
		d.wantBoots(t, oldData)
	}
}

// An error after CloseLive reports that etcd is down, and how to continue.
func TestErrorAfterClose(t *testing.T) {
	swap.WaitLess(t)
	d := newDisk(t, plain)
	d.stage(t)
	waiting, err := os.OpenFile(filepath.Join(d.data, "member", "snap", "db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	err = d.open(t).Switch(t.Context(), nil)
	if err == nil || strings.Contains(err.Error(), "not in use") || !strings.Contains(err.Error(), "etcd cannot start: run the same command again") {
		t.Errorf("error %v", err)
	}
}

// The owner and the mode are given to the new data while the old data is live: that may fail.
func TestOwnerIsGivenBeforeClose(t *testing.T) {
	for _, f := range forms {
		d := newDisk(t, f)
		live := d.data
		if f.isMounted() {
			live = filepath.Join(d.data, "member")
		}
		err := os.Chmod(live, 0o711)
		if err != nil {
			t.Fatal(err)
		}
		d.stage(t)
		s := d.open(t)
		must(t, s.CloseLive)
		info, err := os.Stat(s.Aside(swap.Staged)[0])
		if err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%s: mode %v, %v", f, info.Mode(), err)
		}
	}
}

// An operator moves the live data away while new data is staged: that is neither lost nor in the way.
func TestMovedAwayWhileStaged(t *testing.T) {
	for _, f := range []form{plain, withLog} {
		d := newDisk(t, f)
		d.stage(t)
		s := d.open(t)
		must(t, func() error { return os.Rename(d.data, d.data+".bak") })
		wantState(t, s, swap.Vacated)
		for _, do := range []func() error{s.CloseLive, s.Undo} {
			wantRefused(t, do(), "move it back")
		}
		got, err := swap.Choose(d.plan(), nil)
		if err != nil || got.ID == id {
			t.Errorf("%s: %+v, %v", f, got, err)
		}
		must(t, func() error { return os.Rename(d.data+".bak", d.data) })
		wantState(t, s, swap.Staged)
		must(t, func() error { return os.Rename(d.data, d.data+".bak") }, func() error { return swap.Clean(id, d.data, "") })
	}
}

// The disk of a member may have another path, as in a container or on a rescue system.
func TestOtherPath(t *testing.T) {
	for _, f := range []form{plain, mounted} {
		d := newDisk(t, f)
		d.stage(t)
		must(t, d.open(t).CloseLive)
		parent := filepath.Dir(d.data)
		must(t, func() error { return os.Rename(parent, parent+"-2") })
		d.data = filepath.Join(parent+"-2", "etcd")
		wantState(t, d.open(t), swap.Closed)
		must(t, d.open(t).Undo)
		d.wantBoots(t, oldData)
	}
}

// So may the disk of its log.
func TestOtherPathOfTheLog(t *testing.T) {
	d := newDisk(t, withLog)
	d.stage(t)
	must(t, d.open(t).CloseLive)
	parent := filepath.Dir(d.wal)
	must(t, func() error { return os.Rename(parent, parent+"-2") })
	d.wal = filepath.Join(parent+"-2", "wal")
	s, err := swap.Load(id, d.data, "")
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s.Undo(), "name where the log is now with --wal-dir")
	s, err = swap.Load(id, d.data, d.wal)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s.Undo, func() error { return swap.Clean(id, d.data, d.wal) })
	d.wantBoots(t, oldData)
	left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// All blockers exist before anything is exchanged: a full disk stops no undo.
func TestUndoNeedsNoSpace(t *testing.T) {
	for _, f := range forms {
		d := newDisk(t, f)
		d.stage(t)
		for _, goal := range []swap.Goal{swap.Close, swap.Place} {
			d.walk(t, []swap.Goal{goal}, all)
			v, err := d.open(t).Look()
			if err != nil || v.Facts.Data.Failed != swap.Blocker || v.Facts.Log != nil && v.Facts.Log.Failed != swap.Blocker {
				t.Errorf("%s, %s: %+v, %v", f, goal, v.Facts, err)
			}
		}
	}
}

// A record that is damaged stops only what needs it.
func TestDamagedRecord(t *testing.T) {
	d := newDisk(t, plain)
	d.stage(t)
	s := d.open(t)
	must(t, s.CloseLive)
	record := filepath.Join(filepath.Dir(s.OldData()[0]), "state.json")
	intact, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) {
		err := os.WriteFile(record, content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	write(nil)
	wantDamaged := func(err error) {
		t.Helper()
		if !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), "move it to "+d.data) {
			t.Errorf("error %v", err)
		}
	}
	_, err = swap.Choose(d.plan(), nil)
	wantDamaged(err)
	write(intact)
	must(t, s.Place)
	write(nil)
	_, err = swap.Load(id, d.data, "")
	wantDamaged(err)
	wantDamaged(swap.Clean(id, d.data, ""))
	s, err = swap.Choose(d.plan(), nil)
	if err != nil || s.ID == id {
		t.Errorf("%+v, %v", s, err)
	}
}

// The next command completes a clean that was killed.
func TestKilledClean(t *testing.T) {
	for _, f := range forms {
		d := newDisk(t, f)
		for _, finish := range []func() error{
			func() error { return swap.Clean(id, d.data, "") },
			func() error { _, err := swap.Choose(d.plan(), nil); return err },
		} {
			d.stage(t)
			folder := filepath.Dir(d.open(t).OldData()[0])
			if f.isMounted() {
				folder = filepath.Dir(folder)
			}
			must(t, func() error { return os.Rename(folder, folder+".removed") }, finish)
			left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
			if len(left) > 0 {
				t.Errorf("%s: left: %q", f, left)
			}
			left, _ = filepath.Glob(filepath.Join(d.data, ".dr-swap-*"))
			if len(left) > 0 {
				t.Errorf("%s: left: %q", f, left)
			}
		}
	}
}

// A clean that was killed needs its record to find the log's folder. If the record is damaged, nothing is removed, and other restores work.
func TestKilledCleanWithADamagedRecord(t *testing.T) {
	d := newDisk(t, withLog)
	d.stage(t)
	folder := filepath.Dir(d.open(t).OldData()[0])
	removed := folder + ".removed"
	record := filepath.Join(removed, "state.json")
	must(t, func() error { return os.Rename(folder, removed) })
	intact, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	must(t, func() error { return os.WriteFile(record, nil, 0o600) })
	err = swap.Clean(id, d.data, "")
	if !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), "remove "+removed) {
		t.Errorf("error %v", err)
	}
	s, err := swap.Choose(d.plan(), nil)
	if err != nil || s.ID == id {
		t.Errorf("%+v, %v", s, err)
	}
	for _, dir := range []string{d.data, d.wal} {
		left := swapDirs(t, dir)
		if len(left) != 1 {
			t.Errorf("left: %q", left)
		}
	}
	must(t, func() error { return os.WriteFile(record, intact, 0o600) }, func() error { return swap.Clean(id, d.data, "") })
	left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
