// Package verify proves backups up to a level: stored, hashed, opened or booted (Run). A drill does more (Drill): it restores a
// point in backups and log, measures the duration, boots the data, checks assertions, and removes the restored data. Run and
// Drill append their result to the backup as a proof.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Request describes a proof.
type Request struct {
	Cluster *repository.Cluster
	Backup  catalog.Backup
	Keys    seal.Keys
	Level   catalog.Level
	Source  child.Source // for the child that opens the database
	Dir     string       // parent of the scratch directory; "": the system's temporary directory
	By      string       // host and version of dr, for the proof
}

// Run proves a backup up to the level of r, and appends the proof. It returns the proof even with an error. The error describes
// why the backup is bad, could not be proven, or why the proof could not be stored. In a repository that is opened as of a past
// time no proof is stored, and that is no error.
func Run(ctx context.Context, r Request, report storage.Report) (catalog.Proof, error) {
	begin := time.Now()
	proof := catalog.Proof{Format: catalog.Proofs.Format, Backup: r.Backup.ID, Level: r.Level, Time: begin.UTC(), By: r.By}
	found, err := r.verify(ctx, report)
	found.fillProof(&proof)
	proof.Seconds = time.Since(begin).Seconds()
	proof.Verdict, proof.Finding = judge(r.Level, found, err)
	if ctx.Err() != nil {
		return proof, context.Cause(ctx) // an interrupted run has no verdict
	}
	return proof, errors.Join(err, keep(ctx, r.Cluster, proof, report))
}

// keep appends p. A repository that is opened as of a past time is read-only: for it keep reports a warning in place of an error.
func keep(ctx context.Context, c *repository.Cluster, p catalog.Proof, report storage.Report) error {
	err := c.Append(ctx, p)
	if errors.Is(err, storage.ErrUnsupported) {
		report.Say(storage.Event{Stage: "verify", Level: storage.Warning, Message: fmt.Sprintf("the proof is not stored: %v", err)})
		return nil
	}
	return err
}

// judge returns the verdict and its reason. Only damage and failed assertions are findings: a wrong key, a missing disk or an
// unreachable network shows nothing about the backup.
func judge(level catalog.Level, f found, err error) (catalog.Verdict, string) {
	switch {
	case err == nil && level == catalog.Hashed && f.sealedOnly:
		return catalog.Passed, "the sealed bytes are intact; whether they open is unknown without a key"
	case err == nil:
		return catalog.Passed, "no fault found"
	case errors.Is(err, catalog.ErrDamaged), errors.Is(err, ErrAssertion):
		return catalog.Failed, err.Error()
	}
	return catalog.NotRun, err.Error()
}

// verify does the checks of the level.
func (r Request) verify(ctx context.Context, report storage.Report) (found, error) {
	switch r.Level {
	case catalog.Stored:
		return found{}, nil // loading the catalog has compared the manifest with the listing
	case catalog.Hashed:
		return r.hashed(ctx, report)
	}
	plan, err := scratchPlan(r.Backup)
	if err != nil {
		return found{}, err
	}
	f, err := inChild(ctx, job{Plan: plan, Level: r.Level, Source: r.Source, Hashes: memberHash(r.Backup)}, r.Dir, report)
	return f, child.Died(err)
}

// scratchPlan returns a plan that restores only b for a temporary member.
func scratchPlan(b catalog.Backup) (plan.Plan, error) {
	catalog := catalog.Catalog{Cluster: b.Cluster, Backups: []catalog.Backup{b}}
	return plan.New(catalog, plan.Target{Backup: b.ID}, scratchLayout(), time.Now())
}

// memberHash returns the member's hash in the manifest of b, if it has one.
func memberHash(b catalog.Backup) []catalog.HashKV {
	if b.HashKV == nil {
		return nil
	}
	return []catalog.HashKV{*b.HashKV}
}

// hashed reads the backup to its end, which compares the digests. Without a key it reads only the sealed bytes.
func (r Request) hashed(ctx context.Context, report storage.Report) (found, error) {
	b := r.Backup
	if b.Seal.Encryption != "" && r.Keys.None() {
		sealed, err := r.Cluster.FetchSealed(ctx, b)
		if err != nil {
			return found{}, err
		}
		defer sealed.Close()
		_, err = io.Copy(io.Discard, report.Follow(sealed, fetching(b, b.Stored.Size)))
		return found{sealedOnly: true}, err
	}
	snapshot, err := r.Cluster.Fetch(ctx, b, r.Keys)
	if err != nil {
		return found{}, err
	}
	defer snapshot.Close()
	_, err = io.Copy(io.Discard, report.Follow(snapshot, fetching(b, b.Plain.Size)))
	return found{Key: snapshot.Key}, err
}

func fetching(b catalog.Backup, size int64) storage.Event {
	return storage.Event{Stage: "fetch", Message: "fetching the backup", Object: string(b.ID), Total: size}
}
