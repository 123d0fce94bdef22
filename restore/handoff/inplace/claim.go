package inplace

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

// pinFor is how long the pin of a restore lasts that never lifts it.
const pinFor = 30 * 24 * time.Hour

// Author returns the author of the pin and the suspension of a restore with an id: by, such as "EtcdRestore payments/nightly", restores a
// target, such as "StatefulSet payments/etcd".
func Author(by, id, target string) string { return fmt.Sprintf("%s, restore %s of %s", by, id, target) }

// isRestore matches an Author with its target. Members of hosts are no targets: each host has a claim of its own.
var isRestore = regexp.MustCompile(`, restore [0-9a-f]{16} of (StatefulSet \S+)$`)

// haveSameTarget reports whether two authors are restores of the same target.
func haveSameTarget(a, b string) bool {
	of, with := isRestore.FindStringSubmatch(a), isRestore.FindStringSubmatch(b)
	return of != nil && with != nil && of[1] == with[1]
}

// claim is the handoff.Claim of a restore: the target's own claim, and a pin and a suspension in the repository. A repository that may
// only be read from has neither, which is a warning: it must not refuse the restore.
type claim struct {
	Target
	*Restore
}

// Pin implements handoff.Claim.
func (c claim) Pin(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	if r.Plan.Backup == nil {
		return handoff.Progress{Done: true}, nil
	}
	err := c.pin(ctx, r.Plan.Backup.ID)
	if isReadOnly(err) {
		c.Warn(NotPinned, fmt.Sprintf("backup %s is not pinned, so prune must not remove it before the restore has ended: %v", r.Plan.Backup.ID, err))
		err = nil
	}
	return handoff.Progress{Done: err == nil}, err
}

func (c claim) pin(ctx context.Context, id catalog.ID) error {
	store, err := c.open(ctx)
	if err != nil {
		return err
	}
	pins, err := store.Pins(ctx, id)
	if err != nil {
		return err
	}
	for _, p := range pins {
		if p.By == c.By {
			return nil
		}
	}
	now := time.Now().UTC()
	_, err = store.Pin(ctx, catalog.Pin{Backup: id, Reason: "it is being restored", Time: now, Until: now.Add(pinFor), By: c.By})
	return err
}

// Suspend implements handoff.Claim. It is the last act before members are stopped: it refuses to replace data without a confirmation.
func (c claim) Suspend(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	if !r.Vacant && !c.Confirmed {
		return handoff.Progress{}, fmt.Errorf("%w: %s", fault.Refused, c.unconfirmed(r.Handoff))
	}
	err := c.refuseReturned(ctx, r)
	if err != nil {
		return handoff.Progress{}, err
	}
	if c.Clone || c.Open == nil { // the cluster that was backed up is another one, or the repository is not known
		return done, nil
	}
	err = c.suspend(ctx)
	if isReadOnly(err) {
		c.Warn(NotSuspended, fmt.Sprintf("the backups of the cluster are not suspended: one that is taken meanwhile fails, or has a part of the restored data: %v", err))
		err = nil
	}
	return handoff.Progress{Done: err == nil}, err
}

// refuseReturned refuses if the cluster that was backed up has come back outside of the target since the plan was made, or if the target's own
// members serve again long after that.
func (c claim) refuseReturned(ctx context.Context, r handoff.Record) error {
	if c.Given != nil || r.Step != handoff.Suspend || r.Plan == nil {
		return nil
	}
	c.live = c.askTarget(ctx, r.Handoff)
	switch {
	case c.live.id == "" && r.Handoff.Serves: // which answers are its own is not known
		return nil
	case c.live.leads && !r.Handoff.Serves && !r.Paused && !r.Begun.IsZero() && time.Since(r.Begun) > DefaultExpires:
		return fmt.Errorf("%w: the members had no leader when the restore was planned, %s ago, and have one now: order it again if their data is still to be replaced",
			fault.Refused, time.Since(r.Begun).Round(time.Minute))
	}
	return c.refuseOthers(ctx, *r.Plan, r.Handoff)
}

func (c claim) suspend(ctx context.Context) error {
	store, err := c.open(ctx)
	if err != nil {
		return err
	}
	now, err := store.Services().Read(ctx)
	if err == nil && now.Suspended && (now.By == c.By || !haveSameTarget(now.By, c.By)) {
		return nil // whose author also ends it; an earlier restore of this target no longer does, because it has lost the claim
	}
	if err != nil && !errors.Is(err, catalog.ErrDamaged) {
		return err
	}
	_, err = store.Services().Write(ctx, suspension.Suspension{Suspended: true, Time: time.Now(), By: c.By, Reason: "it is being restored"})
	return err
}

// Lift implements handoff.Claim. The target's claim ends last. A repository that refuses the end of a pin or a suspension which it has
// accepted delays that end: otherwise no backup would be taken any more.
func (c claim) Lift(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	err := c.release(ctx, r)
	switch {
	case c.Open == nil && r.Plan != nil && r.Plan.Backup != nil:
		c.Warn(NotLifted, "without the repository, the backups of the cluster may stay suspended: run dr resume")
	case err == nil:
	case c.Abandoned:
		c.Warn(NotLifted, fmt.Sprintf("the backups of the cluster may still be suspended: run dr resume: %v", err))
	default:
		return handoff.Progress{}, err
	}
	return c.Target.Lift(ctx, r)
}

// release ends the pin and the suspension of this restore. If its record was lost, a pin that the record named ends with its time.
func (c claim) release(ctx context.Context, r handoff.Record) error {
	if c.Open == nil || r.Plan == nil && !r.Rebuilt {
		return nil // none was begun
	}
	store, err := c.open(ctx)
	if err != nil {
		return err
	}
	if r.Plan != nil {
		err = c.unpin(ctx, store, r.Plan.Backup)
	}
	return errors.Join(err, c.resume(ctx, store))
}

func (c claim) unpin(ctx context.Context, store *repository.Cluster, b *catalog.Backup) error {
	if b == nil {
		return nil
	}
	_, err := store.UnpinOwn(ctx, catalog.Unpin{Backup: b.ID, Time: time.Now().UTC(), By: c.By}, c.By)
	if errors.Is(err, catalog.ErrNotFound) {
		return nil
	}
	return err
}

func (c claim) resume(ctx context.Context, store *repository.Cluster) error {
	now, err := store.Services().Read(ctx)
	if errors.Is(err, catalog.ErrDamaged) || err == nil && (!now.Suspended || now.By != c.By) {
		return nil
	}
	if err == nil {
		_, err = store.Services().Write(ctx, suspension.Suspension{Time: time.Now(), By: c.By})
	}
	return err
}

// unclaimed is the handoff.Claim of a dry run, which holds nothing.
type unclaimed struct{}

func (unclaimed) Take(context.Context, handoff.Record) (handoff.Progress, error)    { return done, nil }
func (unclaimed) Pin(context.Context, handoff.Record) (handoff.Progress, error)     { return done, nil }
func (unclaimed) Suspend(context.Context, handoff.Record) (handoff.Progress, error) { return done, nil }
func (unclaimed) Lift(context.Context, handoff.Record) (handoff.Progress, error)    { return done, nil }

var done = handoff.Progress{Done: true}

// isReadOnly reports whether err is that of a repository that this restore may only read from.
func isReadOnly(err error) bool {
	return errors.Is(err, records.ErrUnsigned) || fault.KindOf(err) == fault.Denied
}
