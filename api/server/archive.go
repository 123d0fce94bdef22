// Package server is the HTTP side of a service and of an archiving agent: API, status, metrics, probes and access.
package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

// Archive returns the handler of an archiving agent: /status as JSON, /metrics for Prometheus, and /healthz, which returns 503 while
// the agent waits for a member, a leader, a store or its first backup, or knows that the members diverged or the cluster changed.
// repository is the URL into which it archives. The handler requires no login and reveals no secret; it is meant for loopback, or for a
// pod's own network.
func Archive(status func() archive.Status, repository string) http.Handler {
	agent := func() document.Agent { return convert.Agent(status()) }
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(archiveCollector{agent, fleet(repository)})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(document.NewArchiveStatus(agent(), time.Now())) // an error means that the client has disconnected
	})
	mux.HandleFunc("GET "+healthzPath, func(w http.ResponseWriter, _ *http.Request) {
		s := agent()
		why := unhealthy(s)
		if why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(s.State + "\n"))
	})
	return mux
}

// unhealthy returns why an operator must inspect an agent or its cluster, "" if nothing is known to be wrong.
func unhealthy(s document.Agent) string {
	switch {
	case s.State == document.AgentWaiting:
		return s.Problem
	case s.Diverged != "":
		return string(condition.MembersDiverged) + ": " + s.Diverged
	case s.Changed != "":
		return string(condition.ClusterChanged) + ": " + s.Changed
	}
	return ""
}

// archiveCollector reads the status at each scrape.
type archiveCollector struct {
	status func() document.Agent
	fleet  string
}

var (
	rpoSeconds = prometheus.NewDesc("etcd_dr_archive_rpo_seconds",
		"What would be lost now: seconds since the last moment up to which every acknowledged write is known to be stored. Absent while no such moment is known, and on standby.",
		[]string{"cluster"}, nil)
	workingNow = prometheus.NewDesc("etcd_dr_archive_working",
		"1 if this agent archives, 0 if it stands by or waits.", []string{"cluster"}, nil)
	basedNow = prometheus.NewDesc("etcd_dr_archive_based",
		"1 if the log has a base backup, 0 if it has none and so restores nothing. Absent on standby.",
		[]string{"cluster"}, nil)
	changedNow = prometheus.NewDesc("etcd_dr_archive_cluster_changed",
		"1 if the newest backups are of a history that is not the cluster's own, that no restore by dr began and that no pin confirms. Absent on standby.",
		[]string{"cluster"}, nil)
	divergedNow = prometheus.NewDesc("etcd_dr_archive_members_diverged",
		"1 if the cluster's members are known to hold different key spaces. Absent on standby.", []string{"cluster"}, nil)
	lastGap = prometheus.NewDesc("etcd_dr_archive_last_gap_timestamp_seconds",
		"When this agent last recorded a gap. Absent if it has recorded none since it was started.", []string{"cluster"}, nil)
	headroomSeconds = prometheus.NewDesc("etcd_dr_archive_purge_headroom_seconds",
		"Seconds until etcd would purge a file of its log that is not stored in full, if this agent stopped now. Absent if etcd purges none, and with source watch.",
		[]string{"cluster"}, nil)
	archiveMetrics = []archiveMetric{
		gauge("durable_position", "Last stored position: raft index or, with source watch, revision.", func(s document.Agent) float64 { return float64(s.Durable) }),
		gauge("pending_requests", "Requests that are read and not stored yet.", func(s document.Agent) float64 { return float64(s.PendingRequests) }),
		gauge("pending_bytes", "Bytes of requests that are read and not stored yet.", func(s document.Agent) float64 { return float64(s.PendingBytes) }),
		gauge("unlinked_bytes", "Bytes of purged files that exist only because this agent has them open.",
			func(s document.Agent) float64 { return float64(s.Headroom.UnlinkedBytes) }),
		gauge("spool_bytes", "Bytes of segments that wait in the spool.", func(s document.Agent) float64 { return float64(s.Spool.Bytes) }),
		gauge("spool_max_bytes", "Bytes that the spool may contain, 0 without a spool.", func(s document.Agent) float64 { return float64(s.Spool.Max) }),
		counter("segments_total", "Segments stored.", func(s document.Agent) float64 { return float64(s.StoredSegments) }),
		counter("requests_total", "Requests stored.", func(s document.Agent) float64 { return float64(s.StoredRequests) }),
		counter("bytes_total", "Bytes stored.", func(s document.Agent) float64 { return float64(s.StoredBytes) }),
		counter("gaps_total", "Gaps recorded.", func(s document.Agent) float64 { return float64(s.Gaps) }),
		counter("store_failures_total", "Failed attempts to store a segment.", func(s document.Agent) float64 { return float64(s.Failures) }),
	}
)

type archiveMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(document.Agent) float64
}

func gauge(name, help string, value func(document.Agent) float64) archiveMetric {
	return archiveMetric{prometheus.NewDesc("etcd_dr_archive_"+name, help, []string{"cluster"}, nil), prometheus.GaugeValue, value}
}

func counter(name, help string, value func(document.Agent) float64) archiveMetric {
	return archiveMetric{prometheus.NewDesc("etcd_dr_archive_"+name, help, []string{"cluster"}, nil), prometheus.CounterValue, value}
}

func (c archiveCollector) Describe(to chan<- *prometheus.Desc) {
	to <- clusterInfo
	describeArchive(to)
}

func (c archiveCollector) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	to <- prometheus.MustNewConstMetric(clusterInfo, prometheus.GaugeValue, 1, s.Cluster, c.fleet, "false", "false", "true") // scheduled, drilled, archived
	collectArchive(s, time.Now(), to)
}

func describeArchive(to chan<- *prometheus.Desc) {
	to <- rpoSeconds
	to <- workingNow
	to <- basedNow
	to <- changedNow
	to <- divergedNow
	to <- lastGap
	to <- headroomSeconds
	for _, m := range archiveMetrics {
		to <- m.desc
	}
}

// collectArchive sends the metrics of one agent.
func collectArchive(s document.Agent, now time.Time, to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(workingNow, prometheus.GaugeValue, one(s.State == document.AgentWorking), s.Cluster)
	lost, ok := s.RPO(now)
	if ok && s.State != document.AgentStandby {
		to <- prometheus.MustNewConstMetric(rpoSeconds, prometheus.GaugeValue, lost.Seconds(), s.Cluster)
	}
	if s.State != document.AgentStandby {
		to <- prometheus.MustNewConstMetric(basedNow, prometheus.GaugeValue, one(s.Based), s.Cluster)
		to <- prometheus.MustNewConstMetric(changedNow, prometheus.GaugeValue, one(s.Changed != ""), s.Cluster)
		to <- prometheus.MustNewConstMetric(divergedNow, prometheus.GaugeValue, one(s.Diverged != ""), s.Cluster)
	}
	at, ok := moment(s.LastGap)
	if ok {
		to <- prometheus.MustNewConstMetric(lastGap, prometheus.GaugeValue, at, s.Cluster)
	}
	if s.Headroom.Purges {
		to <- prometheus.MustNewConstMetric(headroomSeconds, prometheus.GaugeValue, s.Headroom.Seconds, s.Cluster)
	}
	for _, m := range archiveMetrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), s.Cluster)
	}
}
