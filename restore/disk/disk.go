// Package disk describes the data dirs of stopped members, as values. Package salvage reads them, and package plan selects the
// parts of them that a restore uses.
package disk

import "github.com/etcd-dr/etcd-dr/storage/catalog"

// Disk describes the data dir of one member.
type Disk struct {
	Dir       string // the data dir, absolute
	Cluster   string // id in hex; "" if its log does not name it
	Member    string // id in hex; "" if its log does not name it
	Running   bool   // a process holds its locks
	Databases []Database
	Log       Log
}

// Self returns the member as its databases know it; false if none does.
func (d Disk) Self() (catalog.Member, bool) {
	for _, db := range d.Databases {
		for _, m := range db.Members {
			if m.ID == d.Member {
				return m, true
			}
		}
	}
	return catalog.Member{}, false
}
