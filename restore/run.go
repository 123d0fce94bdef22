// Package restore turns a backup into data dirs that boot: package plan decides, and Run does it.
//
//	plan ──► ask the old cluster ──► fetch, unseal ──► check ──► prove ──► replay ──► build ──► rename into place
//
// A database from a bucket is untrusted: bbolt and etcd's packages end the process on a damaged page, in goroutines that no
// recover reaches. So a process that must live on calls Spawn, which calls Run in a child process.
package restore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/keyspace"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Result describes a restore.
type Result struct {
	PlanID    string     `json:"planID"`
	Backup    string     `json:"backup,omitempty"` // its id
	File      string     `json:"file,omitempty"`
	Token     string     `json:"token"`
	ClusterID string     `json:"clusterID"` // of the restored cluster, in hex
	Members   []Restored `json:"members"`

	Replayed *Replayed `json:"replayed,omitempty"` // from the log
	Salvaged *Salvaged `json:"salvaged,omitempty"` // from disks
	Revision int64     `json:"revision"`           // of the restored key space, before any bump
	BumpedTo int64     `json:"bumpedTo,omitempty"` // the revision after the bump
	Keys     int64     `json:"keys"`
	HashKV   string    `json:"hashKV"`        // describes whether the key space was compared with the member's hash
	Key      string    `json:"key,omitempty"` // fingerprint of the key that opened the backup
	Cleared  []string  `json:"clearedAlarms,omitempty"`
	Phases   []Phase   `json:"phases"`
}

// Restored is one member's data dir.
type Restored struct {
	Name    string   `json:"name"`
	DataDir string   `json:"dataDir"`
	Command []string `json:"command"` // starts it, without TLS flags
}

// Phase is a stage and its duration.
type Phase struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// Run executes p in this process. Nothing appears under p.Into before every check has passed; a failure, even a power failure,
// leaves nothing there that boots. A damaged backup may end the process, but not that of a caller of Spawn. A plan that restores a
// file does not use from.Cluster.
func Run(ctx context.Context, p plan.Plan, from child.Opened, report storage.Report) (Result, error) {
	err := p.Validate()
	if err != nil {
		return Result{}, err
	}
	if p.Into.Target() == "." {
		return Result{}, fmt.Errorf("%w: the plan names no target directory: pass --output-dir, or --name and --data-dir", plan.ErrLayout)
	}
	r := &run{plan: p, cluster: from.Cluster, keys: from.Keys, report: report}
	r.result = Result{PlanID: p.ID, File: p.File, Token: p.Token}
	if p.Backup != nil {
		r.result.Backup = string(p.Backup.ID)
	}
	err = r.all(ctx)
	return r.result, asObstacle(p, err)
}

// run is one execution of a plan, or of the stages of a Preparation.
type run struct {
	plan    plan.Plan
	cluster *repository.Cluster
	keys    seal.Keys
	report  storage.Report

	work     *work
	wal      *work  // nil: the log goes into the data dir
	db       string // path of the database while it is built
	facts    facts
	keySpace keyspace.Summary // that check has read; only if unread is nil
	unread   error            // why it could not be read
	disk     diskRecords
	result   Result

	guessedLeases int // leases in the segments replayed so far whose time to live the agent guessed
}

func (r *run) all(ctx context.Context) (err error) {
	err = r.phase(ctx, "ask", r.ask)
	if err != nil {
		return err
	}
	r.work, err = openWork(r.plan.Into.Target(), r.plan.ID, r.report)
	if err != nil {
		return err
	}
	defer r.work.remove()
	r.db = filepath.Join(r.work.dir, "db")
	err = r.work.enough(r.space())
	if err != nil {
		return err
	}
	if r.plan.Into.WALDir != "" {
		err := r.openWAL()
		if err != nil {
			return err
		}
		defer r.wal.remove()
	}
	return r.through(ctx, []stage{
		{"fetch", r.fetch}, {"check", r.check}, {"prove", r.prove}, {"replay", r.replay}, {"build", r.build}, {"rename", r.rename},
	})
}

// openWAL opens the work dir for --wal-dir.
func (r *run) openWAL() (err error) {
	r.wal, err = openWork(r.plan.Into.WALDir, r.plan.ID, r.report)
	if err != nil {
		return err
	}
	err = r.wal.enough(walSpace)
	if err != nil {
		r.wal.remove()
	}
	return err
}

// stage is a part of a run. It is timed, guarded against panics, and reported.
type stage struct {
	name string
	do   func(context.Context) error
}

// through runs the stages in order. It skips the replay if the plan has nothing to replay.
func (r *run) through(ctx context.Context, stages []stage) error {
	for _, s := range stages {
		if s.name == "replay" && !r.plan.Replays() {
			continue
		}
		err := r.phase(ctx, s.name, s.do)
		if err != nil {
			return err
		}
	}
	return nil
}

// doing describes the stages in progress reports.
var doing = map[string]string{
	"ask":    "asking whether the old members still answer",
	"fetch":  "fetching the snapshot",
	"check":  "checking every page of the database, and reading the key space",
	"prove":  "comparing the hash of the key space",
	"replay": "replaying the log",
	"build":  "building the data dirs",
	"rename": "moving the data dirs into place",
}

// phase runs one stage, timed and guarded.
func (r *run) phase(ctx context.Context, stage string, do func(context.Context) error) error {
	r.say(stage, storage.Progress, "%s", doing[stage])
	if ctx.Err() != nil { // checked after the report, so that a caller can stop the run before a stage
		return context.Cause(ctx)
	}
	begin := time.Now()
	err := guard(stage, func() error { return do(ctx) })
	r.result.Phases = append(r.result.Phases, Phase{stage, time.Since(begin).Seconds()})
	return err
}

func (r *run) say(stage string, level storage.Level, format string, args ...any) {
	r.report.Say(storage.Event{Stage: stage, Level: level, Message: fmt.Sprintf(format, args...)})
}

// walSpace is the most that a member's log needs, in bytes: its WAL file, and the next one, which etcd preallocates meanwhile.
const walSpace = 2 * 64 << 20

// space returns the most that the run needs on disk, in bytes: for each member a database and a log.
func (r *run) space() int64 {
	const slack = 1 << 20
	var size int64
	switch {
	case r.plan.Backup != nil:
		size = r.plan.Backup.Plain.Size
	case r.plan.File == "":
		size = r.plan.Salvage.Database.Size
	default:
		info, err := os.Stat(r.plan.File)
		if err == nil {
			size = info.Size()
		}
	}
	return int64(len(r.plan.DataDirs()))*(size+walSpace) + slack
}

// rename publishes the --wal-dir first, then the data dirs: etcd does not start on a log without its data dir, but may start as a new
// member on a data dir without its log.
func (r *run) rename(context.Context) error {
	if r.wal != nil {
		err := r.work.refuseOccupied()
		if err != nil {
			return err
		}
		err = r.wal.publish()
		if err != nil {
			return err
		}
	}
	err := r.work.publish()
	if err != nil {
		return err
	}
	for _, m := range r.plan.DataDirs() {
		dir := filepath.Join(r.plan.Into.Target(), m.Folder)
		r.result.Members = append(r.result.Members, Restored{Name: m.Name, DataDir: dir, Command: r.plan.Command(m.Member, dir)})
	}
	r.result.Salvaged = r.salvaged()
	return nil
}
