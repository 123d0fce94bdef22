package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/address"
)

// metrics returns the handler of /metrics, with the metrics of s.Metrics. An invalid metric is left out; the others are served.
// docs/metrics.md describes each metric.
func metrics(s Service) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(serviceCollector{s})
	all := prometheus.Gatherers{registry}
	if s.Metrics != nil {
		all = append(all, s.Metrics)
	}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Pruned counts the decisions of the last pruning of a cluster in one repository.
type Pruned struct {
	Cluster, Repository  string
	Keep, Remove, Locked int // Locked: to be removed when their locks end
}

// NewPruned returns the counts of the pruning d in a repository.
func NewPruned(repository string, d document.Prune) Pruned {
	p := Pruned{Cluster: d.Cluster, Repository: repository}
	locked := map[string]bool{} // by folder: several objects of one backup may be locked
	for _, l := range d.Locked {
		locked[path.Base(path.Dir(l.Key))] = true
	}
	for _, b := range d.Backups {
		switch {
		case !b.Keep:
			p.Remove++
		case locked[string(b.ID)]:
			p.Locked++
		default:
			p.Keep++
		}
	}
	return p
}

// serviceCollector reads the status at each scrape. Unknown values are absent.
type serviceCollector struct{ Service }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("etcd_dr_"+name, help, labels, nil)
}

// standingMetric is a metric of one cluster in one repository. It is absent if value returns false.
type standingMetric struct {
	desc  *prometheus.Desc
	value func(condition.Standing) (v float64, ok bool)
}

func standing(name, help string, value func(condition.Standing) (float64, bool)) standingMetric {
	return standingMetric{describe(name, help, "cluster", "repository"), value}
}

func moment(at time.Time) (float64, bool) { return float64(at.UnixMilli()) / 1000, !at.IsZero() }

func ofGood(s condition.Standing, value func(condition.Good) float64) (float64, bool) {
	if s.Good == nil {
		return 0, false
	}
	return value(*s.Good), true
}

var standingMetrics = []standingMetric{
	standing("backup_last_success_timestamp_seconds", "When the newest good backup began.", func(s condition.Standing) (float64, bool) {
		return ofGood(s, func(g condition.Good) float64 { at, _ := moment(g.Started); return at })
	}),
	standing("backup_due_timestamp_seconds", "When the backup after the newest good one is or was due.",
		func(s condition.Standing) (float64, bool) { return moment(s.Due) }),
	standing("backup_last_verified_timestamp_seconds", "When a backup last passed a verify or a drill.",
		func(s condition.Standing) (float64, bool) { return moment(s.Verified) }),
	standing("backup_last_size_bytes", "Size of the database in the newest good backup.", func(s condition.Standing) (float64, bool) {
		return ofGood(s, func(g condition.Good) float64 { return float64(g.Size) })
	}),
	standing("backup_last_stored_bytes", "Size of the newest good backup as it is stored.", func(s condition.Standing) (float64, bool) {
		return ofGood(s, func(g condition.Good) float64 { return float64(g.Stored) })
	}),
	standing("backups", "Backups that are kept, damaged ones too.",
		func(s condition.Standing) (float64, bool) { return float64(s.Backups), !s.At.IsZero() }),
	standing("backups_stored_bytes", "Size of all backups as they are stored.",
		func(s condition.Standing) (float64, bool) { return float64(s.Bytes), !s.At.IsZero() }),
	standing("drill_last_success_timestamp_seconds", "When a drill last passed.",
		func(s condition.Standing) (float64, bool) { return moment(s.Drilled) }),
	standing("drill_last_run_timestamp_seconds", "When the last drill ran, whatever its verdict.", func(s condition.Standing) (float64, bool) {
		if s.Drill == nil {
			return 0, false
		}
		return moment(s.Drill.Time)
	}),
	standing("drill_rto_seconds", "How long the last drill took until a server served the data. Absent if no server did.",
		func(s condition.Standing) (float64, bool) {
			if s.Drill == nil || s.Drill.Drill == nil {
				return 0, false
			}
			return s.Drill.Drill.RTO, s.Drill.Drill.RTO > 0
		}),
	standing("recovery_window_start_timestamp_seconds", "The first moment of the newest recovery window.",
		func(s condition.Standing) (float64, bool) {
			if s.Window == nil {
				return 0, false
			}
			return moment(s.Window.From.Time)
		}),
	standing("recovery_window_end_timestamp_seconds", "The last moment of the newest recovery window.", func(s condition.Standing) (float64, bool) {
		if s.Window == nil {
			return 0, false
		}
		return moment(s.Window.To.Time)
	}),
	standing("log_gaps", "Gaps in the archived log.", func(s condition.Standing) (float64, bool) { return float64(s.Gaps), !s.At.IsZero() }),
}

