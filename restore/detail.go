package restore

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Unfold returns the segments that a folded one replaces, as log.Log.Unfold in storage does.
type Unfold func(ctx context.Context, folded catalog.Segment) ([]catalog.Segment, error)

// Detail returns the catalog of r, in which every segment is unfolded that plan.Needs names for a plan that avoids the obstacles met.
func Detail(ctx context.Context, r plan.Request, unfold Unfold, met ...plan.Blocked) (catalog.Catalog, error) {
	c := r.Catalog
	for {
		folds := plan.Needs(c, r.Target, met...)
		if len(folds) == 0 {
			return c, nil
		}
		for _, folded := range folds {
			segments, err := unfold(ctx, folded)
			if err != nil {
				return c, fmt.Errorf("read the log around the target: %w", err)
			}
			c = c.Unfold(folded, segments)
		}
	}
}
