package imported

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ChildVerb is the verb of the child process that runs Serve.
const ChildVerb = "import"

// databaseName is the name of the database in the child's directory.
const databaseName = "snapshot.db"

// job is the child's task: make a database from a file, or from the disks that a plan names, and describe it.
type job struct {
	Dir           string     `json:"dir"` // used by this job alone
	File          string     `json:"file,omitempty"`
	SkipHashCheck bool       `json:"skipHashCheck,omitempty"`
	Disks         *plan.Plan `json:"disks,omitempty"`
}

// found is the child's result.
type found struct {
	restore.Description
	Unhashed bool  `json:"unhashed"`          // the file had no digest
	Certain  int64 `json:"certain,omitempty"` // of disks: the revision up to which everything is known to be committed
}

// Serve runs a job of FromFile or FromDisks. The main function of the child calls it.
func Serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var j job
	err := json.Unmarshal(input, &j)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	f, err := j.run(ctx, report)
	if errors.Is(context.Cause(ctx), child.ErrOrphaned) {
		_ = child.RemoveDir(j.Dir) // the parent died, and cannot remove it
	}
	return f, err
}

func (j job) run(ctx context.Context, report storage.Report) (f found, err error) {
	db := filepath.Join(j.Dir, "db")
	if j.Disks != nil {
		f.Certain, err = j.salvage(ctx, report)
	} else {
		f.Unhashed, err = j.copyFile(ctx, report)
	}
	if err != nil {
		return found{}, err
	}
	report.Say(storage.Event{Stage: "prove", Message: "reading what the database shows of its cluster"})
	f.Description, err = restore.Describe(ctx, db)
	if err != nil {
		return found{}, fmt.Errorf("the database is %w, at stage prove: %w", catalog.ErrDamaged, err)
	}
	if j.Disks == nil {
		return f, os.Remove(db)
	}
	err = os.Rename(db, filepath.Join(j.Dir, databaseName))
	if err == nil {
		err = appendDigest(filepath.Join(j.Dir, databaseName))
	}
	return f, err
}

// copyFile copies the file, and checks the copy like a restore does. It leaves a second copy under the name db, which checks may
// change.
// It reports whether the file had no digest; the copy has one.
func (j job) copyFile(ctx context.Context, report storage.Report) (unhashed bool, err error) {
	path := filepath.Join(j.Dir, databaseName)
	report.Say(storage.Event{Stage: "fetch", Message: "copying the file", Object: j.File})
	unhashed, err = copyPlain(path, j.File, j.SkipHashCheck)
	if err != nil {
		return unhashed, err
	}
	p, err := plan.New(catalog.Catalog{}, plan.Target{File: path, SkipHashCheck: true}, layout(), time.Now())
	if err != nil {
		return unhashed, err
	}
	_, err = restore.Preparation{Plan: p, Dir: j.Dir, Report: report}.Prepare(ctx)
	if err == nil && unhashed {
		err = appendDigest(path)
	}
	return unhashed, err
}

// named returns err with the name of the file, which the child's copy does not have.
func (j job) named(err error) error {
	if j.File == "" || strings.Contains(err.Error(), j.File) {
		return err
	}
	return fmt.Errorf("%s: %w", j.File, err)
}

// layout returns the layout that a plan needs. The result does not depend on it.
func layout() plan.Layout {
	return plan.Layout{
		Members: []plan.Member{{Name: "import", PeerURLs: []string{"http://localhost:2380"}}},
		Token:   "import", Bump: "0", AllowCorrupt: true, OldIsDead: true,
	}
}