var (
	serviceRPO = describe("rpo_seconds",
		"What would be lost now: seconds since the last moment up to which every acknowledged write is known to be stored.",
		"cluster")
	recoveryPoint = describe("recovery_point_timestamp_seconds",
		"The last moment up to which every acknowledged write is known to be stored: rpo_seconds is the time since then.", "cluster")
	clusterInfo = describe("cluster_info",
		"1, with the tasks that this service or agent has for the cluster. Services and agents with the same first repository have the same fleet.",
		"cluster", "fleet", "scheduled", "drilled", "archived")
	jobsTotal        = describe("jobs_total", "Jobs that have ended, since the service was started.", "cluster", "job", "verdict")
	jobRunning       = describe("job_running", "1 while the job runs.", "cluster", "job")
	jobDuration      = describe("job_last_duration_seconds", "Duration of the last job that ended.", "cluster", "job")
	conditionNow     = describe("condition", "1 for each condition that holds.", "cluster", "repository", "condition", "severity")
	retentionDecided = describe("retention_decisions", "Backups, by the decision of the last pruning.",
		"cluster", "repository", "decision")
	clusterStopped = describe("cluster_suspended", "1 if nothing is started for the cluster.", "cluster")
	clusterState   = describe("cluster_state", "1 for the state that the cluster is in.", "cluster", "state")
	configRefused  = describe("config_refused", "1 if the configuration file cannot be used, so that an older configuration is in effect.")
	configLoaded   = describe("config_loaded_timestamp_seconds", "When the configuration that is in effect was read.")
	buildInfo      = describe("build_info", "1, with the version of dr.", "version")
	serviceDescs   = []*prometheus.Desc{
		serviceRPO, recoveryPoint, clusterInfo, jobsTotal, jobRunning, jobDuration, conditionNow, retentionDecided, clusterStopped, clusterState, configRefused, configLoaded, buildInfo,
	}
	countedJobs     = []document.Job{document.JobBackup, document.JobPrune, document.JobDrill}
	countedVerdicts = []document.Verdict{document.Succeeded, document.Failed, document.NotRun}
)

func (c serviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range serviceDescs {
		to <- d
	}
	for _, m := range standingMetrics {
		to <- m.desc
	}
	describeArchive(to)
	describeRestores(to)
}

func (c serviceCollector) Collect(to chan<- prometheus.Metric) {
	d, now := c.Status(), time.Now()
	put := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	put(buildInfo, 1, c.Version)
	put(configRefused, one(d.Config.Refused != ""))
	at, ok := moment(d.Config.Since)
	if ok {
		put(configLoaded, at)
	}
	c.collectPruned(d.Clusters, put)
	collectRestores(d.Restores, put)
	for _, s := range d.Clusters {
		put(clusterState, 1, s.Cluster, string(s.State))
		put(clusterStopped, one(s.Suspension != nil || s.State == document.StateSuspended), s.Cluster)
		c.collectInfo(s.Cluster, put)
		at, ok := moment(s.RecoveryPoint(now))
		if ok {
			put(recoveryPoint, at, s.Cluster)
			put(serviceRPO, max(0, float64(now.UnixMilli())/1000-at), s.Cluster)
		}
		for _, standing := range s.Standings {
			for _, m := range standingMetrics {
				v, ok := m.value(standing)
				if ok {
					put(m.desc, v, s.Cluster, standing.Repository)
				}
			}
		}
		for _, held := range s.Conditions {
			put(conditionNow, 1, s.Cluster, held.Repository, string(held.Name), string(held.Severity))
		}
		collectJobs(s, put, to)
		if s.Archive != nil {
			collectArchive(*s.Archive, now, to)
		}
	}
}

// collectPruned sends the counts of the clusters that are still configured.
func (c serviceCollector) collectPruned(clusters []document.ServedCluster, put func(*prometheus.Desc, float64, ...string)) {
	if c.Pruned == nil {
		return
	}
	for _, p := range c.Pruned() {
		if slices.ContainsFunc(clusters, func(s document.ServedCluster) bool { return s.Cluster == p.Cluster }) {
			put(retentionDecided, float64(p.Keep), p.Cluster, p.Repository, "keep")
			put(retentionDecided, float64(p.Remove), p.Cluster, p.Repository, "remove")
			put(retentionDecided, float64(p.Locked), p.Cluster, p.Repository, "locked")
		}
	}
}

// one returns 1 for true, 0 for false.
func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// collectInfo sends the configured jobs of a cluster, so that an alert can detect that no service carries them out.
func (c serviceCollector) collectInfo(cluster string, put func(*prometheus.Desc, float64, ...string)) {
	if c.Spec == nil {
		return
	}
	spec, err := c.Spec(cluster)
	if err != nil { // it is no longer configured
		return
	}
	scheduled := !spec.Schedule.None() || !spec.Triggers.None()
	put(clusterInfo, 1, cluster, fleet(spec.Repositories[0].URL), strconv.FormatBool(scheduled),
		strconv.FormatBool(!spec.Drill.Schedule.None()), strconv.FormatBool(spec.Archive.Flush > 0))
}

// fleet returns 8 hex digits that are the same for all services and agents whose first repository is at url.
func fleet(url string) string {
	a, err := address.Parse(url)
	if err == nil {
		url = a.Place()
	}
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:4])
}

func collectJobs(s document.ServedCluster, put func(*prometheus.Desc, float64, ...string), to chan<- prometheus.Metric) {
	for _, job := range countedJobs {
		running, last := false, document.Outcome{}
		for _, o := range s.Jobs {
			if o.Job != job {
				continue
			}
			running = running || o.Ended.IsZero()
			if o.Ended.After(last.Ended) {
				last = o
			}
		}
		put(jobRunning, one(running), s.Cluster, string(job))
		if !last.Ended.IsZero() {
			put(jobDuration, last.Ended.Sub(last.Began).Seconds(), s.Cluster, string(job))
		}
		for _, v := range countedVerdicts {
			n := float64(s.Counted(job, v))
			to <- prometheus.MustNewConstMetric(jobsTotal, prometheus.CounterValue, n, s.Cluster, string(job), string(v))
		}
	}
}
