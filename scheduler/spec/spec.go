// Package spec holds the settings of a service and of its clusters, and decides from them when a job is due. It is pure: it
// does no I/O and reads no clock.
package spec

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Config holds the settings of one service.
type Config struct {
	Specs       []Spec        // each cluster once
	Concurrency int           // backups at a time, at least 1
	Lease       time.Duration // how long another service waits before it takes over; from MinLease to lease.MaxLease
	// Faulty maps each cluster with an invalid configuration to its fault. A Spec of such a cluster comes from its last valid
	// configuration, and stays in effect.
	Faulty map[string]string
}

// MinLease is the shortest Config.Lease. A lease is renewed when half of it has passed: one slow request would lose a shorter one.
const MinLease = time.Second

// Spec holds the settings of one cluster.
type Spec struct {
	Cluster string
	Tenant  string // whose cluster it is: tenants take turns where jobs wait for each other; "": clusters have no tenants
	// Digest covers everything that the Spec was made from, secrets included. Specs with equal digests are equal.
	Digest string

	Etcd         Etcd
	Repositories []Repository
	Backup       Backup
	Timeout      time.Duration // of one job, from the start of its work
	Schedule     Schedule      // of backups; may be the zero Schedule
	Triggers     Triggers
	Retention    retention.Policy // of each repository without its own; the zero Policy keeps everything
	Drill        Drill            // the zero Drill disables drills
	Archive      Archive          // the zero Archive disables archiving by the service
	Observe      time.Duration    // how often conditions are computed; 0: never
	Conditions   condition.Limits
	Suspend      bool // start no job
}

// Etcd holds how clients reach a cluster. The fields mean the same as etcdctl's flags.
type Etcd struct {
	Endpoints          []string
	CACert, Cert, Key  string // files
	PEM                PEM    // replaces the files, unless it is the zero PEM
	InsecureSkipVerify bool
	User, Password     string
	DialTimeout        time.Duration // to connect to one endpoint and log in
	CommandTimeout     time.Duration // for one answer
	Reach              reach.Reach   // the addresses to which the endpoints and the members' own URLs may lead
}

// Backup holds how a backup is taken and where it must arrive.
type Backup struct {
	From           string          // leader, follower, any, or one of the endpoints
	NoHash         bool            // do not ask the member for its HashKV
	HashMax        time.Duration   // longest stall of the member for its HashKV, by an estimate; 0: the default
	CompareMembers bool            // compare the HashKV of all members
	To             seal.Recipients // who can open the backup; none: it is not encrypted
	MaxStream      time.Duration   // for the member's whole snapshot; above 0
	Spool          string          // folder that holds the sealed snapshot until it is uploaded; "": none
	Plain          bool            // without recipients, even if earlier backups are encrypted
	Labels         catalog.Labels
	Require        Require
	Grace          time.Duration // age from which leftovers are removed
}

// Require names how many repositories a job needs.
type Require string

// The values of Require.
const (
	All Require = "all" // all
	Any Require = "any" // at least one; the others catch up later
)

// Drill holds how the restore of a cluster is practiced.
type Drill struct {
	Schedule   Schedule  // the zero Schedule: only on request
	Repository string    // whose backups are restored
	Assertions []string  // expectations about the restored data, in the syntax of assertion.Parse
	Keys       seal.Keys // open the backups; without a key, a drill of an encrypted backup is not run
	AllowPlain bool      // with Keys, restore unencrypted backups and segments too
	Dir        string    // holds the scratch copies; "": the system's temporary directory
	Memory     int64     // bytes that the restoring process aims not to exceed; 0: no limit
	Nice       int       // of that process, from 0 to 19
}

// SegmentSize is the size, in bytes of requests, at which a segment of the archived log is uploaded.
const SegmentSize = 8 << 20

// Archive holds how a cluster's log is archived from its client port (source watch) into its first repository.
type Archive struct {
	Flush    time.Duration // the longest wait of a request before its upload; 0: the log is not archived
	Spool    string        // folder that holds segments while the store is unreachable; "": none
	SpoolMax int64         // the most bytes in Spool
}

// PEM holds the contents of the files CACert, Cert and Key.
type PEM struct{ CA, Cert, Key []byte }

// Repository is a place for backups.
type Repository struct {
	Name     string // unique in the configuration
	URL      string
	Pattern  string // URL before the cluster's name was filled in; "": URL is the same for all clusters
	Parallel int    // requests at a time for one large object
	Limit    int64  // bytes a second; 0: no limit
	// Credentials open the store; the zero Credentials are those of the environment.
	Credentials credentials.Credentials
	// CredentialsDir is the folder that Credentials come from, for the commands that are shown; "": none.
	CredentialsDir string
	CA             []byte // PEM certificates of additional authorities that the store's certificate may be from; nil: none
	Policy         records.Policy
	Reach          reach.Reach // the addresses to which the URL, the credentials and the store's answers may lead
	// Retention replaces the cluster's in this repository; the zero Policy: the cluster's applies.
	Retention retention.Policy
}

// RetentionIn returns the retention in the named repository. The zero Policy keeps everything.
func (s Spec) RetentionIn(name string) retention.Policy {
	for _, r := range s.Repositories {
		if r.Name == name && r.Retention != (retention.Policy{}) {
			return r.Retention
		}
	}
	return s.Retention
}

// Prunes reports whether any repository has a retention.
func (s Spec) Prunes() bool {
	return slices.ContainsFunc(s.Repositories, func(r Repository) bool { return s.PrunesIn(r.Name) })
}

// PrunesIn reports whether the named repository has a retention.
func (s Spec) PrunesIn(name string) bool { return s.RetentionIn(name) != (retention.Policy{}) }

// None reports whether d disables drills.
func (d Drill) None() bool { return d.Repository == "" }
