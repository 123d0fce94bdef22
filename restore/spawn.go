package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
)

// ChildVerb is the verb of the child process that runs Serve.
const ChildVerb = "restore"

type job struct {
	Plan   plan.Plan    `json:"plan"`
	Source child.Source `json:"source"`
}

// From returns the repository that the child reads.
func (j job) From() child.Source { return j.Source }

// Spawn calls Run in a child process. If the child crashes while it reads a database, other than for lack of a resource, the error matches
// catalog.ErrDamaged and names the stage. Spawn removes the work dirs of a child that died.
func Spawn(ctx context.Context, p plan.Plan, s child.Source, report storage.Report) (Result, error) {
	err := p.Validate()
	if err != nil {
		return Result{}, err
	}
	var a answer
	err = child.Call{Verb: ChildVerb, Job: job{p, s}, Result: &a, Report: report}.Run(ctx)
	if err != nil {
		removeDead(p)
		return Result{}, asObstacle(p, child.Died(err))
	}
	return a.Result, a.Met.Err()
}

// answer is the child's answer: a result, or an obstacle.
type answer struct {
	Result Result           `json:"result"`
	Met    *EncodedObstacle `json:"met,omitempty"`
}

// removeDead removes the work dirs of a child that died. It leaves those that a live process has locked.
func removeDead(p plan.Plan) {
	targets := []string{p.Into.Target()}
	if p.Into.WALDir != "" {
		targets = append(targets, p.Into.WALDir)
	}
	for _, target := range targets {
		w, err := newWork(target, p.ID)
		if err != nil {
			continue
		}
		_ = w.clearStale(0, nil) // 0: the child was waited for, so its lock has ended
	}
}

// Serve runs the job of Spawn in the child.
func Serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var j job
	err := json.Unmarshal(input, &j)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	from, err := j.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(200) // at the default a replay spends a quarter of its time on garbage collection
	result, err := Run(ctx, j.Plan, from, report)
	met := EncodeObstacle(err)
	if met != nil {
		return answer{Met: met}, nil
	}
	return answer{Result: result}, err
}
