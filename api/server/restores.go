package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// The metrics of EtcdRestores. Only dr operator has EtcdRestores.
var (
	restoresNow     = describe("restores", "Number of EtcdRestores in the phase.", "cluster", "phase")
	restoreEnded    = describe("restore_last_end_timestamp_seconds", "Unix time at which an EtcdRestore last ended in the phase.", "cluster", "phase")
	restoreDowntime = describe("restore_last_downtime_seconds",
		"Time from the first member's stop until all members served, in the last EtcdRestore that stopped members.", "cluster")
)

func describeRestores(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{restoresNow, restoreEnded, restoreDowntime} {
		to <- d
	}
}

// collectRestores calls put for each metric of all EtcdRestores. Their names are not labels, because every restore would add a time series.
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
