package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// The metrics of EtcdRestores, of which only dr operator has any.
var (
	restoresNow     = describe("restores", "EtcdRestores that exist, by the phase that they are in.", "cluster", "phase")
	restoreEnded    = describe("restore_last_end_timestamp_seconds", "When the last EtcdRestore ended in the phase.", "cluster", "phase")
	restoreDowntime = describe("restore_last_downtime_seconds",
		"Time from the first member's stop until all members served, in the last EtcdRestore that stopped members.", "cluster")
)

func describeRestores(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{restoresNow, restoreEnded, restoreDowntime} {
		to <- d
	}
}

// collectRestores sends the metrics of all EtcdRestores. Their names are no labels: each restore has a new one.
func collectRestores(all []document.ServedRestore, put func(*prometheus.Desc, float64, ...string)) {
	type group struct{ cluster, phase string }
	count, ended, stopped := map[group]float64{}, map[group]document.ServedRestore{}, map[string]document.ServedRestore{}
	for _, r := range all {
		in := group{r.Cluster, r.Phase}
		count[in]++
		if r.Ended && r.Since.After(ended[in].Since) {
			ended[in] = r
		}
		if r.Downtime > 0 && r.Since.After(stopped[r.Cluster].Since) {
			stopped[r.Cluster] = r
		}
	}
	for in, n := range count {
		put(restoresNow, n, in.cluster, in.phase)
	}
	for in, last := range ended {
		at, _ := moment(last.Since)
		put(restoreEnded, at, in.cluster, in.phase)
	}
	for cluster, last := range stopped {
		put(restoreDowntime, last.Downtime, cluster)
	}
}
