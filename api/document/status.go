package document

import (
	"cmp"
	"slices"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

// Status is dr status: how clusters stand, the worst first.
type Status struct {
	Clusters []ClusterStatus `json:"clusters"`
	Wanting  int             `json:"wanting"` // of them, those to which somebody must see now
}

// ClusterStatus is how one cluster stands in its repositories.
type ClusterStatus struct {
	Cluster    string                `json:"cluster"`
	Suspended  bool                  `json:"suspended"`
	Standings  []condition.Standing  `json:"standings"`  // one a repository
	Conditions []condition.Condition `json:"conditions"` // the worst first
}

// NewStatus puts the worst first.
func NewStatus(clusters []ClusterStatus) Status {
	d := Status{Clusters: append([]ClusterStatus{}, clusters...)}
	slices.SortStableFunc(d.Clusters, func(a, b ClusterStatus) int {
		return cmp.Or(condition.Compare(a.Conditions, b.Conditions), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, c := range d.Clusters {
		if c.Wanting() {
			d.Wanting++
		}
	}
	return d
}

// atOnce are conditions that are wanting as warnings too: there is something that cannot be restored.
var atOnce = []condition.Name{
	condition.NoBackup, condition.BackupLate, condition.RepositoryAway, condition.BackupDamaged, condition.LogGap,
}

// Wanting reports whether somebody must see to c now. What is promised and not kept, or never proven, can wait for a day.
func (c ClusterStatus) Wanting() bool {
	return slices.ContainsFunc(c.Conditions, func(one condition.Condition) bool {
		return one.Severity == condition.Critical || slices.Contains(atOnce, one.Name)
	})
}
