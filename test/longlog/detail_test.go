package longlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/longlog"
)

// TestPlanOfALongLog checks that a plan from a catalog in which the segments are folded, except near the target, equals the plan from a catalog
// in which none is.
func TestPlanOfALongLog(t *testing.T) {
	l := longlog.New(t, 3*longlog.Index+300)
	c, err := repository.Open(l, longlog.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	load := func(o backups.LoadOptions) catalog.Catalog {
		catalog, err := c.Load(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return catalog
	}
	folded := load(backups.LoadOptions{Log: true})
	all := load(backups.LoadOptions{Log: true, Details: true})
	n := len(folded.Lineages[0].Segments)
	if n > l.Segments*2/3 {
		t.Fatalf("%d segments of %d are left: nothing was folded", n, l.Segments)
	}
	for _, target := range targets(all.Windows()[0]) {
		detailed, err := restore.Detail(t.Context(), plan.Request{Catalog: folded, Target: target}, c.Log().Unfold)
		if err != nil {
			t.Fatal(err)
		}
		want, got := planText(all, target), planText(detailed, target)
		diff := cmp.Diff(want, got)
		if diff != "" {
			t.Errorf("%+v (-all details +folded):\n%s", target, diff)
		}
	}
}

// targets returns the newest point, and some before, in and after w.
func targets(w catalog.Window) []plan.Target {
	random := rand.New(rand.NewPCG(1, 0))
	all := []plan.Target{{}}
	for range rounds() {
		n := random.Int64N(w.To.Revision + 500)
		all = append(all,
			plan.Target{Revision: n + 1},
			plan.Target{Revision: n + 1, Best: true},
			plan.Target{Lineage: longlog.Lineage, Position: uint64(n) + 1},
			plan.Target{Time: longlog.Begin.Add(time.Duration(random.Int64N(int64(w.To.Time.Sub(longlog.Begin)) + int64(time.Minute))))})
	}
	return all
}

func rounds() int {
	if testing.Short() {
		return 2
	}
	return 12
}

func planText(c catalog.Catalog, t plan.Target) string {
	now := longlog.Begin.Add(30 * 24 * time.Hour)
	p, err := plan.New(c, t, plan.Layout{Token: "t"}, now)
	text, _ := p.Encode() // of plain fields: cannot fail
	return fmt.Sprintf("%s%v", text, err)
}

// TestObstacleInALongLog checks that a restore avoids one segment, and not those that are folded with it.
func TestObstacleInALongLog(t *testing.T) {
	l := longlog.New(t, 3*longlog.Index+300)
	c, err := repository.Open(l, longlog.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	const bad = longlog.Index*3 - 10 // after the newest backup, in the middle of an index
	for _, details := range []bool{true, false} {
		catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true, Details: details})
		if err != nil {
			t.Fatal(err)
		}
		run := func(_ context.Context, p plan.Plan) (restore.Result, error) {
			if p.Log.Last < bad {
				return restore.Result{}, nil
			}
			return restore.Result{}, restore.Obstructed(plan.Obstacle{Segment: bad}, errors.New("it is damaged"))
		}
		request := plan.Request{
			Catalog: catalog, Target: plan.Target{Best: true}, Layout: plan.Layout{Token: "t"}, Now: longlog.Begin,
		}
		p, _, err := restore.RunTarget(t.Context(), restore.Attempt{Request: request, Unfold: c.Log().Unfold, Run: run})
		if err != nil || p.Log.Last != bad-1 {
			t.Errorf("details %t: the log is replayed up to segment %d, want %d; error %v", details, p.Log.Last, bad-1, err)
		}
	}
}
