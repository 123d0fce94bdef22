// Package declared turns the declaration of a cluster, as dr.yaml or another source has it, into its Spec. It is pure:
// a declaration contains secrets as values, which the caller has read.
package declared

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// Fault is an error in a declaration.
type Fault struct {
	// Path names the field by the keys of dr.yaml below the cluster or repository, such as {"backup", "from"}. An empty Path
	// means the declaration as a whole.
	Path []string
	Err  error // contains no secret
}

// Repository declares a place for backups.
type Repository struct {
	URL string // may contain Placeholder
	// Credentials are the files of a folder, or the keys of a Secret, that credentials.Parse accepts. nil: the store's
	// credentials are those of the environment.
	Credentials map[string][]byte
	// CredentialsDir is the folder that Credentials were read from, for the commands that are shown; "": none.
	CredentialsDir string
	CA             []byte // PEM certificates of additional authorities that the store's certificate may be from; nil: none
	Lock           Lock
	SignKey        string   // a minisign secret key; "": manifests are not signed
	Trust          []string // public keys; empty: everything is trusted
	Parallel       int      // requests at a time for one large object; 0: 4
	Limit          int64    // bytes a second; 0: no limit
	Retention      Retention
}

// Placeholder is replaced by the cluster's name in a repository's URL.
const Placeholder = "{{cluster}}"

// Lock declares how long a store refuses to delete new objects.
type Lock struct {
	For  time.Duration // 0: not at all
	Mode string        // governance or compliance; "": governance
}

// Cluster declares the backups, the log archive and the drills of a cluster. The zero values of Schedule, Retention, Archive
// and Drill disable them.
type Cluster struct {
	Etcd         spec.Etcd
	Repositories []string // names, at least one
	Require      spec.Require
	Recipients   []string // lines of age recipients; without them and a Passphrase: no encryption
	Passphrase   string   // "": none
	Schedule     Schedule
	Triggers     spec.Triggers
	Retention    Retention
	Backup       Backup
	Archive      spec.Archive
	Drill        Drill
	Labels       map[string]string
	Observe      time.Duration // how often conditions are computed; 0: never
	Conditions   condition.Limits
	Suspend      bool
}

// The defaults of a service's settings.
const (
	DefaultConcurrency = 4           // backups at a time
	DefaultLease       = time.Minute // how long another service waits before it takes over a job
)

// CheckService returns the faults in a service's settings: concurrency is the number of backups at a time, and term the duration of its
// leases. The paths of the faults are {"concurrency"} and {"lease"}.
func CheckService(concurrency int, term time.Duration) (faults []Fault) {
	if concurrency < 1 {
		faults = append(faults, Fault{[]string{"concurrency"}, errors.New("concurrency must be at least 1")})
	}
	if term < spec.MinLease || term > lease.MaxLease {
		faults = append(faults, Fault{[]string{"lease"}, fmt.Errorf("lease must be from %s to %s", spec.MinLease, lease.MaxLease)})
	}
	return faults
}

// Defaults returns a Cluster with the defaults of the fields whose zero values have another meaning or none.
func Defaults() Cluster {
	return Cluster{
		Etcd:     spec.Etcd{DialTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second},
		Require:  spec.Any,
		Schedule: Schedule{Zone: "UTC"},
		Triggers: spec.Triggers{Every: 5 * time.Minute},
		Backup:   Backup{From: "leader", MaxStream: 5 * time.Minute, Grace: 24 * time.Hour, Timeout: 6 * time.Hour},
		Observe:  10 * time.Minute,
	}
}

// Schedule declares a schedule. The zero Schedule has no moments.
type Schedule struct {
	Cron   string
	Zone   string        // a name of the tz database
	Jitter time.Duration // upper limit of the delay, which is the same for all moments of a cluster
}

// Retention declares which backups are kept. Zone is used in place of Policy.Zone.
type Retention struct {
	retention.Policy
	Zone string // a name of the tz database; "": that of the schedule
}

// Backup declares how a backup is taken. The fields mean the same as in spec.Backup.
type Backup struct {
	From           string
	NoHash         bool
	HashMax        time.Duration
	CompareMembers bool
	MaxStream      time.Duration
	Spool          string
	Grace          time.Duration
	Timeout        time.Duration
	Plain          bool
}

// Drill declares restore drills. The fields mean the same as in spec.Drill.
type Drill struct {
	Schedule   Schedule // its zone defaults to that of the backups' schedule
	Repository string   // "": the first
	Assert     []string
	Identities []string // texts of age identity files
	Passphrase string
	AllowPlain bool
	ScratchDir string
	Memory     int64
	Nice       int
}
