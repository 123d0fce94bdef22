package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ChildVerb is the verb of the child process that runs Serve.
const ChildVerb = "verify"

// job is the input of a child: a restore into a scratch directory, up to a level.
type job struct {
	Plan       plan.Plan             `json:"plan"`
	Level      catalog.Level         `json:"level"`
	Source     child.Source          `json:"source"`
	Dir        string                `json:"dir"`              // used by this job alone
	Hashes     []catalog.HashKV      `json:"hashes,omitempty"` // of the member, up to the plan's end, newest first
	Assertions []assertion.Assertion `json:"assertions,omitempty"`
	Limits     child.Limits          `json:"limits,omitzero"`
}

// From returns the repository that the child reads.
func (j job) From() child.Source { return j.Source }

// found is the result of a child, or of a level that needs no child.
type found struct {
	Key        string              `json:"key,omitempty"`
	HashKV     string              `json:"hashKV,omitempty"`
	Revision   int64               `json:"revision,omitempty"`
	Keys       int64               `json:"keys,omitempty"`
	Replayed   *restore.Replayed   `json:"replayed,omitempty"`
	RTO        float64             `json:"rtoSeconds,omitempty"` // from the start of the child's work until the server was ready
	Steps      []catalog.Step      `json:"steps,omitempty"`
	Assertions []catalog.Assertion `json:"assertions,omitempty"`

	Met        *restore.EncodedObstacle `json:"met,omitempty"` // the obstacle to a target after the backup; nil if there was none
	sealedOnly bool                     // only the sealed bytes were compared: there was no key
}

// fillProof sets the fields of p that the child determines.
func (f found) fillProof(p *catalog.Proof) {
	p.Key, p.HashKV, p.Revision, p.Keys = f.Key, f.HashKV, f.Revision, f.Keys
}

// scratchLayout returns the layout of a single temporary member. It permits a restore while the old cluster runs.
func scratchLayout() plan.Layout {
	return plan.Layout{
		Members: []plan.Member{{Name: scratch.Member, PeerURLs: []string{scratch.PeerURL}}},
		Token:   "scratch", Bump: "0", AllowCorrupt: true, OldIsDead: true,
	}
}

// inChild runs j in a child, in a new directory below dir, and removes that directory.
func inChild(ctx context.Context, j job, dir string, report storage.Report) (f found, err error) {
	childDir, err := child.NewDir(dir, "verify")
	if err != nil {
		return found{}, err
	}
	defer func() { _ = childDir.Remove() }() // the child removes its content, unless it dies
	path, err := filepath.Abs(childDir.Path)
	if err != nil {
		return found{}, err
	}
	j.Dir = path
	j.Plan, err = j.Plan.Place(plan.Into{Name: scratch.Member, DataDir: filepath.Join(path, "data")})
	if err != nil {
		return found{}, err
	}
	err = child.Call{Verb: ChildVerb, Job: j, Result: &f, Report: report}.Run(ctx)
	return f, err
}

// Serve runs a job of Run or Drill. The main function of the child calls it.
func Serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	begin := time.Now()
	var j job
	err := json.Unmarshal(input, &j)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	defer func() { _ = child.RemoveDir(j.Dir) }() // the parent removes it too, unless it died
	err = j.Limits.Apply()
	if err != nil {
		return nil, err
	}
	from, err := j.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	if j.Plan.Log != nil {
		debug.SetGCPercent(200) // as in a restore, whose duration is estimated from this one
	}
	restored, err := restore.Run(ctx, j.Plan, from, report)
	met := restore.EncodeObstacle(err)
	if met != nil && j.Plan.Log != nil {
		return found{Met: met}, nil
	}
	if err != nil {
		return nil, err
	}
	f := foundIn(restored)
	if j.Level == catalog.Booted {
		err = f.boot(ctx, j, begin, report)
	}
	return f, err
}

// foundIn returns the findings of a restore.
func foundIn(r restore.Result) found {
	f := found{Key: r.Key, HashKV: r.HashKV, Revision: r.Revision, Keys: r.Keys, Replayed: r.Replayed}
	if r.Replayed != nil {
		f.HashKV = r.Replayed.Proven
	}
	for _, p := range r.Phases {
		f.Steps = append(f.Steps, catalog.Step{Stage: p.Stage, Seconds: p.Seconds})
	}
	return f
}

// step runs do and records its duration as a step of f.
func (f *found) step(stage, message string, report storage.Report, do func() error) error {
	report.Say(storage.Event{Stage: stage, Message: message})
	begin := time.Now()
	err := do()
	f.Steps = append(f.Steps, catalog.Step{Stage: stage, Seconds: time.Since(begin).Seconds()})
	return err
}

// boot boots the restored data, compares it, evaluates the assertions, and stops the server.
func (f *found) boot(ctx context.Context, j job, begin time.Time, report storage.Report) error {
	var server *scratch.Server
	err := f.step("boot", "starting an etcd server on the restored data", report, func() (err error) {
		server, err = scratch.Boot(ctx, filepath.Join(j.Dir, "data"))
		return err
	})
	if err != nil && (ctx.Err() != nil || errors.Is(err, scratch.ErrLate)) {
		return err
	}
	if err != nil {
		return child.Blame("boot", err.Error())
	}
	defer server.Close()
	f.RTO = time.Since(begin).Seconds()
	err = f.step("compare", "comparing the key space that it serves", report, func() error { return f.compare(ctx, server, j.Hashes) })
	if err != nil || len(j.Assertions) == 0 {
		return err
	}
	return f.step("assert", "evaluating the assertions", report, func() (err error) {
		f.Assertions, err = evaluate(ctx, server, j.Assertions)
		return err
	})
}

// compare compares the server's data with the restored data and with the member's hashes.
func (f *found) compare(ctx context.Context, server *scratch.Server, hashes []catalog.HashKV) error {
	revision, keys, err := server.Count(ctx)
	if err != nil {
		return err
	}
	if revision > f.Revision { // a lease expired after the boot, and its keys were deleted
		keys, err = server.CountAt(ctx, f.Revision)
		if err != nil {
			return err
		}
		revision = f.Revision
	}
	if revision != f.Revision || keys != f.Keys {
		return fmt.Errorf("%w: the server has %d keys at revision %d, the database %d at %d",
			catalog.ErrDamaged, keys, revision, f.Keys, f.Revision)
	}
	for _, want := range hashes {
		got, err := server.HashKV(want.Revision)
		if err != nil || got.CompactRevision != want.CompactRevision {
			continue // not comparable; f.HashKV keeps the description of the restore's own comparison
		}
		if got.Hash != want.Hash {
			return fmt.Errorf("%w: the booted server's HashKV at revision %d is %08x, the member's was %08x",
				catalog.ErrDamaged, got.Revision, got.Hash, want.Hash)
		}
		f.HashKV = fmt.Sprintf("key space proven at revision %d, on a booted server", got.Revision)
		return nil
	}
	return nil
}
