// Package backup takes one backup: it chooses a member, streams its snapshot through the seal into one repository or
// several, and writes the manifest.
//
//	member ── Snapshot stream ──► digest checked as it passes ──► seal ──► each repository: object, then manifest
//
// The snapshot never touches the local disk unless a spool is requested, and memory does not grow with the database.
package backup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Errors of Run, to be matched with errors.Is.
var (
	// ErrDiverged means that the members have different key spaces. The backup is stored and marked.
	ErrDiverged = fault.New(fault.Damaged, "the members have diverged")
)

// Request configures one backup.
type Request struct {
	From           string // leader, follower, any, or one of the endpoints
	NoHash         bool   // do not ask the member for its HashKV
	HashMax        int64  // the HashKV is requested only if the database uses at most this many bytes; 0: cluster.HashMax
	CompareMembers bool   // hash all members, one at a time, and mark the backup if they differ
	To             seal.Recipients
	MaxStream      time.Duration // time limit of the member's stream; above zero
	Spool          string        // a directory: write the stream at full speed to a sealed file there, then upload
	Plain          bool          // allow no recipients even if the newest backup is encrypted
	Labels         catalog.Labels
	Version        string        // of dr, for the manifest
	Require        Require       // how many of several stores must take the backup
	Patience       time.Duration // how long a store may keep the others waiting; 0: DefaultPatience with several stores, no limit with one
	Grace          time.Duration // a successful backup removes leftovers of killed ones that are older than this
	Report         storage.Report

	failed *memberError // the member that has already failed; nil at first
}

// Result is a stored backup.
type Result struct {
	catalog.Backup
	Stores []Outcome          // in the order of Run's argument
	Swept  []catalog.Leftover // removed leftovers of killed backups
}

// stallAfter is how long a stream may deliver no byte before it counts as stalled.
const stallAfter = 30 * time.Second

// Run takes one backup of the cluster at cfg and stores it, the same bytes under the same name, in every store in to.
// If the member fails, Run tries one other member, unless r.From names an endpoint. With ErrDiverged or ErrPartial the
// result is valid: the backup is in each store whose Outcome has no error. After any other error no store lists a new
// backup.
func Run(ctx context.Context, cfg cluster.Config, to []Store, r Request) (Result, error) {
	if len(to) == 0 {
		return Result{}, fmt.Errorf("%w: no repository for the backup: name one or more", fault.Refused)
	}
	result, err := runOnce(ctx, cfg, to, r)
	failed, ok := errors.AsType[*memberError](err)
	if !ok || !r.mayChoose() {
		return result, err
	}
	r.failed = failed
	result, retryErr := runOnce(ctx, cfg, to, r)
	if errors.Is(retryErr, errNoOther) {
		return Result{}, err
	}
	return result, retryErr
}

