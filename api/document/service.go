package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Problem is the answer to a request to the API that failed.
type Problem struct {
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"` // the remedy; absent if the message contains it
}

// Recovery is the archived log of one cluster: the windows that can be restored to any point, and the gaps.
type Recovery struct {
	Windows []Window `json:"windows"` // oldest first
	Gaps    []Gap    `json:"gaps"`    // oldest first
}

// Drills lists the drills of one cluster's backups.
type Drills struct {
	Drills []catalog.Proof `json:"drills"` // newest first
}

// Jobs lists the jobs of all clusters of a service.
type Jobs struct {
	Running []ClusterJob `json:"running"` // those that run now
	Queued  []ClusterJob `json:"queued"`  // due, and waiting for their turn
	Ended   []ClusterJob `json:"ended"`   // the last run of each job in each cluster and repository, newest first
}

// ClusterJob is a job of one cluster.
type ClusterJob struct {
	Cluster string `json:"cluster"`
	Outcome
}

// Way is the answer to GET /api/v1/clusters/NAME/plan: how to restore a point of the cluster. The service restores nothing. A person runs
// Command: it ends in --dry-run and so only makes and prints the same plan; without --dry-run it restores.
type Way struct {
	Command  string  `json:"command"`                   // a line for a shell, which prints the plan and stops
	Lost     Lost    `json:"lost"`                      // the writes that the plan does not restore
	Estimate float64 `json:"estimateSeconds,omitempty"` // estimated duration of the restore; absent if unknown
	Plan     Plan    `json:"plan"`                      // what Command prints
}

// Lost describes the writes that a plan does not restore.
type Lost struct {
	Message string    `json:"message"`        // in words
	Since   time.Time `json:"since,omitzero"` // writes after this moment are lost; absent if unknown
	// MaybeSince is a moment before which all acknowledged writes are restored. Writes between it and Since may be lost too. Absent
	// if unknown.
	MaybeSince time.Time `json:"maybeSince,omitzero"`
	Seconds    float64   `json:"seconds"`           // from Since until now
	Known      float64   `json:"knownSeconds"`      // the part of Seconds that the repository contains, although the plan omits it
	Revisions  int64     `json:"revisions"`         // how many revisions that part contains, as far as known
	Newest     time.Time `json:"newestAt,omitzero"` // the newest moment that the repository contains
}

// QueuedJob is a job that was put into a service's queue.
type QueuedJob struct {
	Cluster string `json:"cluster"`
	Job     Job    `json:"job"`
	Reason  string `json:"reason"`
}

// WorstFirst returns a copy of clusters, sorted by severity, the worst first, then by name. The copy is never nil.
func WorstFirst(clusters []ServedCluster) []ServedCluster {
	clusters = append([]ServedCluster{}, clusters...)
	slices.SortFunc(clusters, func(a, b ServedCluster) int {
		return cmp.Or(cmp.Compare(severity(b), severity(a)), cmp.Compare(a.Cluster, b.Cluster))
	})
	return clusters
}

// severity returns a number that grows with the severity of a cluster's problems; 0 if there are none.
func severity(s ServedCluster) int {
	critical, warnings := 0, 0
	for _, c := range s.Conditions {
		if c.Severity == condition.Critical {
			critical++
		} else {
			warnings++
		}
	}
	if s.State == StateFailing {
		critical++
	}
	return critical<<16 + warnings
}

// NewDrills returns the drills in c, newest first.
func NewDrills(c catalog.Catalog) Drills {
	d := Drills{Drills: []catalog.Proof{}}
	for _, b := range c.Backups {
		for _, p := range b.Proofs {
			if p.Drill != nil {
				d.Drills = append(d.Drills, p)
			}
		}
	}
	slices.SortStableFunc(d.Drills, func(a, b catalog.Proof) int { return b.Time.Compare(a.Time) })
	return d
}

// NewJobs returns the jobs of all clusters by their state.
func NewJobs(clusters []ServedCluster) Jobs {
	d := Jobs{Running: []ClusterJob{}, Queued: []ClusterJob{}, Ended: []ClusterJob{}}
	for _, s := range clusters {
		if s.State == StateQueued {
			d.Queued = append(d.Queued, ClusterJob{s.Cluster, Outcome{Job: JobBackup, Reason: s.Reason}})
		}
		for _, o := range s.Jobs {
			if o.Ended.IsZero() {
				d.Running = append(d.Running, ClusterJob{s.Cluster, o})
			} else {
				d.Ended = append(d.Ended, ClusterJob{s.Cluster, o})
			}
		}
	}
	slices.SortStableFunc(d.Ended, func(a, b ClusterJob) int { return b.Ended.Compare(a.Ended) })
	return d
}

// NewWay returns the document of a plan p that was made for t from repository r.
func NewWay(p plan.Plan, t plan.Target, r spec.Repository, now time.Time) Way {
	return Way{Command: restoreCommand(p.Cluster, t, r), Lost: newLost(p, now), Estimate: p.Estimate, Plan: p}
}

// restoreCommand returns the line for a shell that makes the same plan on the host where it runs.
func restoreCommand(cluster string, t plan.Target, r spec.Repository) string {
	words := []string{"dr", "restore"}
	if t.Backup != "" {
		words = append(words, string(t.Backup))
	}
	words = append(words, "--repo", r.URL, "--cluster", cluster)
	if r.CredentialsDir != "" {
		words = append(words, "--credentials", r.CredentialsDir)
	}
	for _, key := range r.Policy.Trusted().Keys() {
		words = append(words, "--trust", key)
	}
	if t.Revision > 0 {
		words = append(words, "--to-revision", strconv.FormatInt(t.Revision, 10))
	}
	if !t.Time.IsZero() {
		words = append(words, "--to", t.Time.UTC().Format(time.RFC3339Nano))
	}
	if t.Best {
		words = append(words, "--best")
	}
	words = append(words, "--dry-run")
	return shellescape.QuoteCommand(words)
}

func newLost(p plan.Plan, now time.Time) Lost {
	if p.Backup == nil || p.Reach == nil {
		return Lost{Message: "the loss is unknown"}
	}
	since, revision := p.Backup.Started, p.Backup.Revision
	if p.Log != nil {
		since, revision = p.Reach.NotAfter, p.Reach.Revision
	}
	newest := p.Reach.Newest
	d := Lost{Since: since.UTC(), MaybeSince: p.Reach.NotBefore.UTC(), Newest: newest.Time.UTC()}
	if since.IsZero() {
		d.Message = "the time of the restored state is unknown"
		return d
	}
	d.Seconds, d.Known = max(0, now.Sub(since).Seconds()), max(0, newest.Time.Sub(since).Seconds())
	if revision > 0 {
		d.Revisions = max(0, newest.Revision-revision)
	}
	d.Message = fmt.Sprintf("everything written after %s is lost (the last %s)", d.Since.Format(time.RFC3339), now.Sub(since).Round(time.Second))
	if d.Known > 0 {
		d.Message += fmt.Sprintf("; the repository contains %s of it, which this plan omits", newest.Time.Sub(since).Round(time.Second))
	}
	return d
}
