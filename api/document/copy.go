package document

// Copy is the result of dr copy.
type Copy struct {
	From     string          `json:"from"`     // URL of the source
	To       string          `json:"to"`       // URL of the target
	Clusters []CopiedCluster `json:"clusters"` // those that were copied
}

// CopiedCluster is the result of copying one cluster.
type CopiedCluster struct {
	Cluster  string      `json:"cluster"`
	Backups  int         `json:"backups"`  // backups that the target did not have before
	Segments int         `json:"segments"` // segments of the log that the target did not have before
	Assets   int         `json:"assets"`   // versions of nodes' assets that the target did not have before
	Objects  int         `json:"objects"`  // copied, of every kind
	Bytes    int64       `json:"bytes"`    // the size of these objects
	Present  int         `json:"present"`  // objects that the target already had, and backups that are deleted at both
	LeftOut  int         `json:"leftOut"`  // backups and segments from before --since, deleted at only one of the two, or pruned at either
	Faults   []NotCopied `json:"faults"`   // objects that could not be copied
}

// NotCopied is an object that could not be copied.
type NotCopied struct {
	Key     string `json:"key"`     // of the object
	Message string `json:"message"` // the reason
}