// runOnce is Run without a second member.
func runOnce(ctx context.Context, cfg cluster.Config, to []Store, r Request) (Result, error) {
	r.Report.Say(storage.Event{Stage: "connect", Message: "asking the cluster's members"})
	c, err := r.connect(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	member, err := r.choose(c)
	if err != nil {
		return Result{}, err
	}
	if r.failed != nil {
		warn(r.Report, "%v: reading from another member", r.failed)
	}
	warnAbout(c, member, r.From, r.Report)
	run := &run{request: r, cluster: c, member: member, started: time.Now().UTC()}
	run.to = newStores(ctx, to, r, run.warn)
	defer run.to.close()
	err = run.gather(ctx)
	if err != nil {
		return Result{}, err
	}
	err = run.store(ctx)
	if err != nil {
		return Result{}, err
	}
	return run.result(ctx)
}

// result returns the stored backup, if there is one, after removing old leftovers.
func (r *run) result(ctx context.Context) (Result, error) {
	backup, outcomes, err := r.to.outcome()
	if backup == nil {
		return Result{}, err
	}
	r.to.warnOfSameID()
	result := Result{Backup: *backup, Stores: outcomes, Swept: r.sweep(ctx)}
	if backup.Diverged != "" {
		err = errors.Join(err, fmt.Errorf("%w: %s; backup %s is stored and marked: compare the members before you trust one of them",
			ErrDiverged, backup.Diverged, backup.ID))
	}
	return result, err
}

// run is one backup in progress.
type run struct {
	request Request
	cluster *cluster.Cluster
	member  *cluster.Server
	to      *stores
	started time.Time

	status   *pb.StatusResponse
	manifest catalog.Manifest
}

// gather collects the facts that must be known before the stream begins. The snapshot is opened later, so it contains
// the revision read here, and the key space that HashKV hashes.
func (r *run) gather(ctx context.Context) (err error) {
	r.status, err = r.member.Now(ctx)
	if err != nil {
		return r.blame(ctx, err)
	}
	r.manifest = catalog.Manifest{
		Started: r.started, DRVersion: r.request.Version, Labels: r.request.Labels,
		ClusterID: fmt.Sprintf("%x", r.cluster.ID), Members: r.cluster.Members, Member: r.self(), EtcdVersion: r.status.Version,
		Revision: r.status.Header.Revision, RaftIndex: r.status.RaftAppliedIndex, RaftTerm: r.status.RaftTerm,
		NoQuorum: !r.cluster.Quorum,
	}
	r.gatherKind(ctx)
	r.gatherAlarms(ctx)
	if !r.request.NoHash {
		r.gatherHash(ctx)
	}
	return r.compareWithLast()
}

func (r *run) self() catalog.Member {
	for _, m := range r.cluster.Members {
		if m.ID == r.member.ID() {
			return m
		}
	}
	return catalog.Member{ID: r.member.ID()}
}

// gatherKind collects facts that help a restore. They can also be read from the database, so a failure here only causes
// a warning.
func (r *run) gatherKind(ctx context.Context) {
	var err error
	r.manifest.Kubernetes, r.manifest.KubernetesEncrypted, err = r.member.Kubernetes(ctx)
	if err != nil {
		r.warn("cannot find out whether the key space is Kubernetes': %v", err)
	}
	r.manifest.Auth, err = r.member.AuthEnabled(ctx)
	if err != nil {
		r.warn("cannot find out whether authentication is enabled: %v", err)
	}
	if r.manifest.KubernetesEncrypted {
		r.warn("Kubernetes encrypts values in this key space: its EncryptionConfiguration and keys are not in the backup, keep them elsewhere")
	}
}

func (r *run) gatherAlarms(ctx context.Context) {
	alarms, err := r.cluster.Alarms(ctx)
	if err != nil {
		r.warn("cannot list alarms: %v", err)
	}
	for _, alarm := range alarms {
		r.warn("alarm %s is raised: the backup is marked with it", alarm)
	}
	r.manifest.Alarms = alarms
}

func (r *run) gatherHash(ctx context.Context) {
	hash, err := r.member.HashKVUpTo(ctx, r.manifest.Revision, r.status, r.request.HashMax)
	if errors.Is(err, cluster.ErrTooLarge) {
		r.manifest.HashSkipped = err.Error()
		r.request.Report.Say(storage.Event{Stage: "connect", Level: storage.Note, Message: "key space hash not taken: " + err.Error()})
		return
	}
	if err != nil {
		r.warn("the backup has no HashKV to compare a restore with: %v", err)
		return
	}
	r.manifest.HashKV = &hash
}

// compareWithLast compares the cluster with the newest backup under this name. It warns if their cluster ids differ:
// the cluster was restored, or it is the wrong one. It returns fault.Refused if the newest backup is encrypted and this
// one would not be, unless Request.Plain allows it.
func (r *run) compareWithLast() error {
	var encrypted atomic.Pointer[catalog.Backup] // the newest backup of a store, if it is encrypted; nil if none is
	err := r.to.each(func(one *store) error {
		loaded, err := one.Cluster.Load(one.ctx, backups.LoadOptions{Newest: 1})
		if err != nil {
			return err
		}
		if len(loaded.Backups) == 1 && loaded.Backups[0].Seal.Encryption != "" {
			encrypted.Store(&loaded.Backups[0])
		}
		if len(loaded.Backups) == 1 && loaded.Backups[0].ClusterID != r.manifest.ClusterID && r.manifest.ClusterID != "" {
			r.warn("%v", r.to.withName(one, r.anotherCluster(loaded.Backups[0])))
		}
		return nil
	})
	b := encrypted.Load()
	if err == nil && b != nil && !r.request.Plain && r.request.To.Seal().Encryption == "" {
		err = fmt.Errorf("%w: no recipient is given, and the newest backup of %s (%s) is encrypted: give --recipient (DR_RECIPIENT), or --plain "+
			"to store every secret of etcd without encryption", fault.Refused, b.Cluster, b.ID)
	}
	return err
}

// anotherCluster returns the warning that the newest backup and the one to store belong to different clusters.
func (r *run) anotherCluster(newest catalog.Backup) error {
	expected := "expected right after a restore; otherwise check --cluster and --endpoints"
	if r.manifest.Origin != nil {
		expected = "an imported backup may be, for a restore finds it only by its id; otherwise check --cluster"
	}
	return fmt.Errorf("the newest backup of %s is of cluster %s, this cluster is %s: %s", newest.Cluster, newest.ClusterID, r.manifest.ClusterID, expected)
}

// complete adds the facts to the manifest that are known only at the end of the stream, and returns it.
func (r *run) complete(ctx context.Context, plain catalog.Blob) (catalog.Manifest, error) {
	r.manifest.Plain, r.manifest.Finished = plain, time.Now().UTC()
	if r.request.CompareMembers {
		diverged, err := r.compareMembers(ctx)
		if err != nil {
			return catalog.Manifest{}, err
		}
		r.manifest.Diverged = diverged
	}
	r.request.Report.Say(storage.Event{Stage: "commit", Message: "writing the manifest", Done: plain.Size, Total: plain.Size})
	return r.manifest, nil
}

// sweep removes old leftovers from the stores that have the backup. Its errors are only warnings, because the backup is
// stored.
func (r *run) sweep(ctx context.Context) (all []catalog.Leftover) {
	for _, one := range r.to.remaining() {
		ctx, cancel := ctx, context.CancelFunc(func() {})
		if r.to.patience > 0 {
			ctx, cancel = context.WithTimeout(ctx, r.to.patience)
		}
		swept, err := one.Cluster.Sweep(ctx, r.request.Grace, time.Now())
		cancel()
		if err != nil {
			r.warn("leftovers of killed backups stay: %v", r.to.withName(one, err))
		}
		for _, l := range swept {
			r.request.Report.Say(storage.Event{Stage: "commit", Level: storage.Note, Object: l.Key, Message: "removed an object of a killed backup"})
		}
		all = append(all, swept...)
	}
	return all
}

func (r *run) warn(format string, args ...any) { warn(r.request.Report, format, args...) }

func warn(report storage.Report, format string, args ...any) {
	report.Say(storage.Event{Stage: "connect", Level: storage.Warning, Message: fmt.Sprintf(format, args...)})
}
