package document

import (
	"cmp"
	"slices"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

// Status is the document of dr status: the state of each cluster in its repositories.
type Status struct {
	Clusters  []ClusterStatus `json:"clusters"` // the worst first
	Attention int             `json:"wanting"`  // how many of them need attention now
}

// ClusterStatus is the state of one cluster in its repositories.
type ClusterStatus struct {
	Cluster    string                `json:"cluster"`
	Suspended  bool                  `json:"suspended"`  // services start nothing for it
	Standings  []condition.Standing  `json:"standings"`  // one for each repository
	Conditions []condition.Condition `json:"conditions"` // the worst first
}

// NewStatus returns the document of clusters, sorted by severity, the worst first, then by name.
func NewStatus(clusters []ClusterStatus) Status {
	d := Status{Clusters: append([]ClusterStatus{}, clusters...)}
	slices.SortStableFunc(d.Clusters, func(a, b ClusterStatus) int {
		return cmp.Or(condition.Compare(a.Conditions, b.Conditions), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, c := range d.Clusters {
		if c.NeedsAttention() {
			d.Attention++
		}
	}
	return d
}

// atOnce contains the conditions that need attention even as warnings: some point cannot be restored.
var atOnce = []condition.Name{
	condition.NoBackup, condition.BackupLate, condition.RepositoryAway, condition.BackupDamaged, condition.LogGap,
}

// NeedsAttention reports whether c needs attention now. Other warnings, such as NeverProven, can wait for a day.
func (c ClusterStatus) NeedsAttention() bool {
	return slices.ContainsFunc(c.Conditions, func(one condition.Condition) bool {
		return one.Severity == condition.Critical || slices.Contains(atOnce, one.Name)
	})
}
