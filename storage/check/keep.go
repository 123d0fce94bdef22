package check

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

const (
	// maxSkew is the largest acceptable difference between the clocks: locks and leases depend on them.
	maxSkew = time.Minute
	// tick is longer than the time resolution of every store.
	tick = 1200 * time.Millisecond
	// oldPiece is the age at which a piece of an upload no longer belongs to a running Put. The objects of backups have
	// the same grace period.
	oldPiece = 24 * time.Hour
)

func (p *probe) canDelete(ctx context.Context) Line {
	const key = "deleted"
	_, err := p.put(ctx, key, bytes.NewReader(p.content(0, small)), createOnly)
	if err != nil {
		return failed(err)
	}
	for range 2 { // the second time the object is missing, which is no error
		err := p.bucket.Delete(ctx, key, storage.DeleteOptions{})
		if errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrLocked) {
			return note("none is needed if these credentials should not delete backups; pruning then needs others",
				"these credentials cannot delete: old backups and this check's objects stay: %s", oneLine(err))
		}
		if err != nil {
			return failed(err)
		}
	}
	_, err = p.bucket.Stat(ctx, key)
	if !errors.Is(err, storage.ErrNotExist) {
		return wanting(anotherStore, "an object that was deleted still exists (error: %v)", err)
	}
	all, err := keys(ctx, p.bucket, storage.ListOptions{Prefix: key})
	switch {
	case err != nil:
		return failed(err)
	case slices.Contains(all, key):
		return wanting(anotherStore, "an object that was deleted is still listed")
	}
	return ok("an object was deleted and disappeared at once")
}

// lockHolds tries to delete a locked object. It does not rely on the lock that the store reports.
func (p *probe) lockHolds(ctx context.Context) Line {
	const key = "locked"
	if p.o.Lock.For <= 0 {
		return notRun("not requested: --lock 1m leaves one object in the store for a minute")
	}
	until := time.Now().Add(p.o.Lock.For).Truncate(time.Second).Add(time.Second)
	content := p.content(0, small)
	obj, err := p.put(ctx, key, bytes.NewReader(content),
		storage.PutOptions{IfAbsent: true, RetainUntil: until, Compliance: p.o.Lock.Compliance})
	if errors.Is(err, storage.ErrUnsupported) {
		return wanting("use a bucket that was created with object lock, or back up without --lock",
			"the store has no locks: %s", oneLine(err))
	}
	if err != nil {
		return failed(err)
	}
	stored, err := p.bucket.Stat(ctx, key)
	if err != nil {
		return failed(err)
	}
	if stored.RetainUntil.Before(until) {
		return wanting(anotherStore, "the lock should last until %s, the store reports %s", stamp(until), stamp(stored.RetainUntil))
	}
	l := p.tryToDelete(ctx, key, obj.Version, until)
	if l.Verdict != OK {
		return l
	}
	err = p.same(ctx, key, storage.OpenOptions{Version: obj.Version}, content)
	if err != nil {
		return wanting(lockCure, "deleting a locked object was refused, but it cannot be read as it was stored: %s", oneLine(err))
	}
	return ok("the store has refused to delete a locked object; %s%s stays until %s", p.dir, key, stamp(until))
}

const lockCure = "do not rely on locks in this store: anyone with these credentials can delete backups"

