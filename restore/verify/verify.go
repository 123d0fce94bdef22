// Package verify proves backups, rung by rung: stored, hashed, opened, booted. What it finds is a proof, which is
// appended to the backup.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Request says what to prove and with what.
type Request struct {
	Level  repository.Level
	Source restore.Source // for the child that opens the database
	Dir    string         // where the scratch copy goes; "": the system's temporary directory
	By     string         // host and version of dr, for the proof
}

// Run proves backup b of c as far as r asks, and appends what it found. The error says why the backup is bad or could
// not be proven; the proof is valid in any case. A proof that could not be stored is an error too, unless the repository is
// one as of a time that has passed.
func Run(
	ctx context.Context, c *repository.Cluster, b repository.Backup, keys seal.Keys, r Request, report storage.Report,
) (repository.Proof, error) {
	begin := time.Now()
	proof := repository.Proof{Format: repository.ProofFormat, Backup: b.ID, Level: r.Level, Time: begin.UTC(), By: r.By}
	found, err := climb(ctx, c, b, keys, r, report)
	proof.Key, proof.HashKV, proof.Revision, proof.Keys = found.Key, found.HashKV, found.Revision, found.Keys
	proof.Seconds = time.Since(begin).Seconds()
	proof.Verdict, proof.Finding = judge(r.Level, found, err)
	if ctx.Err() != nil {
		return proof, context.Cause(ctx) // no verdict of an interrupted run is worth keeping
	}
	kept := c.Append(ctx, proof)
	if errors.Is(kept, storage.ErrUnsupported) { // a view of the past takes nothing in
		report.Say(storage.Event{Stage: "verify", Level: storage.Warning, Message: fmt.Sprintf("the proof is not kept: %v", kept)})
		kept = nil
	}
	return proof, errors.Join(err, kept)
}

// judge tells a bad backup from one that could not be looked at: a wrong key, an absent disk or a network that is down
// says nothing about the backup.
func judge(level repository.Level, f found, err error) (repository.Verdict, string) {
	switch {
	case err == nil && level == repository.Hashed && f.sealedOnly:
		return repository.Passed, "the sealed bytes are whole; without a key nobody knows whether they open"
	case err == nil:
		return repository.Passed, "no fault found"
	case errors.Is(err, repository.ErrDamaged):
		return repository.Failed, err.Error()
	}
	return repository.NotRun, err.Error()
}

// found is what one climb saw.
type found struct {
	Key        string `json:"key,omitempty"`
	HashKV     string `json:"hashKV,omitempty"`
	Revision   int64  `json:"revision,omitempty"`
	Keys       int64  `json:"keys,omitempty"`
	sealedOnly bool
}

func climb(
	ctx context.Context, c *repository.Cluster, b repository.Backup, keys seal.Keys, r Request, report storage.Report,
) (found, error) {
	switch r.Level {
	case repository.Stored:
		return found{}, nil // the catalog has held the manifest against the listing
	case repository.Hashed:
		return hashed(ctx, c, b, keys, report)
	}
	dir, err := os.MkdirTemp(r.Dir, "dr-verify-*")
	if err != nil {
		return found{}, fmt.Errorf("make a scratch directory: %w", err)
	}
	defer os.RemoveAll(dir) // a child that dies cannot
	var f found
	err = child.Run(ctx, ChildVerb, job{b, r.Level, r.Source, dir}, &f, restore.Kinds, report)
	return f, restore.Died(err)
}

func hashed(
	ctx context.Context, c *repository.Cluster, b repository.Backup, keys seal.Keys, report storage.Report,
) (found, error) {
	if b.Seal.Encryption != "" && keys.None() {
		sealed, err := c.FetchSealed(ctx, b)
		if err != nil {
			return found{}, err
		}
		defer sealed.Close()
		_, err = io.Copy(io.Discard, report.Follow(sealed, storage.Event{Stage: "fetch", Object: string(b.ID), Total: b.Stored.Size}))
		return found{sealedOnly: true}, err
	}
	snapshot, err := c.Fetch(ctx, b, keys)
	if err != nil {
		return found{}, err
	}
	defer snapshot.Close()
	_, err = io.Copy(io.Discard, report.Follow(snapshot, storage.Event{Stage: "fetch", Object: string(b.ID), Total: b.Plain.Size}))
	return found{Key: snapshot.Key}, err
}

// ChildVerb is the verb under which a child serves Run: see Serve.
const ChildVerb = "verify"

type job struct {
	Backup repository.Backup `json:"backup"`
	Level  repository.Level  `json:"level"`
	Source restore.Source    `json:"source"`
	Dir    string            `json:"dir"` // of its own
}

// Serve opens and boots: it is Run's other side, for the child's main.
func Serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var j job
	if err := json.Unmarshal(input, &j); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	c, keys, err := j.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(j.Dir) // a parent that dies cannot
	dataDir := filepath.Join(j.Dir, "data")
	restored, err := restoreScratch(ctx, c, j.Backup, keys, dataDir, report)
	if err != nil {
		return nil, err
	}
	f := found{Key: restored.Key, HashKV: restored.HashKV, Revision: restored.Revision, Keys: restored.Keys}
	if j.Level == repository.Booted {
		err = boot(ctx, dataDir, j.Backup, &f, report)
	}
	return f, err
}

// restoreScratch restores for a member that only the scratch server will be.
func restoreScratch(
	ctx context.Context, c *repository.Cluster, b repository.Backup, keys seal.Keys, dataDir string, report storage.Report,
) (restore.Result, error) {
	catalog := repository.Catalog{Cluster: c.Name(), Backups: []repository.Backup{b}}
	plan, err := restore.NewPlan(catalog, restore.Target{Backup: b.ID}, restore.Layout{
		Members: []restore.Member{{Name: scratch.Member, PeerURLs: []string{scratch.PeerURL}}},
		Token:   "scratch", Bump: "0", AllowCorrupt: true, OldIsDead: true,
		Into: restore.Into{Name: scratch.Member, DataDir: dataDir},
	}, time.Now())
	if err != nil {
		return restore.Result{}, err
	}
	return restore.Run(ctx, plan, c, keys, report)
}

func boot(ctx context.Context, dataDir string, b repository.Backup, f *found, report storage.Report) error {
	report.Say(storage.Event{Stage: "boot", Message: "starting an etcd server on the restored data"})
	server, err := scratch.Boot(ctx, dataDir)
	if err != nil && (ctx.Err() != nil || errors.Is(err, scratch.ErrLate)) {
		return err
	}
	if err != nil {
		return restore.Blame("boot", err.Error())
	}
	defer server.Close()
	revision, keys, err := server.Count(ctx)
	if err != nil {
		return err
	}
	if revision != f.Revision || keys != f.Keys {
		return fmt.Errorf("%w: the server has %d keys at revision %d, the database %d at %d",
			repository.ErrDamaged, keys, revision, f.Keys, f.Revision)
	}
	return compareHash(server, b, f)
}

func compareHash(server *scratch.Server, b repository.Backup, f *found) error {
	if b.HashKV == nil {
		return nil
	}
	got, err := server.HashKV(b.HashKV.Revision)
	if err != nil || got.CompactRevision != b.HashKV.CompactRevision {
		return nil // f.HashKV says already why they cannot be compared
	}
	if got.Hash != b.HashKV.Hash {
		return fmt.Errorf("%w: the booted server's HashKV at revision %d is %08x, the member said %08x",
			repository.ErrDamaged, got.Revision, got.Hash, b.HashKV.Hash)
	}
	f.HashKV = fmt.Sprintf("key space proven at revision %d, on a booted server", got.Revision)
	return nil
}
