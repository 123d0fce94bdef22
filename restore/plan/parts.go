package plan

import (
	"path/filepath"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// BaseFile returns the file that is the base; "" if a backup is.
func (p Plan) BaseFile() string {
	if p.Salvage != nil && p.Salvage.Database != nil {
		return p.Salvage.Database.File
	}
	return p.File
}

// Replays reports whether requests are applied to the base.
func (p Plan) Replays() bool { return p.Log != nil || p.DiskLog() != nil }

// DiskLog returns the part of a disk's log that is replayed; nil if none is.
func (p Plan) DiskLog() *DiskLog {
	if p.Salvage == nil {
		return nil
	}
	return p.Salvage.Log
}

// Dirs returns the data dirs of which the plan uses something.
func (s *Salvage) Dirs() (dirs []string) {
	for _, d := range s.Disks {
		base := s.Database != nil && strings.HasPrefix(s.Database.File, d.Dir+string(filepath.Separator))
		if base || s.Log != nil && s.Log.Dir == d.Dir {
			dirs = append(dirs, d.Dir)
		}
	}
	return dirs
}

// UnseenBy describes the state that a log from source does not contain; "" if it contains everything.
func UnseenBy(source segment.Source) string {
	if source == segment.Watch {
		return "users and roles, leases without keys, and alarms are as in the backup"
	}
	return ""
}
