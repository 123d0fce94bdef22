// Package inplace restores a cluster from a repository, in the place where its manager runs it. It connects the steps of package handoff
// with the catalog, from which it plans; with the members' client ports, through which it inspects and verifies the cluster; and with the
// pin and the suspension that a restore holds in the repository.
//
// The operator carries out one step at a time, and writes a status after each. Run carries out all steps, for the command line.
package inplace

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Target is the manager that runs the members, with its own claim and the records of its restores.
type Target interface {
	handoff.Manager
	Take(ctx context.Context, r handoff.Record) (handoff.Progress, error)
	Lift(ctx context.Context, r handoff.Record) (handoff.Progress, error)
	// Exists reports whether the manager exists, with its definition of the members.
	Exists(ctx context.Context) (bool, error)
	// Load returns the record of a restore. The error matches fault.NotFound if there is none.
	Load(ctx context.Context, id string) (handoff.Record, error)
	// Save replaces the record before, zero for none, by after. The error matches fault.Busy if the stored record is another one.
	Save(ctx context.Context, before, after handoff.Record) error
}

// The defaults of handoff.Orders.
const (
	DefaultLimit   = 10 * time.Minute
	DefaultExpires = 6 * time.Hour
	DefaultKeep    = 72 * time.Hour
)

// Restore is one restore of a target. It reads the repository once, so it must not outlive its restore. It is not for concurrent use.
type Restore struct {
	ID        string      // that of its handoff.Record
	By        string      // the author of its pin and its suspension; each process that continues the restore has the same
	Name      string      // of the target, as a person repeats it to confirm that its data is replaced
	Confirmed bool        // the disks may hold data, which is replaced
	DryRun    bool        // a missing confirmation is reported, and refuses nothing
	Clone     bool        // members of the cluster that was backed up may answer outside of the target
	Abandoned bool        // a repository that cannot be written to does not delay the end
	Reach     reach.Reach // to which client URLs in the manifests of backups may lead
	Point     plan.Target
	Layout    plan.Layout // without Members and Known, and with OldIsDead: the target's members are stopped after the data is built
	Given     *plan.Plan  // of all members, of which the target, this host, runs one; nil: the restore makes its own
	Without   []string    // names of its members whose hosts do not run the restore: the check at the end does not wait for them
	Known     int64       // the newest revision that an earlier plan of this restore knew

	// Manage returns the target. backup are the members of the backup; nil: they are not known yet.
	Manage func(backup []plan.Member) Target
	// Open opens the repository. It is called once; nil: a given plan reads none.
	Open func(context.Context) (*repository.Cluster, error)
	// Access returns how to connect to the members, without their endpoints.
	Access func(context.Context) (cluster.Config, error)
	// Warn reports that the restore continues although it does not hold all that it should.
	Warn func(w Warning, text string)

	// For Run.
	Settings string               // of the record of a restore that begins
	Watch    func(handoff.Record) // is called before each step

	store   *repository.Cluster // nil: it is not open
	catalog *catalog.Catalog    // nil: it is not read
	now     time.Time           // when the catalog was read
	live    live
}

// Warning is the kind of a warning.
type Warning string

// The warnings.
const (
	NotPinned    Warning = "BackupNotPinned"
	NotSuspended Warning = "BackupsNotSuspended"
	NotLifted    Warning = "SuspensionNotEnded"
)

// Steps returns the steps of the restore.
func (r *Restore) Steps() handoff.Restore {
	target := r.Manage(nil)
	steps := handoff.Restore{Manager: inspector{target, r}, Claim: claim{target, r}, Plan: r.plan, Verify: r.verify}
	if r.DryRun {
		steps.Claim = unclaimed{}
	}
	return steps
}

// open opens the repository, once.
func (r *Restore) open(ctx context.Context) (*repository.Cluster, error) {
	if r.store != nil {
		return r.store, nil
	}
	store, err := r.Open(ctx)
	if err != nil {
		return nil, err
	}
	r.store = store
	return store, nil
}

// load reads the catalog, once.
func (r *Restore) load(ctx context.Context) error {
	if r.catalog != nil {
		return nil
	}
	if r.Open == nil {
		r.catalog = &catalog.Catalog{}
		return nil
	}
	store, err := r.open(ctx)
	if err != nil {
		return err
	}
	read, err := store.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Log: true})
	if err != nil {
		return err
	}
	r.catalog, r.now = &read, time.Now().UTC()
	return nil
}
