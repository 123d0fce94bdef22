// Package lease keeps several processes from doing the same job for a cluster at the same time. A small document in the
// repository
//
//	<cluster>/leases/<job>.json
//
// names the process that works now and until when. Each change replaces exactly the version that was read, so of several
// processes one gets the lease, and a process that slept past the end of its lease cannot take it back.
//
// A lease prevents duplicate work; it does not guarantee mutual exclusion: a process may sleep between the check of its lease
// and a write. Objects that must exist only once have create-only names instead.
//
// Some stores that speak S3 ignore or refuse the condition (storage.PutOptions.IfVersion). Hold detects these stores. It
// then waits and reads the lease again, so that two processes have the lease at once only if one is slower than this wait.
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

// MaxLease is the longest duration of a lease. A stored lease that ends more than MaxLease from now was written with a wrong
// clock, and does not count.
const MaxLease = 10 * time.Minute

// Lease names the process that does a job, and until when it does.
type Lease struct {
	Format     int       `json:"format"`
	Job        string    `json:"job"`
	Holder     string    `json:"holder"`
	Until      time.Time `json:"until"`      // by the holder's clock
	Generation uint64    `json:"generation"` // increases by one with each acquisition; 0: not acquired yet
	LogEnd     *LogEnd   `json:"logEnd,omitempty"`
}

// LogEnd names the last segment that the holder has stored, or found stored. It is a hint where to read: only the segment
// itself proves that it exists.
type LogEnd struct {
	Lineage string `json:"lineage"`
	Seq     uint64 `json:"seq"`
}

// Access takes, renews and reads the leases of one cluster.
type Access struct{ store *records.Store }

// New returns access to the leases of the store's cluster.
func New(store *records.Store) *Access { return &Access{store} }

var jobPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

func validJob(name string) bool { return len(name) <= 100 && jobPattern.MatchString(name) }

func (a *Access) key(job string) string {
	return a.store.Cluster + "/leases/" + job + catalog.JSONSuffix
}

// Kind describes the stored form of leases.
var Kind = document.Kind[Lease]{Format: 1, Check: Lease.validate}

// validate returns an error if a field has a value that Acquire does not write.
func (l Lease) validate() error {
	if !validJob(l.Job) || l.Holder == "" {
		return fmt.Errorf("invalid job %q or empty holder %q", l.Job, l.Holder)
	}
	if l.LogEnd != nil && catalog.ValidLineage(l.LogEnd.Lineage) != nil {
		return fmt.Errorf("the log that it names is no lineage: %q", l.LogEnd.Lineage)
	}
	return nil
}

// live reports whether a process holds l at the time now, which is by the reader's clock; Until is by the holder's.
func (l Lease) live(now time.Time) bool {
	return l.Holder != "" && now.Before(l.Until) && !l.Until.After(now.Add(MaxLease))
}

// same reports whether l and other are one acquisition, renewed or not.
func (l Lease) same(other Lease) bool {
	return l.Holder == other.Holder && l.Generation == other.Generation
}

// Acquire takes the lease on job for holder, for the term t. If another process holds the lease, held is false and Acquire
// returns that process's Lease. In a store that honors conditions, only one of several processes gets the lease; for other
// stores use Hold. The job has up to 100 lower-case letters, digits and dashes, the holder's name must be unique to the
// process, and t.TTL is at most MaxLease. An invalid job or an empty holder gives catalog.ErrName.
func (a *Access) Acquire(ctx context.Context, job, holder string, t Term) (l Lease, held bool, err error) {
	taken, held, err := a.acquire(ctx, Lease{Job: job, Holder: holder}, t)
	return taken.Lease, held, err
}

// taken is a stored lease with the version of the object that it replaced.
type taken struct {
	version
	replaced string
}

