package swap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Check refuses to stage p if the live data is not that of the member that p places, if its log is not where the Swap expects it, or
// if the new data does not fit next to it.
func (s *Swap) Check(ctx context.Context, p plan.Plan) error {
	err := s.checkLive()
	if err != nil {
		return err
	}
	err = s.checkLog()
	if err != nil {
		return err
	}
	err = s.checkMember(ctx, p)
	if err != nil {
		return err
	}
	data, wal := restore.Need(p)
	return s.checkSpace(data, wal)
}

// CheckVacant refuses to stage p on a disk without old data if the new data does not fit there.
func (s *Swap) CheckVacant(p plan.Plan) error {
	data, wal := restore.Need(p)
	return s.checkSpace(data, wal)
}

// IsVacant reports whether there is no old data: no data dir, or an empty one. It refuses a log without its data dir.
func (s *Swap) IsVacant() (bool, error) {
	f, err := s.facts()
	if err != nil || f.Data.Live != Missing && !f.Data.isVacant() {
		return false, err
	}
	if f.Log == nil || f.Log.Live == Missing || f.Log.isVacant() || isEmptyDir(s.WALDir) {
		return true, nil
	}
	return false, fmt.Errorf("%w: %s is missing, and its log is in %s: move %s aside", fault.Refused, s.data.live, s.WALDir, s.WALDir)
}

func isEmptyDir(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// CheckLive refuses if the live data, for which the new data was built, is now that of another member. Data that names no member passes.
func (s *Swap) CheckLive(ctx context.Context) error {
	r, err := s.Record()
	if err != nil {
		return err
	}
	err = s.checkMember(ctx, r.Plan)
	if errors.Is(err, salvage.ErrNoMember) {
		return nil
	}
	return err
}

// checkMember refuses if the live data is that of another member than p places. Only the log contains the member's id, so checkMember
// links a log in a directory of its own into a temporary data dir.
func (s *Swap) checkMember(ctx context.Context, p plan.Plan) error {
	dir := s.DataDir
	if s.log != nil {
		linked, err := s.linkLog()
		if err != nil {
			return err
		}
		defer linked.Remove()
		dir = linked.Path
	}
	disks, err := salvage.Survey(ctx, catalog.Catalog{}, []string{dir}, nil)
	if err != nil {
		return err
	}
	disks[0].Dir = s.DataDir
	return p.CheckReplaced(disks[0])
}

// linkLog makes a temporary data dir with links to the live database and log.
func (s *Swap) linkLog() (*child.Dir, error) {
	dir, err := child.NewDir("", "swap")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.Mkdir(filepath.Join(dir.Path, member), 0o700),
		os.Symlink(filepath.Join(s.DataDir, member, "snap"), filepath.Join(dir.Path, member, "snap")),
		os.Symlink(s.WALDir, filepath.Join(dir.Path, member, "wal")),
	)
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

// checkSpace refuses if data and wal bytes do not fit on their disks.
func (s *Swap) checkSpace(data, wal int64) error {
	v, err := s.Look()
	if err != nil {
		return err
	}
	err = enough(s.DataDir, v.Data, data, v.Running)
	if err != nil || v.Log == nil {
		return err
	}
	return enough(s.WALDir, *v.Log, wal, v.Running)
}

// checkLive refuses a live path that is missing or not a directory, and a data dir with a part on another disk.
func (s *Swap) checkLive() error {
	for _, p := range s.places() {
		kind, err := p.kind(p.live, identities{})
		switch {
		case err != nil:
			return err
		case kind == Missing && p.live == s.WALDir:
			return fmt.Errorf("%w: --wal-dir %s is missing: name the directory that etcd's --wal-dir names; if the log is lost, move %s aside "+
				"and restore without --replace", fault.Refused, p.live, s.DataDir)
		case kind == Missing:
			return fmt.Errorf("%w: %s is missing: there is nothing to replace; restore without --replace", fault.Refused, p.live)
		case kind == Guard:
			return fmt.Errorf("%w: the old data of %s is lost, and a file keeps etcd from starting there: move that file aside, and restore without --replace",
				fault.Refused, p.live)
		case kind != OtherDir:
			return fmt.Errorf("%w: %s is not a directory: %w", fault.Refused, p.live, errNotDir)
		}
	}
	for _, sub := range []string{member, filepath.Join(member, "wal"), filepath.Join(member, "snap")} {
		err := s.checkOnDisk(filepath.Join(s.DataDir, sub))
		if err != nil {
			return err
		}
	}
	return nil
}

// checkOnDisk refuses a dir of the member that is a symbolic link or a mount point: the new data would not have it, and a reboot would
// mount the old log into the new data.
func (s *Swap) checkOnDisk(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounted, err := filesystem.IsMountPoint(dir)
	if err != nil {
		return err
	}
	if mounted || info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a symbolic link or a mount point, which the new data would not have: stop etcd, move the data aside, "+
			"and restore without --replace", fault.Refused, dir)
	}
	return nil
}

var errNotDir = errors.New("if it is the blocker of another restore, complete that one or undo it; else move it aside")

// checkLog refuses a log in another place than the flags name: etcd would start on the old log with the new data. It looks for the key
// space before the log, because etcd creates them in the other order: a data dir that it is creating now is not refused.
func (s *Swap) checkLog() error {
	inside := filepath.Join(s.DataDir, member, "wal")
	has := func(dir string) bool {
		logs, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		return err == nil && len(logs) > 0
	}
	if s.log == nil {
		unused, err := salvage.IsUnused(s.DataDir)
		if err != nil || unused {
			return err
		}
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

// enough returns an error if need bytes do not fit. A member that runs meanwhile must not find its disk full: then the smaller of need and
// a fifth of the disk must stay free too.
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
