package restore

import (
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// NewObstacle is how a run ends that meets o.
func NewObstacle(o plan.Obstacle, err error) error { return &ObstacleError{o, err} }

// WorkDir makes the directory in which the plan called id is built for target. there is whether it is still whole.
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
