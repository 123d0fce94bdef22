package swap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// View describes the disk of a member during a restore in place.
type View struct {
	State   State
	Facts   Facts
	Vacant  bool // there is no old data
	Running bool // a process holds etcd's locks in the live data

	Owner *Owner // of the live data; nil: there is none

	Data filesystem.Space  // of its file system
	Log  *filesystem.Space // of the log's file system; nil: the log is in the data dir
}

// Owner is the owner of a directory, and its permissions.
type Owner struct {
	UID, GID int
	Mode     fs.FileMode
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
	v.Vacant = v.Facts.Data.isVacant()
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
	if !directory.has(v.Facts.Data.Live) {
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
	uid, gid, err := filesystem.OwnerOf(s.data.live)
	if err != nil {
		return err
	}
	v.Owner = &Owner{uid, gid, info.Mode().Perm()}
	v.Running, err = salvage.RunningWith(s.DataDir, s.walDir())
	return err
}

// HasBegun reports whether Stage has stored its record of the live data. Until then the restore has changed nothing at the live path.
func (s *Swap) HasBegun() (bool, error) {
	_, err := s.Record()
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// facts returns the facts that decide the next action.
func (s *Swap) facts() (f Facts, err error) {
	r, err := s.Record()
	if errors.Is(err, fault.NotFound) {
		return s.liveFacts()
	}
	if err != nil {
		return Facts{}, err
	}
	ids := r.identities()
	f.Data, err = s.data.look(ids[0])
	if err != nil || s.log == nil {
		return f, err
	}
	slot, err := s.log.look(ids[1])
	f.Log = &slot
	return f, err
}

// liveFacts returns the facts without a record. A log's folder, if there is one, is then the rest of a Clean that was killed.
func (s *Swap) liveFacts() (f Facts, err error) {
	f.Data, err = s.data.lookLive()
	if err != nil || s.log == nil {
		return f, err
	}
	slot, err := s.log.lookLive()
	f.Log = &slot
	return f, err
}
