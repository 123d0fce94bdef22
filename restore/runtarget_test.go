package restore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// attempt returns an Attempt at the newest point of a catalog without folded segments.
func attempt(c catalog.Catalog, t plan.Target, run func(context.Context, plan.Plan) (restore.Result, error)) restore.Attempt {
	return restore.Attempt{
		Request: plan.Request{Catalog: c, Target: t, Layout: plan.Layout{Token: "t"}, Now: now}, Run: run,
	}
}

// manyBackups returns a catalog with n backups and no log.
func manyBackups(t *testing.T, n int) catalog.Catalog {
	t.Helper()
	c := store(t, plainDatabase(t), nil).catalog(t)
	for i := range n - 1 {
		older := c.Backups[0]
		older.Started = older.Started.Add(-time.Duration(i+1) * time.Hour)
		older.Finished = older.Started.Add(time.Second)
		older.ID = catalog.NewID(older.Started, older.Revision)
		c.Backups = append(c.Backups, older)
	}
	return c
}

// RunTarget avoids the obstacles that a run finds, and returns the result of the last run.
func TestRunTargetGoesAround(t *testing.T) {
	c := manyBackups(t, 3)
	run := func(_ context.Context, p plan.Plan) (restore.Result, error) {
		if p.Backup.ID != c.Backups[2].ID {
			return restore.Result{}, restore.NewObstacle(plan.Obstacle{Base: true}, catalog.ErrDamaged)
		}
		return restore.Result{PlanID: p.ID}, nil
	}
	p, result, err := restore.RunTarget(t.Context(), attempt(c, plan.Target{Best: true}, run))
	if err != nil || p.Backup.ID != c.Backups[2].ID || result.PlanID != p.ID {
		t.Errorf("plan of %s, result %+v, %v", p.Backup.ID, result, err)
	}
	p, _, err = restore.RunTarget(t.Context(), attempt(c, plan.Target{}, run))
	if !errors.Is(err, catalog.ErrDamaged) || p.Backup.ID != c.Backups[0].ID {
		t.Errorf("without Best: plan of %s, %v", p.Backup.ID, err)
	}
	p, _, err = restore.RunTarget(t.Context(), attempt(c, plan.Target{Backup: c.Backups[1].ID, Best: true}, run))
	if !errors.Is(err, catalog.ErrDamaged) || p.Backup.ID != c.Backups[1].ID {
		t.Errorf("a backup by its name: plan of %s, %v", p.Backup.ID, err)
	}
}

// RunTarget gives up after some obstacles, since each costs as much as a restore.
func TestRunTargetEnds(t *testing.T) {
	runs := 0
	run := func(context.Context, plan.Plan) (restore.Result, error) {
		runs++
		return restore.Result{}, restore.NewObstacle(plan.Obstacle{Base: true}, catalog.ErrDamaged)
	}
	_, _, err := restore.RunTarget(t.Context(), attempt(manyBackups(t, 30), plan.Target{Best: true}, run))
	if err == nil || runs != 9 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// A caller that stops a restore does not get another one, nor does an error that is no damage.
func TestRunTargetStops(t *testing.T) {
	c := manyBackups(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	count := 0
	stop := func(context.Context, plan.Plan) (restore.Result, error) {
		count++
		cancel()
		return restore.Result{}, restore.NewObstacle(plan.Obstacle{Base: true}, catalog.ErrDamaged)
	}
	_, _, err := restore.RunTarget(ctx, attempt(c, plan.Target{Best: true}, stop))
	if err == nil || count != 1 {
		t.Errorf("canceled: %d runs, %v", count, err)
	}
	away, count := errors.New("the store is unreachable"), 0
	fail := func(context.Context, plan.Plan) (restore.Result, error) { count++; return restore.Result{}, away }
	_, _, err = restore.RunTarget(t.Context(), attempt(c, plan.Target{Best: true}, fail))
	if !errors.Is(err, away) || count != 1 {
		t.Errorf("unreachable: %d runs, %v", count, err)
	}
}

// After a change of keys a restore has only the new key: it skips each backup that this key does not open.
func TestRunTargetAvoidsUndecryptableBackups(t *testing.T) {
	c := manyBackups(t, 4)
	for i := range c.Backups {
		c.Backups[i].Seal.Recipients = []string{"old"}
	}
	for name, test := range map[string]struct {
		opens int // index of the backup for the new key; -1: none is
		runs  []catalog.ID
	}{
		"one is for it": {3, []catalog.ID{c.Backups[0].ID, c.Backups[3].ID}},
		"none is":       {-1, []catalog.ID{c.Backups[0].ID}},
	} {
		c := c
		c.Backups = slices.Clone(c.Backups)
		if test.opens >= 0 {
			c.Backups[test.opens].Seal.Recipients = []string{"new"}
		}
		var runs []catalog.ID
		_, _, err := restore.RunTarget(t.Context(), attempt(c, plan.Target{Best: true}, func(_ context.Context, p plan.Plan) (restore.Result, error) {
			runs = append(runs, p.Backup.ID)
			if p.Backup.Seal.Recipients[0] == "old" {
				return restore.Result{}, seal.ErrWrongKey
			}
			return restore.Result{}, nil
		}))
		if !slices.Equal(runs, test.runs) || (err == nil) != (test.opens >= 0) || err != nil && !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("%s: %q, %v", name, runs, err)
		}
	}
}

// An alarm may be raised after the member was asked, and before its snapshot: only the database has it.
func TestAnAlarmInTheBaseIsAnObstacle(t *testing.T) {
	s := store(t, databaseWith(t, content{prefix: "key/", alarms: []pb.AlarmType{pb.AlarmType_CORRUPT}}), nil)
	_, err := restore.Spawn(t.Context(), s.plan(t, plan.Layout{Into: one(t, "m1")}), s.source(), nil)
	obstacle, ok := errors.AsType[*restore.ObstacleError](err)
	if !ok || !obstacle.Obstacle.Base || !errors.Is(err, fault.Refused) || errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("error %v", err)
	}
}
