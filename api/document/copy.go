package document

import "github.com/etcd-dr/etcd-dr/storage/copying"

// Taken is dr backup.
type Taken struct {
	Backup
	Stores []TakenStore `json:"stores"` // in the order in which they were named
}

// TakenStore is the result of a backup in one repository.
type TakenStore struct {
	Repository string `json:"repository"`
	Stored     bool   `json:"stored"`
	Message    string `json:"message,omitempty"` // why it is not stored
}

// Copy is dr copy.
type Copy struct {
	From     string          `json:"from"`
	To       string          `json:"to"`
	Clusters []CopiedCluster `json:"clusters"`
}

// CopiedCluster is the result of copying one cluster.
type CopiedCluster struct {
	Cluster  string      `json:"cluster"`
	Backups  int         `json:"backups"`  // that are new at the target
	Segments int         `json:"segments"` // of the log that are new at the target
	Objects  int         `json:"objects"`  // copied, of every kind
	Bytes    int64       `json:"bytes"`    // of them
	Present  int         `json:"present"`  // objects that the target already had
	LeftOut  int         `json:"leftOut"`  // backups and segments from before --since, and backups deleted at the target
	Faults   []NotCopied `json:"faults"`
}

// NotCopied is an object that could not be copied.
type NotCopied struct {
	Key     string `json:"key"`
	Message string `json:"message"`
}

// Add appends the result of copying a cluster to c.
func (c *Copy) Add(cluster string, r copying.Result) {
	d := CopiedCluster{
		Cluster: cluster, Backups: r.Backups, Segments: r.Segments, Objects: r.Objects, Bytes: r.Bytes,
		Present: r.Present, LeftOut: r.LeftOut, Faults: []NotCopied{},
	}
	for _, f := range r.Faults {
		d.Faults = append(d.Faults, NotCopied{f.Key, f.Err.Error()})
	}
	c.Clusters = append(c.Clusters, d)
}
