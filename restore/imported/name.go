package imported

import (
	"regexp"
	"strconv"
	"time"
)

// Name holds what the name of a snapshot reveals.
type Name struct {
	Tool     string    // the tool that uses such names; "": unknown
	Written  time.Time // zero: the name has no time
	Unusable string    // why it is no snapshot that can be imported; "": it may be one
}

// nameForm is a form of names.
type nameForm struct {
	tool   string
	form   *regexp.Regexp
	layout string // of the time in the group time; "": the number of seconds since 1970
	reason string // why such an object is no snapshot; "": it is one
}

// coreosForm is the form of what coreos' operator appends to a path with each interval.
var coreosForm = regexp.MustCompile(`_v\d+(_\d+)?_(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)$`)

// nameForms are the known forms. The first that fits counts.
var nameForms = []nameForm{
	// gardener/etcd-backup-restore, pkg/snapstore/snapshot.go
	{"Gardener", regexp.MustCompile(`^Full-\d+-\d+-(?P<time>\d+)(\.gz|\.Z|\.zlib)?(\.final)?$`), "", ""},
	{"Gardener", regexp.MustCompile(`^Incr-\d+-\d+-(?P<time>\d+)(\.gz|\.Z|\.zlib)?(\.final)?$`), "", "it is a delta: only full snapshots can be imported"},
	// coreos/etcd-operator, pkg/backup/backup_manager.go, with an interval. Another number may come before the revision
	{"etcd-operator", coreosForm, "2006-01-02-15:04:05", ""},
	// its older versions: the version of etcd and the revision in hex
	{"etcd-operator", regexp.MustCompile(`^\d+\.\d+\.\d+_[0-9a-f]{16}_etcd\.backup$`), "", ""},
	// rancher/rke, k8s snapshots of RKE 1
	{"RKE", regexp.MustCompile(`(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)(_etcd)?(\.zip)?$`), time.RFC3339, ""},
	// bitnami/etcd, the chart's CronJob of snapshots
	{"bitnami", regexp.MustCompile(`^db-(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d)$`), "2006-01-02_15-04", ""},
	// k3s-io/k3s, pkg/etcd/snapshot.go; RKE2 has the same code
	{"k3s", regexp.MustCompile(`-(?P<time>\d{10})(\.zip)?$`), "", ""},
}

// ParseName returns what the last part of a snapshot's path reveals. Times without a zone are UTC.
func ParseName(base string) Name {
	for _, f := range nameForms {
		groups := f.form.FindStringSubmatch(base)
		if groups != nil {
			return Name{Tool: f.tool, Written: f.time(groups), Unusable: f.reason}
		}
	}
	return Name{}
}

// oldest is before the first snapshot of etcd 3.
var oldest = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)

// believed returns n, or the zero Name if its time cannot be right for a file that was last modified then: the name only looks like a
// tool's. A copy may have lost the time of modification, so one before the first snapshot proves nothing.
func (n Name) believed(modified time.Time) Name {
	tooNew := n.Written.After(modified.Add(24*time.Hour)) && modified.After(oldest)
	if n.Unusable == "" && !n.Written.IsZero() && (n.Written.Before(oldest) || tooNew) {
		return Name{}
	}
	return n
}

// time returns the time in the groups of a name; zero if there is none, or it is no time.
func (f nameForm) time(groups []string) time.Time {
	i := f.form.SubexpIndex("time")
	if i < 0 {
		return time.Time{}
	}
	if f.layout == "" {
		seconds, err := strconv.ParseInt(groups[i], 10, 64)
		if err != nil {
			return time.Time{}
		}
		return time.Unix(seconds, 0).UTC()
	}
	t, _ := time.Parse(f.layout, groups[i]) // zero after an error
	return t.UTC()
}
