package restore_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

func TestSpawnReturnsTheResultOfRun(t *testing.T) {
	t.Parallel()
	s := storeSealed(t, plainDatabase(t))
	p := s.plan(t, plan.Layout{Into: all(t)})
	want, _ := run(t, s, p)
	again, err := p.Place(all(t))
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	got, err := restore.Spawn(t.Context(), again, s.source(),
		func(e storage.Event) { stages = append(stages, e.Stage) })
	if err != nil {
		t.Fatal(err)
	}
	stages = slices.Compact(stages)
	if !slices.Equal(stages,
		[]string{"ask", "fetch", "check", "prove", "build", "rename"}) {
		t.Errorf("stages %q", stages)
	}
	if got.ClusterID != want.ClusterID || got.HashKV != want.HashKV || got.Key != want.Key ||
		got.Revision != want.Revision || len(got.Members) != 3 {
		t.Errorf("result %+v, want as %+v", got, want)
	}
	wantDataDirs(t, got, again.Into.OutputDir)
}

func TestSpawnRefusesABadPlanItself(t *testing.T) {
	_, err := restore.Spawn(t.Context(), plan.Plan{}, child.Source{}, nil)
	if !errors.Is(err, plan.ErrLayout) {
		t.Errorf("error %v", err)
	}
}

func TestSpawnOfABadSource(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Into: one(t, "m1")})
	_, err := restore.Spawn(t.Context(), p, child.Source{Repository: "ftp://x"}, nil)
	if err == nil || !strings.Contains(err.Error(), "file:///path") {
		t.Errorf("error %v", err)
	}
}

// A child that dies while it reads the database is a finding; a killed child shows nothing about the backup.
func TestSpawnOutlivesItsChild(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	for _, test := range []struct {
		accident string
		damaged  bool
		words    string
	}{
		{"panic check", true, "at stage check: a page is not what it was"},
		{"panic prove", true, "at stage prove: a page is not what it was"},
		{"panic build", true, "at stage build: a page is not what it was"},
		{"panic fetch", false, "at stage fetch: a page is not what it was"},
		{"kill prove", false, "killed at stage prove"},
		{"kill build", false, "killed at stage build"},
	} {
		t.Run(test.accident, func(t *testing.T) {
			t.Setenv(accident, test.accident)
			p := s.plan(t, plan.Layout{Into: all(t)})
			_, err := restore.Spawn(t.Context(), p, s.source(), nil)
			if err == nil || errors.Is(err, catalog.ErrDamaged) != test.damaged ||
				!strings.Contains(err.Error(), test.words) {
				t.Errorf("error %v, want damaged: %v, with %q", err, test.damaged, test.words)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			wantNothing(t, p.Into)
		})
	}
}

// stages are the stages of a restore, in order. A run that is stopped at any of them leaves nothing.
var stages = []string{"ask", "fetch", "check", "prove", "build", "rename"}

func TestCancelAtEveryStage(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			stop := errors.New("enough")
			p := s.plan(t, plan.Layout{Into: all(t)})
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := restore.Run(ctx, p, child.Opened{Cluster: s.cluster, Keys: s.keys}, func(e storage.Event) {
				if e.Stage == stage {
					cancel(stop)
				}
			})
			if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			wantNothing(t, p.Into)
			run(t, s, p) // and it can be done again
		})
	}
}

func TestCancelOfAChildAtEveryStage(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			stop := errors.New("enough")
			p := s.plan(t, plan.Layout{Into: all(t)})
			ctx, cancel := context.WithCancelCause(t.Context())
			r, err := restore.Spawn(ctx, p, s.source(), func(e storage.Event) {
				if e.Stage == stage {
					cancel(stop)
				}
			})
			if err == nil { // the child was faster: then the restore must be complete
				wantDataDirs(t, r, p.Into.OutputDir)
				wantNoWork(t, filepath.Dir(p.Into.OutputDir))
				return
			}
			if !errors.Is(err, stop) {
				t.Errorf("error %v", err)
			}
			wantNothing(t, p.Into)
		})
	}
}

// held runs a restore in a process that stops at the stage "prove", and returns a function that kills it.
func held(t *testing.T, s fixture, p plan.Plan) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], child.Argument, restore.ChildVerb)
	cmd.Env = append(os.Environ(), accident+"=hold prove")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	job, err := json.Marshal(map[string]any{"plan": p, "source": s.source()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stdin.Write(append(job, '\n'))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if bytes.Contains(line, []byte(`"prove"`)) {
			return kill
		}
		if err != nil {
			t.Fatalf("the child did not get there: %s, %v", line, err)
		}
	}
}

func TestWorkDirOfALiveRunIsRefusedAndOfAKilledOneRemoved(t *testing.T) {
	t.Parallel()
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Into: all(t)})
	other := s.plan(t, plan.Layout{Token: "another", Into: p.Into})
	kill := held(t, s, p)
	parent := filepath.Dir(p.Into.OutputDir)
	work := workDirs(t, parent)
	if len(work) != 1 {
		t.Fatalf("work dirs %q", work)
	}
	for _, q := range []plan.Plan{p, other} {
		_, err := restore.Run(t.Context(), q, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(),
			"another restore into "+p.Into.OutputDir) {
			t.Errorf("beside a live run: error %v", err)
		}
		got := workDirs(t, parent)
		if !slices.Equal(got, work) || len(treeOf(t, work[0])) == 0 {
			t.Fatalf("the live run's work dir is gone: %q", got)
		}
		if testing.Short() {
			break // each waits for the lock for five seconds
		}
	}
	kill()
	got := workDirs(t, parent)
	if len(got) != 1 {
		t.Fatalf("after the kill there are %q", got)
	}
	_, err := os.Lstat(p.Into.OutputDir)
	if !os.IsNotExist(err) {
		t.Errorf("a killed run left a target: %v", err)
	}
	_, events := run(t, s, other)
	if !strings.Contains(messages(events), "removed the work dir of a killed restore") {
		t.Errorf("said %q", messages(events))
	}
	wantNoWork(t, parent)
}

// /data/etcd and /data/etcd-events are two targets: a restore of one ignores the work dirs of the other, and directories whose
// names only begin like a work dir's.
func TestWorkDirsOfOtherTargetsStay(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	parent := t.TempDir()
	strangers := []string{".dr-restore-etcd-events-0123456789abcdef", ".dr-restore-etcd-", ".dr-restore-etcd-mine",
		".dr-restore-0123456789abcdef"}
	for _, name := range strangers {
		err := os.MkdirAll(filepath.Join(parent, name, "tree"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(parent, ".dr-restore-etcd-0123456789abcdef")
	err := os.Mkdir(stale, 0o700)
	if err != nil { // its owner was killed before it had a lock
		t.Fatal(err)
	}
	run(t, s, s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: filepath.Join(parent, "etcd")}}))
	got := workDirs(t, parent)
	if len(got) != len(strangers) || slices.Contains(got, stale) {
		t.Errorf("left are %q, want %q", got, strangers)
	}
}

func TestRunIntoANameWithPatternSigns(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	parent := t.TempDir()
	target := filepath.Join(parent, "etcd[1*")
	err := os.Mkdir(filepath.Join(parent, ".dr-restore-etcd[1*-0123456789abcdef"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: target}}))
	wantNoWork(t, parent)
}

func TestServeRefusesAJobThatIsNone(t *testing.T) {
	_, err := restore.Serve(t.Context(), []byte("{"), nil)
	if err == nil || !strings.Contains(err.Error(), "job") || errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
}
