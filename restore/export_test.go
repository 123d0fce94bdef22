package restore

import (
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// NewObstacle returns the error of a run that o ended.
func NewObstacle(o plan.Obstacle, err error) error { return &ObstacleError{o, err} }

// WorkDir creates the work directory of the plan id for target. The function there reports whether the directory is still
// complete.
func WorkDir(target, id string) (there func() bool, remove func(), err error) {
	w, err := openWork(target, id, nil)
	if err != nil {
		return nil, nil, err
	}
	return func() bool {
		_, tree := os.Stat(w.tree)
		_, lock := os.Stat(filepath.Join(w.dir, "lock"))
		return tree == nil && lock == nil
	}, w.remove, nil
}
