package restore

import (
	"context"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
)

// Prepared is the database at a plan's target, before it becomes that of a new cluster.
type Prepared struct {
	DB       string    // its path
	Revision int64     // of the key space
	Replayed *Replayed // nil: the log was not replayed
}

// Preparation describes a database to make.
type Preparation struct {
	Plan    plan.Plan
	From    child.Opened
	Dir     string               // for the database
	Between func(Prepared) error // called with the backup's database before the replay; nil: not called
	Watch   *replay.Watch        // receives changes of the replay; nil: none
	Report  storage.Report
}

// Prepare runs the stages of the plan that make its database: fetch, check, prove, replay. It asks no member and builds no data
// dir. It returns the errors of Run. A damaged database may end the process, as with Run.
func (p Preparation) Prepare(ctx context.Context) (Prepared, error) {
	r := p.run()
	prove := func(ctx context.Context) error {
		err := r.prove(ctx)
		if err == nil && p.Between != nil {
			err = p.Between(r.prepared())
		}
		return err
	}
	watched := func(ctx context.Context) error { return r.replayWatched(ctx, p.Watch) }
	err := r.through(ctx, []stage{{"fetch", r.fetch}, {"check", r.check}, {"prove", prove}, {"replay", watched}})
	if err != nil {
		return Prepared{}, asObstacle(p.Plan, err)
	}
	return r.prepared(), nil
}

// Continue is like Prepare, for a Dir that contains the database of an earlier point of the same backup and log: it replays only
// the rest of the log. Between and Watch are not used.
func (p Preparation) Continue(ctx context.Context) (Prepared, error) {
	r := p.run()
	err := r.phase(ctx, "replay", r.replay)
	if err != nil {
		return Prepared{}, asObstacle(p.Plan, err)
	}
	return r.prepared(), nil
}

func (p Preparation) run() *run {
	return &run{plan: p.Plan, cluster: p.From.Cluster, keys: p.From.Keys, report: p.Report, db: filepath.Join(p.Dir, "db")}
}

func (r *run) prepared() Prepared {
	return Prepared{DB: r.db, Revision: r.facts.revision, Replayed: r.result.Replayed}
}

// Obstructed returns the ObstacleError of an obstacle and an error that were received from a child.
func Obstructed(o plan.Obstacle, err error) error { return &ObstacleError{o, err} }
