package disk

import "github.com/etcd-dr/etcd-dr/storage/catalog"

// Database describes a database by a few of its pages. Only opening it shows whether all of it is undamaged.
type Database struct {
	File     string // absolute
	Size     int64  // bytes
	Index    uint64 // raft index of the last entry in it
	Term     uint64 // of that entry; 0: unknown, as in etcd 3.4
	Revision int64  // the newest in the key space
	Version  string // of the cluster, such as 3.5.0, of which only major and minor count; "": unknown
	Members  []catalog.Member
	Removed  []string // ids of former members, in hex
	Damage   string   // the reason why it cannot be used; "": none found
}
