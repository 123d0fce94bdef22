package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// View describes the disk of a member.
type View struct {
	State   State
	Facts   Facts
	Running bool // a process holds etcd's locks in the live data

	UID, GID int         // of the live data
	Mode     fs.FileMode // of the live data

	Data filesystem.Space  // of its file system
	Log  *filesystem.Space // of the log's file system; nil: the log is in the data dir
}

// Look returns the state of the disk. It changes nothing, and takes no lock.
func (s *Swap) Look() (View, error) {
	var v View
	var err error
	v.Facts, err = s.facts()
	if err != nil {
		return View{}, err
	}
	v.State = v.Facts.State()
	v.Data, err = filesystem.SpaceOf(filepath.Dir(s.data.folder))
	if err != nil {
		return View{}, err
	}
	if s.log != nil {
		space, err := filesystem.SpaceOf(filepath.Dir(s.log.folder))
		if err != nil {
			return View{}, err
		}
		v.Log = &space
	}
	if v.Facts.Data.Live != Dir {
		return v, nil
	}
	return v, s.lookLive(&v)
}

// lookLive sets the fields of v that describe the live data.
func (s *Swap) lookLive(v *View) error {
	info, err := os.Stat(s.data.live)
	if err != nil {
		return err
	}
	v.Mode = info.Mode().Perm()
	v.UID, v.GID, err = filesystem.OwnerOf(s.data.live)
	if err != nil {
		return err
	}
	v.Running, err = salvage.RunningWith(s.DataDir, s.walDir())
	return err
}

// facts returns the facts that decide the next action.
func (s *Swap) facts() (f Facts, err error) {
	r, err := s.Record()
	if err != nil && !errors.Is(err, fault.NotFound) {
		return Facts{}, err
	}
	f.Built = r.Result != nil
	f.Data, err = s.data.look()
	if err != nil || s.log == nil {
		return f, err
	}
	slot, err := s.log.look()
	f.Log = &slot
	return f, err
}

// Check refuses to stage if the live data is not that of a member with its log where the Swap expects it, or if need bytes do not fit.
func (s *Swap) Check(data, log int64) error {
	v, err := s.Look()
	if err != nil {
		return err
	}
	err = s.checkLive(v.Facts)
	if err != nil {
		return err
	}
	err = s.checkLog()
	if err != nil {
		return err
	}
	err = enough(s.DataDir, v.Data, data, v.Running)
	if err != nil || v.Log == nil {
		return err
	}
	return enough(s.WALDir, *v.Log, log, v.Running)
}

func (s *Swap) checkLive(f Facts) error {
	for _, p := range s.places() {
		kind, err := p.kind(p.live)
		switch {
		case err != nil:
			return err
		case kind == Missing:
			return fmt.Errorf("%w: %s is missing, there is nothing to replace: restore without --replace", fault.Refused, p.live)
		case kind != Dir:
			return fmt.Errorf("%w: %s is not a directory: %w", fault.Refused, p.live, errNotDir)
		}
	}
	for _, dir := range []string{filepath.Join(s.DataDir, member), filepath.Join(s.DataDir, member, "wal"), filepath.Join(s.DataDir, member, "snap")} {
		info, err := os.Lstat(dir)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s is a symbolic link, which the new data would not have: stop etcd, move %s aside, "+
				"and restore without --replace", fault.Refused, dir, s.DataDir)
		}
	}
	return nil
}

var errNotDir = errors.New("if it is the blocker of another restore, complete that one or undo it; else move it aside")

// checkLog refuses a log in another place than the flags name: etcd would start on the old log with the new data.
func (s *Swap) checkLog() error {
	inside := filepath.Join(s.DataDir, member, "wal")
	has := func(dir string) bool {
		logs, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		return err == nil && len(logs) > 0
	}
	switch {
	case s.log == nil && !has(inside):
		return fmt.Errorf("%w: %s has no log: name etcd's --wal-dir with --wal-dir; if the log is lost, move %s aside "+
			"and restore without --replace", fault.Refused, inside, s.DataDir)
	case s.log != nil && has(inside):
		return fmt.Errorf("%w: %s has a log: omit --wal-dir if etcd runs without it", fault.Refused, inside)
	case s.log != nil && !has(s.WALDir):
		return fmt.Errorf("%w: --wal-dir %s has no log: name the directory that etcd's --wal-dir names", fault.Refused, s.WALDir)
	}
	return nil
}

// enough returns an error if need bytes do not fit. A member that runs meanwhile must not find its disk full: as much again must stay free,
// or a fifth of the disk.
func enough(dir string, space filesystem.Space, need int64, running bool) error {
	spare := int64(0)
	if running {
		spare = min(need, space.Total/5)
	}
	if space.Free >= need+spare {
		return nil
	}
	remedy := "make room"
	if running {
		remedy = "make room, or stop etcd first: while it runs, a part must stay free"
	}
	return fmt.Errorf("%w: the disk of %s has %d MiB free, the restore needs %d MiB next to the old data: %s",
		fault.Refused, dir, space.Free>>20, (need+spare)>>20+1, remedy)
}
