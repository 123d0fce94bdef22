package verify

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Exercise is one restore in a drill's plan.
type Exercise struct {
	Plan   plan.Plan
	Drill  catalog.Drill
	Hashes []catalog.HashKV
}

// PlanDrill returns the restores of a drill.
func PlanDrill(a Aim, c catalog.Catalog, now time.Time) ([]Exercise, error) {
	planned, err := a.plan(context.Background(), c, nil, now)
	var exercises []Exercise
	for _, e := range planned {
		exercises = append(exercises, Exercise{e.plan, e.drill, e.hashes})
	}
	return exercises, err
}
