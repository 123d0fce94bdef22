// Package disk has the facts that the data dirs of stopped members show, as values: package salvage reads them, and package plan
// decides what a restore takes of them.
package disk

import "github.com/etcd-dr/etcd-dr/storage/catalog"

// Disk is what is left of one member.
type Disk struct {
	Dir       string // the data dir, absolute
	Cluster   string // id in hex, "" if its log does not say
	Member    string // id in hex, "" if its log does not say
	Running   bool   // somebody holds its locks
	Databases []Database
	Log       Log
}

// Self is the member as its databases know it.
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
