// Package jobs does the jobs of a scheduler.Service, by the functions that the command's verbs use.
package jobs

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// Identity describes this process in the documents that it stores.
type Identity struct {
	Version string // of dr
	Host    string
	By      string // host and version
}

// NewService returns a Service that does all jobs but Prune. The caller sets Prune, since it records the result. room bounds the spools of
// backups, and tenants share it; nil: the slots of backups bound the number of spools.
func NewService(who Identity, room *backup.Room, report storage.Report) *scheduler.Service {
	return &scheduler.Service{
		Open:     open,
		Backup:   doer{who, room}.backup,
		Copy:     scheduler.Copy,
		Drill:    who.drill,
		Revision: revision,
		Check:    Check,
		Archive:  who.archive,
		Host:     who.Host,
		Report:   report,
	}
}

func open(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
	return stores.Create(ctx, r.URL, optionsOf(r))
}

func optionsOf(r spec.Repository) stores.Options {
	return stores.Options{Parallel: r.Parallel, Limit: r.Limit, Credentials: r.Credentials, CA: r.CA, Reach: r.Reach}
}

// doer takes backups.
type doer struct {
	Identity
	room *backup.Room
}

func (d doer) backup(ctx context.Context, r scheduler.BackupRequest, report storage.Report) (backup.Result, error) {
	request := scheduler.BackupSettings(r.Spec.Backup, d.Version)
	request.Report = report
	if d.room != nil {
		request.Spool.Room, request.Spool.Owner, request.Spool.Full = d.room, r.Spec.Tenant, r.Free
	}
	return backup.Run(ctx, scheduler.ClusterConfig(r.Spec.Etcd), r.To, request)
}

func (who Identity) archive(ctx context.Context, c archive.Config, to *repository.Cluster) error {
	c.Version = who.Version
	return archive.Run(ctx, c, to)
}

// drill restores the newest backup and the point of the log that the seed selects, each in a child process.
func (who Identity) drill(ctx context.Context, d scheduler.DrillRequest, report storage.Report) ([]catalog.Proof, error) {
	s := d.Spec
	r := verify.DrillRequest{
		Aim: verify.Aim{Seed: d.Seed, Plain: plainOf(s.Drill)}, Dir: s.Drill.Dir, By: who.By, Limits: child.Limits{Memory: s.Drill.Memory, Nice: s.Drill.Nice},
		Now: time.Now(),
	}
	for _, text := range s.Drill.Assertions {
		parsed, err := assertion.Parse(text)
		if err != nil {
			return nil, err
		}
		r.Assertions = append(r.Assertions, parsed)
	}
	for _, from := range s.Repositories {
		if from.Name == d.In.Repository {
			options := optionsOf(from)
			options.Guard = scheduler.StoreLimits
			r.Source = child.NewSource(child.Repository{URL: from.URL, Options: options, Cluster: s.Cluster, Trust: from.Policy.Trusted()}, s.Drill.Keys)
		}
	}
	return verify.Drill(ctx, d.In.Cluster, r, report)
}

// plainOf returns how a drill treats unencrypted backups and segments. With a key they are refused, as in a restore, unless d allows them.
func plainOf(d spec.Drill) plan.Plain {
	if d.Keys.None() || d.AllowPlain {
		return plan.PlainTaken
	}
	return plan.PlainRefused
}

// revision returns the newest revision that a member of the cluster reports.
func revision(ctx context.Context, s spec.Spec) (int64, error) {
	c, err := cluster.Connect(ctx, scheduler.ClusterConfig(s.Etcd))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var newest int64
	for _, member := range c.Servers {
		newest = max(newest, member.Status.Header.Revision)
	}
	return newest, nil
}

// Check runs those checks of the cluster itself that are cheap enough to be repeated.
func Check(ctx context.Context, s spec.Spec) []check.Line {
	options := cluster.CheckOptions{NoHash: true, Quick: true, Now: time.Now(), RenewBefore: s.Conditions.Certificate}
	return cluster.Check(ctx, scheduler.ClusterConfig(s.Etcd), options, nil)
}

// Pruned is the result of one Prune.
type Pruned struct {
	Catalog   catalog.Catalog // before the pruning
	Decisions retention.Decisions
	Result    repository.PruneResult
}

// Prune removes the backups and segments in one repository that the retention of s does not keep.
func (who Identity) Prune(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) (Pruned, error) {
	now := time.Now().UTC()
	held, release := records.Hold(ctx)
	defer release()
	index := &backups.Collector{}
	before, err := in.Cluster.Load(held, backups.LoadOptions{Proofs: true, Log: true, Collect: index})
	if err != nil {
		return Pruned{}, err
	}
	decisions, err := retention.Plan(before, s.RetentionIn(in.Repository), now)
	if err != nil {
		return Pruned{}, err
	}
	result, err := in.Cluster.Prune(
		ctx, decisions.Removal(now, who.By), repository.PruneOptions{Grace: s.Backup.Grace, Now: now, Index: index}, report,
	)
	return Pruned{before, decisions, result}, err
}
