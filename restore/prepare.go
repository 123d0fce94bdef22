package restore

import (
	"context"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Prepared is the database at a plan's target, before it becomes that of a new cluster.
type Prepared struct {
	DB       string    // its path
	Revision int64     // of the key space
	Replayed *Replayed // nil: the log was not replayed
}

// Prepare runs the stages of a plan that make its database, in dir: fetch, check, prove, replay. It asks no member and builds no data
// dir. It returns the errors of Run. between, if not nil, is called with the backup's database before the replay, and the
// replay reports to w, if that is not nil. Like Run it may end the process.
func Prepare(
	ctx context.Context, p plan.Plan, c *repository.Cluster, keys seal.Keys, dir string,
	between func(Prepared) error, w *replay.Watch, report storage.Report,
) (Prepared, error) {
	r := &run{plan: p, cluster: c, keys: keys, report: report, db: filepath.Join(dir, "db")}
	prove := func(ctx context.Context) error {
		err := r.prove(ctx)
		if err == nil && between != nil {
			err = between(r.prepared())
		}
		return err
	}
	watched := func(ctx context.Context) error { return r.replayWatched(ctx, w) }
	err := r.through(ctx, []stage{{"fetch", r.fetch}, {"check", r.check}, {"prove", prove}, {"replay", watched}})
	if err != nil {
		return Prepared{}, asObstacle(p, err)
	}
	return r.prepared(), nil
}

// Continue is like Prepare, for a dir that contains the database of an earlier point of the same backup and log: it replays
// only the rest of the log.
func Continue(
	ctx context.Context, p plan.Plan, c *repository.Cluster, keys seal.Keys, dir string, report storage.Report,
) (Prepared, error) {
	r := &run{plan: p, cluster: c, keys: keys, report: report, db: filepath.Join(dir, "db")}
	err := r.phase(ctx, "replay", r.replay)
	if err != nil {
		return Prepared{}, asObstacle(p, err)
	}
	return r.prepared(), nil
}

func (r *run) prepared() Prepared {
	return Prepared{DB: r.db, Revision: r.facts.revision, Replayed: r.result.Replayed}
}

// Obstructed returns err with its obstacle, as received from a child.
func Obstructed(o plan.Obstacle, err error) error { return &ObstacleError{o, err} }
