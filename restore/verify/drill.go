package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// DrillRequest describes a drill.
type DrillRequest struct {
	Aim
	Assertions []assertion.Assertion
	Source     child.Source // for the child; without the key of a sealed backup the drill cannot run
	Dir        string       // parent of the scratch directories; "": the system's temporary directory
	By         string       // host and version of dr, for the proofs
	Limits     child.Limits // of the child
	Now        time.Time    // of the request, for the plans' notes
}

// Drill restores the points of r one after the other, each into a temporary server, and appends a proof to the backup of each
// restore. It returns the proofs even with an error, which describes damage or points that could not be drilled. Drill avoids
// no damage: an obstacle that a restore would avoid is a finding.
func Drill(
	ctx context.Context, c *repository.Cluster, r DrillRequest, report storage.Report,
) (proofs []catalog.Proof, all error) {
	catalog, err := c.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Log: true})
	if err != nil {
		return nil, err
	}
	exercises, all := r.plan(ctx, catalog, c.Log().Unfold, r.Now)
	for _, e := range exercises {
		proof, err := e.run(ctx, c, r, report)
		proofs, all = append(proofs, proof), errors.Join(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return proofs, all
}

// run restores one point into a temporary server, and appends the proof.
func (e exercise) run(
	ctx context.Context, c *repository.Cluster, r DrillRequest, report storage.Report,
) (catalog.Proof, error) {
	begin := time.Now()
	report.Say(storage.Event{Stage: "drill", Object: string(e.plan.Backup.ID), Message: "restoring " + e.drill.Target})
	j := job{Plan: e.plan, Level: catalog.Booted, Source: r.Source, Hashes: e.hashes, Assertions: r.Assertions, Limits: r.Limits}
	found, err := inChild(ctx, j, r.Dir, report)
	blames := blame(e.plan, found, err)
	err = errors.Join(child.Died(err), found.Met.Err(), unmet(found.Assertions)) // no more than one of these is not nil
	marked := e.plan.Backup.CheckCluster()
	if err == nil && marked != nil {
		blames, err = catalog.BlameBackup, fmt.Errorf("%w: %w", catalog.ErrDamaged, marked)
	}
	proof := catalog.Proof{
		Format: catalog.Proofs.Format, Backup: e.plan.Backup.ID, Level: catalog.Booted, Time: begin.UTC(), By: r.By,
		Seconds: time.Since(begin).Seconds(), Drill: &e.drill,
	}
	found.fillProof(&proof)
	found.fillDrill(proof.Drill)
	proof.Verdict, proof.Finding = judge(catalog.Booted, found, err)
	if proof.Verdict == catalog.Failed {
		proof.Drill.Blames = blames
	}
	if ctx.Err() != nil {
		return proof, context.Cause(ctx) // an interrupted run has no verdict
	}
	if err != nil {
		err = fmt.Errorf("drill %s: %w", e.drill.Target, err)
	}
	return proof, errors.Join(err, keep(ctx, c, proof, report))
}

// fillDrill sets the fields of d that the child determines.
func (f found) fillDrill(d *catalog.Drill) {
	d.RTO, d.Steps, d.Assertions = f.RTO, f.Steps, f.Assertions
	if f.Replayed != nil {
		d.Position, d.Requests, d.Replay = f.Replayed.Position, f.Replayed.Requests, f.Replayed.Proven
	}
}

// blame returns the part that a finding is about: an assertion, the backup or the log. The caller ignores it if there is no
// finding. The backup is to blame if no log is restored, if the obstacle is the base, or if the child died before the replay.
func blame(p plan.Plan, f found, err error) catalog.Blame {
	dead, died := errors.AsType[*child.DiedError](err)
	switch {
	case err == nil && f.Met == nil:
		return catalog.BlameAssertion
	case p.Log == nil, f.Met != nil && f.Met.Obstacle.Base, died && (dead.Stage == "check" || dead.Stage == "prove"):
		return catalog.BlameBackup
	}
	return catalog.BlameLog
}