func (p *probe) tryToDelete(ctx context.Context, key, version string, until time.Time) Line {
	for _, o := range []storage.DeleteOptions{{}, {Version: version, SkipLockCheck: true}} {
		err := p.bucket.Delete(ctx, key, o)
		switch {
		case errors.Is(err, storage.ErrLocked):
		case !time.Now().Before(until):
			return unknown("use a longer --lock", "the lock ended before it could be tested")
		case errors.Is(err, storage.ErrDenied):
			return unknown("check with credentials that may delete",
				"deleting was refused for a missing permission, not because of the lock: %s", oneLine(err))
		case err != nil:
			return failed(err)
		default:
			return wanting(lockCure, "an object that is locked until %s was deleted", stamp(until))
		}
	}
	return Line{Verdict: OK}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// expire is a rule that every bucket should have.
const expire = "let the store remove unfinished uploads after 7 days (a lifecycle rule)"

const (
	switchOn = "switch the bucket's versioning on: then --as-of reads deleted and overwritten objects"
	noAsOf   = "do not rely on --as-of in this store"
)

// versioning replaces an object and reads the previous one.
func (p *probe) versioning(ctx context.Context) Line {
	const key = "versions"
	_, err := p.asOf(ctx, time.Now())
	if errors.Is(err, storage.ErrUnsupported) {
		return note("use a store with versions, which protects backups from deletion and overwriting", "the store keeps no versions")
	}
	_, err = p.put(ctx, key, bytes.NewReader(p.content(1, small)), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	first, err := p.bucket.Stat(ctx, key)
	if err != nil {
		return failed(err)
	}
	if storage.Sleep(ctx, tick) != nil {
		return notRun("interrupted")
	}
	_, err = p.put(ctx, key, bytes.NewReader(p.content(2, small)), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	past, err := p.asOf(ctx, first.ModTime)
	if err != nil {
		return unknown(cureOf(err), "%s", oneLine(err))
	}
	before := probe{bucket: past}
	err = before.same(ctx, key, storage.OpenOptions{}, p.content(1, small))
	switch {
	case errors.Is(err, storage.ErrNotExist):
		if p.same(ctx, key, storage.OpenOptions{Version: first.Version}, p.content(1, small)) == nil {
			return wanting(noAsOf, "the store keeps the replaced version, but with a wrong time")
		}
		return note(switchOn, "an object that is replaced or deleted is gone")
	case errors.Is(err, storage.ErrDenied):
		return unknown(cureOf(err), "%s", oneLine(err))
	case err != nil:
		return wanting(noAsOf, "reading an object as it was before it was replaced: %s", oneLine(err))
	}
	return ok("--as-of reads a replaced object as it was before")
}

// asOf returns the check's own folder as it was at t.
func (p *probe) asOf(ctx context.Context, t time.Time) (past storage.Bucket, err error) {
	if p.o.AsOf != nil {
		past, err = p.o.AsOf(ctx, t)
	} else {
		past, err = storage.AsOf(p.root, t)
	}
	if err != nil {
		return nil, err
	}
	return storage.WithPrefix(past, p.dir), nil
}

func (p *probe) clockSkew(ctx context.Context) Line {
	const key = "clock"
	before := time.Now()
	_, err := p.put(ctx, key, bytes.NewReader(p.content(0, small)), createOnly)
	if err != nil {
		return failed(err)
	}
	after := time.Now()
	obj, err := p.bucket.Stat(ctx, key)
	if err != nil {
		return failed(err)
	}
	skew := distanceOutside(obj.ModTime, before.Add(-tick), after) // a store with times in seconds rounds down
	if skew.Abs() > maxSkew {
		return wanting("synchronise both clocks by NTP: locks and leases depend on them",
			"the store's clock differs from this host's by %s", skew.Round(time.Second))
	}
	atMost := skew.Abs().Truncate(time.Second) + time.Second
	return ok("the store's clock and this host's differ by %v at most", atMost)
}

// distanceOutside returns how far t is before from (negative) or after to.
func distanceOutside(t, from, to time.Time) time.Duration {
	switch {
	case t.Before(from):
		return t.Sub(from)
	case t.After(to):
		return t.Sub(to)
	}
	return 0
}

// leftovers counts the pieces of killed uploads in the whole repository.
func (p *probe) leftovers(ctx context.Context) Line {
	sweeper, sweeps := storage.AsSweeper(p.root)
	if !sweeps {
		return ok("this kind of store keeps no unfinished uploads")
	}
	var old, young, size int64
	for piece, err := range sweeper.Leftovers(ctx, "") {
		switch {
		case err != nil:
			return unknown(cureOf(err), "%s", oneLine(err))
		case time.Since(piece.ModTime) < oldPiece:
			young++
		default:
			old++
			size += piece.Size
		}
	}
	if old > 0 {
		return wanting("dr backup removes those of its cluster; "+expire,
			"%d pieces of uploads that were killed more than a day ago, with %d bytes in all", old, size)
	}
	return ok("no pieces older than a day; %d pieces of uploads that may still be running", young)
}
