package disk

import "github.com/etcd-dr/etcd-dr/storage/catalog"

// Database is what a look at a few pages of a database tells. Whether all of it is whole shows only when it is opened.
type Database struct {
	File     string // absolute
	Size     int64  // bytes
	Index    uint64 // raft's, up to which the log is in it
	Term     uint64 // of the entry there; 0: not known, as in etcd 3.4
	Revision int64  // the newest in the key space
	Version  string // of the cluster, such as 3.5.0: major and minor count; "" if it does not say
	Members  []catalog.Member
	Removed  []string // ids of former members, in hex
	Damage   string   // why it cannot be used; "" as far as the look tells
}
