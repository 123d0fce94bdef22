// Package backup takes one backup: it chooses a member, compresses and encrypts its snapshot as it streams into one or
// several repositories, and writes the manifest.
//
//	member ── Snapshot stream ──► digest checked as it passes ──► seal ──► each repository: object, then manifest
//
// The snapshot never touches the local disk unless a spool is requested, and memory does not grow with the database.
package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/pages"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// ErrDiverged means that the members have different key spaces. The backup is stored and marked.
var ErrDiverged = fault.New(fault.Damaged, "the members have diverged")

// Request configures one backup.
type Request struct {
	From           string          // leader, follower, any, or one of the endpoints
	NoHash         bool            // do not ask the member for its HashKV
	HashMax        time.Duration   // request the HashKV only if its estimated stall is at most this; 0: cluster.HashStall
	CompareMembers bool            // hash all members, one at a time, and mark the backup if they differ
	To             seal.Recipients // who can open the backup
	MaxStream      time.Duration   // time limit of the member's stream; above zero
	Spool          Spool           // buffers the sealed stream until its upload; the zero Spool: no buffer
	Plain          bool            // allow no recipients even if the newest backup is encrypted
	Labels         catalog.Labels
	Version        string        // of dr, for the manifest
	Require        Require       // how many of several stores must take the backup
	Patience       time.Duration // how long a store may keep the others waiting; 0: a default with several stores, no limit with one
	Grace          time.Duration // a successful backup removes the leftovers of killed ones once they are older than this
	Report         storage.Report

	failed *memberError // of the first attempt, which the second one avoids; nil during the first
}

// Result is a stored backup.
type Result struct {
	catalog.Backup
	Stores []Outcome          // in the order of Run's argument
	Swept  []catalog.Leftover // removed leftovers of killed backups
}

// stallAfter is how long a stream may deliver no byte before it counts as stalled.
const stallAfter = 30 * time.Second

// Run takes one backup of the cluster at cfg. It stores the same bytes under the same name in every store in to.
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

// runOnce takes the backup from one member.
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
	err = run.storeSnapshot(ctx)
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
	density  catalog.Density // of the newest backup of this cluster; zero: unknown
	content  pages.Content   // of the stream
}

// gather collects the facts that must be known before the stream begins. The snapshot is opened later, so it contains at
// least the revision read here, and the key space that HashKV has hashed.
func (r *run) gather(ctx context.Context) (err error) {
	r.status, err = r.member.Now(ctx)
	if err != nil {
		return r.blame(ctx, err)
	}
	r.manifest = catalog.Manifest{
		Started: r.started, DRVersion: r.request.Version, Labels: r.request.Labels,
		ClusterID: fmt.Sprintf("%x", r.cluster.ID), Members: r.cluster.Members, Member: r.readMember(), EtcdVersion: r.status.Version,
		Revision: r.status.Header.Revision, RaftIndex: r.status.RaftAppliedIndex, RaftTerm: r.status.RaftTerm,
		NoQuorum: !r.cluster.Quorum,
	}
	r.gatherAuth(ctx)
	r.gatherAlarms(ctx)
	err = r.compareWithLast()
	if err == nil && !r.request.NoHash {
		r.gatherHash(ctx)
	}
	return err
}

// readMember returns the member that the backup is read from.
func (r *run) readMember() catalog.Member {
	for _, m := range r.cluster.Members {
		if m.ID == r.member.ID() {
			return m
		}
	}
	return catalog.Member{ID: r.member.ID()}
}

