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

// Prepared is a database as a plan's target had it, without anything of a new cluster in it.
type Prepared struct {
	DB       string    // its path
	Revision int64     // of the key space
	Replayed *Replayed // nil: nothing was
}

// Prepare runs a plan of a backup as far as its database goes, in dir: fetch, check, prove, replay. No member is asked
// and no data dir is built. It fails as Run does. between, if not nil, is called with the backup's database before the log
// is replayed onto it, and the replay tells w, if that is not nil. It belongs into a process that may die, as Run does.
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

// Continue is Prepare for a database in dir that a plan with the same backup has led to, along the same log and no
// further: only what is behind that is replayed.
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

// Obstructed is err with the obstacle that it stands for, as it comes out of a child.
func Obstructed(o plan.Obstacle, err error) error { return &ObstacleError{o, err} }
