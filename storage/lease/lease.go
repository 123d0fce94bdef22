// Package lease keeps several processes from doing the same job for a cluster at once: a small document in the repository
//
//	<cluster>/leases/<job>.json
//
// names the process that works now and until when. It only avoids double work and guards nothing: what must exist once has a
// name that can be created once.
package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// MaxLease is the longest that a lease lasts. One that claims to last longer was written by a clock that is wrong, and
// nobody waits for it.
const MaxLease = 10 * time.Minute

// Lease says who does a job now, so that others need not. It guards nothing: a store cannot compare and swap, so two
// may hold it for a moment, and clocks differ. What must happen once is fenced by names that are create-only.
type Lease struct {
	Format     int       `json:"format"`
	Job        string    `json:"job"`
	Holder     string    `json:"holder"`
	Until      time.Time `json:"until"`      // by the holder's clock
	Generation uint64    `json:"generation"` // from 1; one more with each acquisition
	LogEnd     *LogEnd   `json:"logEnd,omitempty"`
}

// LogEnd names the segment that the holder stored or found stored last. It is a hint where to look: only the segment itself
// proves anything.
type LogEnd struct {
	Lineage string `json:"lineage"`
	Seq     uint64 `json:"seq"`
}

// Access takes, renews and reads the leases of one cluster.
type Access struct{ store *records.Store }

// NewAccess returns access to the leases of the store's cluster.
func New(store *records.Store) *Access { return &Access{store} }

var jobName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,99}$`)

func (a *Access) key(job string) string {
	return a.store.Cluster + "/leases/" + job + catalog.JSONSuffix
}

// Leases are the stored leases.
var Kind = document.Kind[Lease]{Format: 1, Check: Lease.validate}

func (l Lease) validate() error {
	if !jobName.MatchString(l.Job) || l.Holder == "" {
		return fmt.Errorf("job %q and holder %q are none of dr's", l.Job, l.Holder)
	}
	if l.LogEnd != nil && catalog.ValidLineage(l.LogEnd.Lineage) != nil {
		return fmt.Errorf("the log that it names is no lineage: %q", l.LogEnd.Lineage)
	}
	return nil
}

// live reports whether somebody holds l. Until is by the holder's clock and now by the reader's.
func (l Lease) live(now time.Time) bool {
	return l.Holder != "" && now.Before(l.Until) && !l.Until.After(now.Add(MaxLease))
}

func (l Lease) same(other Lease) bool {
	return l.Holder == other.Holder && l.Generation == other.Generation
}

// AcquireLease takes the lease on job for holder, for ttl from now on, unless somebody else holds it: then it is not
// held, and the Lease is theirs. Of several who take it at the same time the last writer wins, so wait a moment and
// call RenewLease, which says whether it is still held, before beginning the work. job is made of lower-case letters,
// digits and dashes, holder is a name that nobody else has, and ttl is at most MaxLease.
func (a *Access) Acquire(
	ctx context.Context, job, holder string, ttl time.Duration, now time.Time,
) (l Lease, held bool, err error) {
	if !jobName.MatchString(job) || holder == "" {
		return Lease{}, false, fmt.Errorf("%w: lease on %q for %q: use up to 100 lower-case letters, digits and '-'",
			catalog.ErrName, job, holder)
	}
	err = a.store.CheckMarker(ctx)
	if err != nil {
		return Lease{}, false, err
	}
	old, err := a.read(ctx, job)
	if err != nil && !errors.Is(err, catalog.ErrDamaged) {
		return Lease{}, false, err
	}
	if old.live(now) && old.Holder != holder {
		return old, false, nil
	}
	l = Lease{Format: Kind.Format, Job: job, Holder: holder, Generation: old.Generation + 1}
	return a.extend(ctx, l, ttl, now)
}

// LiveLease returns the lease on job that is held now, the zero Lease if none is.
func (a *Access) Live(ctx context.Context, job string, now time.Time) (Lease, error) {
	stored, err := a.read(ctx, job)
	if errors.Is(err, catalog.ErrDamaged) { // AcquireLease takes it
		return Lease{}, nil
	}
	if err != nil || !stored.live(now) {
		return Lease{}, err
	}
	return stored, nil
}

// RenewLease makes l last for ttl from now on if it is still held; if somebody else has taken it, the Lease is theirs.
//
// It reads before it writes, which is a request more at each renewal. Without that a process that slept past the end of its
// lease would take it back from the one that has taken over, and both would go on. A condition on the write (If-Match) would
// do the same in one request, but a directory has none, and a store that speaks S3 and does not know the condition ignores it
// without an error.
func (a *Access) Renew(
	ctx context.Context, l Lease, ttl time.Duration, now time.Time,
) (renewed Lease, held bool, err error) {
	stored, err := a.read(ctx, l.Job)
	if err != nil || !stored.same(l) {
		return stored, false, err
	}
	return a.extend(ctx, l, ttl, now)
}

// ReleaseLease gives l back, if it is still held, so that nobody has to wait for its end.
func (a *Access) Release(ctx context.Context, l Lease, now time.Time) error {
	stored, err := a.read(ctx, l.Job)
	if err != nil || !stored.same(l) {
		return err
	}
	_, _, err = a.extend(ctx, l, 0, now)
	return err
}

func (a *Access) extend(ctx context.Context, l Lease, ttl time.Duration, now time.Time) (Lease, bool, error) {
	if ttl > MaxLease {
		return Lease{}, false, fmt.Errorf("a lease for %v: %v is the longest", ttl, MaxLease)
	}
	l.Until = now.UTC().Add(ttl)
	data, err := Kind.Encode(l)
	if err == nil {
		_, err = a.store.Bucket.Put(ctx, a.key(l.Job), bytes.NewReader(data), storage.PutOptions{})
	}
	if err != nil {
		return Lease{}, false, fmt.Errorf("write lease %s: %w", a.key(l.Job), err)
	}
	return l, true, nil
}

// readLease returns the stored lease, the zero one if it is absent or damaged. One that cannot be read gives ErrDamaged: the
// caller who has just written it must not take it for another's.
func (a *Access) read(ctx context.Context, job string) (Lease, error) {
	data, err := a.store.Read(ctx, a.key(job))
	if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) && !storage.Unreadable(err) {
		return Lease{}, nil
	}
	if err != nil {
		return Lease{}, fmt.Errorf("read lease %s: %w", a.key(job), err)
	}
	if l, err := Kind.Decode(data); err == nil && l.Job == job {
		return l, nil
	}
	return Lease{}, nil
}

// clockJob is the job of a lease that is written for its time alone.
const clockJob = "clock"

// StoreTime returns the store's time, as it dates an object that StoreTime writes.
func (a *Access) StoreTime(ctx context.Context) (time.Time, error) {
	_, _, err := a.extend(ctx, Lease{Job: clockJob, Holder: clockJob, Generation: 1}, 0, time.Now())
	var o storage.Object
	if err == nil {
		o, err = a.store.Bucket.Stat(ctx, a.key(clockJob))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store of cluster %s for its time: %w", a.store.Cluster, err)
	}
	return o.ModTime, nil
}