// acquire implements Acquire. It takes the job, the holder and LogEnd from next.
func (a *Access) acquire(ctx context.Context, next Lease, t Term) (l taken, held bool, err error) {
	if !validJob(next.Job) || next.Holder == "" {
		return taken{}, false, fmt.Errorf("%w: lease on %q for %q: use up to 100 lower-case letters, digits and '-'",
			catalog.ErrName, next.Job, next.Holder)
	}
	checked := false
	for try := range tries {
		err = pause(ctx, try)
		if err != nil {
			return taken{}, false, err
		}
		old, err := a.readToReplace(ctx, next.Job)
		if err != nil {
			return taken{}, false, err
		}
		if old.live(t.Now) && old.Holder != next.Holder {
			return taken{version: old}, false, nil
		}
		if !checked { // before the first write
			err = a.store.CheckMarker(ctx)
			if err != nil {
				return taken{}, false, err
			}
			checked = true
		}
		next.Format, next.Generation = Kind.Format, old.Generation+1
		l, err = a.take(ctx, next, old, t)
		if !errors.Is(err, storage.ErrChanged) {
			return l, err == nil, err
		}
	}
	return taken{}, false, fmt.Errorf("take lease %s: %d tries have failed: run dr check: %w", a.key(next.Job), tries, storage.ErrChanged)
}

// tries is the number of attempts to change a lease, each after another process has changed it between the read and the write, or was just
// changing it.
const tries = 8

// pause waits before each try except the first, longer each time, up to 640 ms: the other process needs a moment to complete its change.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	return storage.Sleep(ctx, 5*time.Millisecond<<try)
}

// Term is the time for which a lease is taken or renewed.
type Term struct {
	TTL time.Duration
	Now time.Time
}

// take replaces old by next. If the lease is missing, take first creates it, already ended, so that all processes that take it
// replace the same version. It returns storage.ErrChanged if another process was first.
func (a *Access) take(ctx context.Context, next Lease, old version, t Term) (taken, error) {
	if old.id == "" {
		data, err := Kind.Encode(Lease{Job: next.Job, Holder: next.Holder})
		if err != nil {
			return taken{}, fmt.Errorf("lease %s: %w", a.key(next.Job), err)
		}
		created, err := a.put(ctx, next.Job, data, storage.PutOptions{IfAbsent: true})
		if errors.Is(err, storage.ErrExist) {
			return taken{}, fmt.Errorf("%w: %w", storage.ErrChanged, err)
		}
		if err != nil {
			return taken{}, err
		}
		old.id = created.Version
	}
	l, err := a.replace(ctx, next, old.id, t)
	return taken{l, old.id}, err
}

// Live returns the lease on job that is held now, or the zero Lease if there is none.
func (a *Access) Live(ctx context.Context, job string, now time.Time) (Lease, error) {
	stored, err := a.read(ctx, job)
	if errors.Is(err, catalog.ErrDamaged) { // Acquire can take it
		return Lease{}, nil
	}
	if err != nil || !stored.live(now) {
		return Lease{}, err
	}
	return stored.Lease, nil
}

// Renew makes l last for ttl from now on, even if it has ended, unless another process has taken it. In that case held is false
// and Renew returns that process's Lease, or the zero Lease if the stored one is missing or damaged.
//
// Renew reads the lease before it writes, for stores that ignore the condition of the write.
func (a *Access) Renew(
	ctx context.Context, l Lease, ttl time.Duration, now time.Time,
) (renewed Lease, held bool, err error) {
	v, held, err := a.renew(ctx, version{Lease: l}, Term{ttl, now})
	return v.Lease, held, err
}

// renew implements Renew. If l has the id of a version, the first try replaces that version without reading it.
func (a *Access) renew(ctx context.Context, l version, t Term) (renewed version, held bool, err error) {
	if l.id != "" {
		renewed, err = a.replaceVersion(ctx, l.Lease, l.id, t)
		if !errors.Is(err, storage.ErrChanged) && !errors.Is(err, storage.ErrUnsupported) {
			return renewed, err == nil, err
		}
	}
	for try := range tries {
		err = pause(ctx, try)
		if err != nil {
			return version{}, false, err
		}
		stored, err := a.read(ctx, l.Job)
		if err != nil || !stored.same(l.Lease) {
			return stored, false, err
		}
		renewed, err = a.replace(ctx, l.Lease, stored.id, t)
		if !errors.Is(err, storage.ErrChanged) {
			return renewed, err == nil, err
		}
	}
	return version{}, false, fmt.Errorf("renew lease %s: %d tries have failed: run dr check: %w", a.key(l.Job), tries, storage.ErrChanged)
}