// gatherAuth records whether authentication is enabled. A restore can read it from the database too, so a failure only causes a warning.
func (r *run) gatherAuth(ctx context.Context) {
	var err error
	r.manifest.Auth, err = r.member.AuthEnabled(ctx)
	if err != nil {
		r.warn("cannot find out whether authentication is enabled: %v", err)
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
	var hash catalog.HashKV
	now, err := r.member.Now(ctx) // again: the stores may have taken their time, and the member may have compacted the first revision
	if err == nil {
		hash, err = r.member.HashKVWithin(ctx, now.Header.Revision, now, cluster.HashLimit{Stall: r.request.HashMax, Density: r.density})
	}
	if errors.Is(err, cluster.ErrTooLarge) {
		r.manifest.HashSkipped = err.Error()
		r.request.Report.Say(storage.Event{Stage: "connect", Level: storage.Note, Message: "no HashKV is stored: " + err.Error()})
		return
	}
	if err != nil {
		r.warn("no HashKV is stored, so a restore cannot be compared with the member: %v", err)
		return
	}
	r.manifest.HashKV = &hash
}

// compareWithLast compares the cluster with the newest backup under this name. It warns if their cluster ids differ:
// the cluster was restored, or it is the wrong one. It returns fault.Refused if the newest backup is encrypted and this
// one would not be, unless Request.Plain allows it.
func (r *run) compareWithLast() error {
	newest, err := r.newestOfStores()
	if err != nil {
		return err
	}
	r.density = densityOf(newest, r.manifest.ClusterID)
	i := slices.IndexFunc(newest, func(b catalog.Backup) bool { return b.Seal.Encryption != "" })
	if i >= 0 && !r.request.Plain && r.request.To.Seal().Encryption == "" {
		return fmt.Errorf("%w: no recipient is given, and the newest backup of %s (%s) is encrypted: pass --recipient (DR_RECIPIENT), or --plain "+
			"to store every secret of etcd without encryption", fault.Refused, newest[i].Cluster, newest[i].ID)
	}
	return nil
}

// newestOfStores returns the newest backup of each store that has one. It reports a store without a backup, and one whose newest backup is of
// another cluster.
func (r *run) newestOfStores() ([]catalog.Backup, error) {
	var mu sync.Mutex
	var newest []catalog.Backup
	err := r.to.each(func(one *store) error {
		loaded, err := one.Cluster.Load(one.ctx, backups.LoadOptions{Newest: 1})
		if err != nil {
			return err
		}
		if len(loaded.Backups)+len(loaded.Damaged)+len(loaded.Untrusted) == 0 {
			r.noteFirst(one)
		}
		for _, b := range loaded.Backups {
			if b.ClusterID != r.manifest.ClusterID && r.manifest.ClusterID != "" {
				r.warn("%v", r.to.withName(one, r.anotherCluster(b)))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		newest = append(newest, loaded.Backups...)
		return nil
	})
	return newest, err
}

// densityOf returns the density of the newest backup of the cluster with that id; zero if there is none.
func densityOf(all []catalog.Backup, clusterID string) (density catalog.Density) {
	var newest time.Time
	for _, b := range all {
		if b.ClusterID == clusterID && b.Started.After(newest) {
			newest, density = b.Started, b.Density()
		}
	}
	return density
}

// noteFirst reports that one has no backup of the cluster yet. A directory may be empty because its file system is not mounted.
func (r *run) noteFirst(one *store) {
	if r.manifest.Origin != nil { // an import, which may well come before the first backup
		return
	}
	r.request.Report.Say(storage.Event{Stage: "connect", Level: storage.Note, Object: one.Repository, Message: fmt.Sprintf(
		"%s contains no backup of %s yet: if you expected one, check the URL; for a directory, check that its file system is mounted",
		cmp.Or(one.Repository, "the repository"), one.Cluster.Records().Cluster,
	)})
}

// anotherCluster returns the warning that the newest backup and the one to store belong to different clusters.
func (r *run) anotherCluster(newest catalog.Backup) error {
	expected := "expected right after a restore; otherwise check --cluster and --endpoints"
	if r.manifest.Origin != nil {
		expected = "expected for an imported backup, which a restore finds only by its ID; otherwise check --cluster"
	}
	return fmt.Errorf("the newest backup of %s is of cluster %s, but this is cluster %s: %s", newest.Cluster, newest.ClusterID, r.manifest.ClusterID, expected)
}

// complete adds the facts to the manifest that are known only at the end of the stream, and returns it.
func (r *run) complete(ctx context.Context, plain catalog.Blob) (catalog.Manifest, error) {
	r.manifest.Plain, r.manifest.Finished = plain, time.Now().UTC()
	r.describeContent()
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

// describeContent records what the pages of the snapshot have shown.
func (r *run) describeContent() {
	r.manifest.Entries, r.manifest.InUse = r.content.Entries, r.status.DbSizeInUse
	r.manifest.Kubernetes, r.manifest.KubernetesEncrypted = r.content.Kubernetes, r.content.Encrypted
	if r.manifest.KubernetesEncrypted {
		r.request.Report.Say(storage.Event{Stage: "commit", Level: storage.Warning,
			Message: "Kubernetes encrypts values in this key space: the backup contains neither its EncryptionConfiguration nor its keys: store them with dr assets"})
	}
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
			r.warn("cannot remove the leftovers of killed backups: %v", r.to.withName(one, err))
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
