package document

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/address"
)

// ConfigCheck is the document of dr config check: the configuration, explained.
type ConfigCheck struct {
	Concurrency  int             `json:"concurrency"`  // backups at a time, of all clusters
	LeaseSeconds float64         `json:"leaseSeconds"` // how long another service waits before it takes over a job
	Clusters     []ConfigCluster `json:"clusters"`     // by name
}

// ConfigCluster explains the settings of one cluster.
type ConfigCluster struct {
	Cluster      string             `json:"cluster"`
	Suspended    bool               `json:"suspended"`         // the service starts nothing for it
	Schedule     string             `json:"schedule"`          // of backups, as written; empty: there is none
	Zone         string             `json:"zone"`              // the time zone of the schedule
	DelaySeconds float64            `json:"delaySeconds"`      // by how much the jitter delays this cluster
	Next         []time.Time        `json:"next"`              // the next three moments, with the delay
	Triggers     []string           `json:"triggers"`          // other reasons that make a backup due
	Keeps        []string           `json:"keeps"`             // the retention in words; empty: everything is kept
	Repositories []ConfigRepository `json:"repositories"`      // where its backups are stored
	Require      string             `json:"require"`           // "all" or "any": how many of the repositories a backup must reach
	Recipients   []string           `json:"recipients"`        // the first 16 characters of each; empty: backups are not encrypted
	Endpoints    []string           `json:"endpoints"`         // the cluster's
	From         string             `json:"from"`              // which member a backup reads
	Drill        *ConfigDrill       `json:"drill,omitempty"`   // its drills; absent: there are none
	Archive      *ConfigArchive     `json:"archive,omitempty"` // how its log is archived, into the first repository; absent: it is not
}

// ConfigArchive explains how the log of a cluster is archived, into the first of its repositories.
type ConfigArchive struct {
	FlushSeconds float64 `json:"flushSeconds"` // how often it is stored
	Spool        string  `json:"spool"`        // directory; empty: there is none
	SpoolMax     int64   `json:"spoolMax"`     // bytes
}

// ConfigDrill is the explanation of a cluster's drills.
type ConfigDrill struct {
	Schedule     string      `json:"schedule"`     // as written; empty: only on request
	Zone         string      `json:"zone"`         // the time zone of the schedule
	DelaySeconds float64     `json:"delaySeconds"` // by how much the jitter delays this cluster
	Next         []time.Time `json:"next"`         // the next three moments, with the delay
	Repository   string      `json:"repository"`   // the name of the source
	Assertions   []string    `json:"assertions"`   // the expectations of the restored data, as written
	Keys         bool        `json:"keys"`         // a private key is configured, without which encrypted backups cannot be drilled
	ScratchDir   string      `json:"scratchDir"`   // empty: the system's temporary directory
	MemoryLimit  int64       `json:"memoryLimit"`  // bytes; 0: none
	Nice         int         `json:"nice"`         // of the process that restores
}

// ConfigRepository is the explanation of one of a cluster's repositories.
type ConfigRepository struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`             // without credentials
	Keeps  []string `json:"keeps,omitempty"` // its own retention; absent: the cluster's applies
	Signed bool     `json:"signed"`          // a signing key is configured: dr signs what it writes there
}

// shownMoments is the number of next moments in a document.
const shownMoments = 3

// NewConfigCheck returns the explanation of c. Next moments are those after now.
func NewConfigCheck(c spec.Config, now time.Time) ConfigCheck {
	d := ConfigCheck{Concurrency: c.Concurrency, LeaseSeconds: c.Lease.Seconds(), Clusters: []ConfigCluster{}}
	for _, s := range c.Specs {
		d.Clusters = append(d.Clusters, configCluster(s, now))
	}
	return d
}

func configCluster(s spec.Spec, now time.Time) ConfigCluster {
	d := ConfigCluster{
		Cluster: s.Cluster, Suspended: s.Suspend, Schedule: s.Schedule.String(), DelaySeconds: s.Schedule.Delay().Seconds(),
		Next: next(s.Schedule, now), Zone: zone(s.Schedule), Triggers: triggers(s.Triggers), Keeps: keeps(s.Retention), Repositories: []ConfigRepository{},
		Require: string(s.Backup.Require), Recipients: append([]string{}, s.Backup.To.Seal().Recipients...),
		Endpoints: append([]string{}, s.Etcd.Endpoints...), From: s.Backup.From,
	}
	if !s.Drill.None() {
		d.Drill = configDrill(s.Drill, now)
	}
	a := s.Archive
	if a.Flush > 0 {
		d.Archive = &ConfigArchive{a.Flush.Seconds(), a.Spool, a.SpoolMax}
	}
	for _, r := range s.Repositories {
		in := ConfigRepository{Name: r.Name, URL: address.Shown(r.URL), Signed: !r.Policy.Key.Trust().None()}
		if r.Retention != (retention.Policy{}) {
			in.Keeps = keeps(r.Retention)
		}
		d.Repositories = append(d.Repositories, in)
	}
	return d
}

func configDrill(drill spec.Drill, now time.Time) *ConfigDrill {
	return &ConfigDrill{
		Schedule: drill.Schedule.String(), Zone: zone(drill.Schedule), DelaySeconds: drill.Schedule.Delay().Seconds(), Next: next(drill.Schedule, now),
		Repository: drill.Repository, Assertions: append([]string{}, drill.Assertions...), Keys: !drill.Keys.None(), ScratchDir: drill.Dir,
		MemoryLimit: drill.Memory, Nice: drill.Nice,
	}
}

// next returns the first shownMoments moments of s after now.
func next(s spec.Schedule, now time.Time) []time.Time {
	moments := []time.Time{}
	for at := s.Next(now); !at.IsZero() && len(moments) < shownMoments; at = s.Next(at) {
		moments = append(moments, at.UTC())
	}
	return moments
}

func zone(s spec.Schedule) string {
	if s.None() {
		return ""
	}
	return s.Zone().String()
}

func triggers(t spec.Triggers) []string {
	all := []string{}
	if t.Revisions > 0 {
		all = append(all, fmt.Sprintf("%d revisions", t.Revisions))
	}
	if t.Bytes > 0 {
		all = append(all, humanize.IBytes(uint64(t.Bytes))+" of log")
	}
	if t.Gap {
		all = append(all, "a gap in the log")
	}
	return all
}

// keeps returns the rules of a policy in words.
func keeps(p retention.Policy) []string {
	all := []string{}
	for _, rule := range []struct {
		n    int
		name string
	}{
		{p.Last, "last"}, {p.Hourly, "hourly"}, {p.Daily, "daily"}, {p.Weekly, "weekly"}, {p.Monthly, "monthly"}, {p.Yearly, "yearly"},
	} {
		if rule.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", rule.n, rule.name))
		}
	}
	if p.Within > 0 {
		all = append(all, fmt.Sprintf("all within %s", retention.Span(p.Within)))
	}
	if p.Window > 0 {
		all = append(all, fmt.Sprintf("a window of %s", retention.Span(p.Window)))
	}
	if p.MaxSize > 0 {
		all = append(all, fmt.Sprintf("at most %s", humanize.IBytes(uint64(p.MaxSize))))
	}
	if p.MinCopies > 0 {
		all = append(all, fmt.Sprintf("at least %d good backups", p.MinCopies))
	}
	return all
}