// Release ends l, so that other processes need not wait for its end. It does nothing if another process has taken l.
func (a *Access) Release(ctx context.Context, l Lease, now time.Time) error {
	_, _, err := a.Renew(ctx, l, 0, now)
	return err
}

// replace stores l for the term t in place of the version with that id. If the store refuses the condition, replace stores l without
// it.
func (a *Access) replace(ctx context.Context, l Lease, id string, t Term) (version, error) {
	replaced, err := a.replaceVersion(ctx, l, id, t)
	if errors.Is(err, storage.ErrUnsupported) {
		return a.replaceVersion(ctx, l, "", t)
	}
	return replaced, err
}

// replaceVersion stores l for the term t in place of the version with that id, or of any if id is "".
func (a *Access) replaceVersion(ctx context.Context, l Lease, id string, t Term) (version, error) {
	l, data, err := a.encode(l, t)
	if err != nil {
		return version{}, err
	}
	put, err := a.put(ctx, l.Job, data, storage.PutOptions{IfVersion: id})
	if err != nil {
		return version{}, err
	}
	return version{l, put.Version}, nil
}

// encode returns l with the end of the term t, and its stored form.
func (a *Access) encode(l Lease, t Term) (Lease, []byte, error) {
	if t.TTL > MaxLease {
		return Lease{}, nil, fmt.Errorf("lease %s for %v: the longest is %v", a.key(l.Job), t.TTL, MaxLease)
	}
	l.Until = t.Now.UTC().Add(t.TTL)
	data, err := Kind.Encode(l)
	if err != nil {
		return Lease{}, nil, fmt.Errorf("lease %s: %w", a.key(l.Job), err)
	}
	return l, data, nil
}

// put stores data as the lease on job.
func (a *Access) put(ctx context.Context, job string, data []byte, o storage.PutOptions) (storage.Object, error) {
	stored, err := a.store.Bucket.Put(ctx, a.key(job), bytes.NewReader(data), o)
	if err != nil {
		return storage.Object{}, fmt.Errorf("write lease %s: %w", a.key(job), err)
	}
	return stored, nil
}

// version is a stored lease with the version of its object.
type version struct {
	Lease
	id string // storage.Object.Version; "" if the lease is missing
}

// read returns the stored lease, or the zero Lease if it is missing or damaged. If the store refuses to return it, the error
// matches catalog.ErrDamaged: the caller may have written the lease, and must not conclude that another process has it.
func (a *Access) read(ctx context.Context, job string) (version, error) {
	data, stored, err := a.store.ReadObject(ctx, a.key(job), document.MaxKind)
	if records.IsAbsent(err) {
		return version{}, nil
	}
	if errors.Is(err, catalog.ErrDamaged) && !storage.Unreadable(err) {
		return version{id: stored.Version}, nil
	}
	if err != nil {
		return version{}, fmt.Errorf("read lease %s: %w", a.key(job), err)
	}
	l, err := Kind.Decode(data)
	if err != nil || l.Job != job {
		return version{id: stored.Version}, nil
	}
	return version{l, stored.Version}, nil
}

// readToReplace is read, but if the store refuses to return the lease, it returns the zero Lease with the stored version.
func (a *Access) readToReplace(ctx context.Context, job string) (version, error) {
	v, err := a.read(ctx, job)
	if !errors.Is(err, catalog.ErrDamaged) {
		return v, err
	}
	stored, err := a.store.Bucket.Stat(ctx, a.key(job))
	return version{id: stored.Version}, err
}

// clockJob is the job of a lease that is written only to learn its date in the store.
const clockJob = "clock"

// StoreTime returns the current time by the store's clock: the date of an object that StoreTime writes.
func (a *Access) StoreTime(ctx context.Context) (time.Time, error) {
	_, data, err := a.encode(Lease{Job: clockJob, Holder: clockJob, Generation: 1}, Term{Now: time.Now()})
	if err == nil {
		_, err = a.put(ctx, clockJob, data, storage.PutOptions{})
	}
	var o storage.Object
	if err == nil {
		o, err = a.store.Bucket.Stat(ctx, a.key(clockJob))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store of cluster %s for its time: %w", a.store.Cluster, err)
	}
	return o.ModTime, nil
}
