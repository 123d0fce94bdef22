package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// drill runs dr drill, which has to end with the exit code and leave no scratch copy.
func (j job) drill(t *testing.T, code int, args ...string) document.Drill {
	t.Helper()
	scratch := t.TempDir()
	out := command.Run(t, j.env, append([]string{"drill", "-o", "json", "--scratch-dir", scratch}, args...)...)
	out.Ended(t, code)
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("dr drill %q left %v, %v", args, left, err)
	}
	var drill document.Drill
	out.Decode(t, &drill)
	return drill
}

// drilled creates a log with a backup before it, and another one at its end.
func drilled(t *testing.T, j job, version string) {
	t.Helper()
	source := servers.Start(t, servers.Options{Version: version})
	client := source.Client(t)
	a := j.archiving(t, source, 0, "--hash-every", "1s")
	j.firstWindow(t, client, a)
	for i := range 3 {
		putKeys(t, client, fmt.Sprintf("key/%d/", i), 50)
		agent.CatchUp(t, a)
	}
	j.backUp(t, source)
	putKeys(t, client, "last/", 50)
	agent.CatchUp(t, a)
	a.Stop(t)
	source.StopAll(t)
}

// TestDrillEveryVersion restores, boots and compares the newest backup and any point of the log, from members of the
// oldest and the newest version. A missing or unreadable expected value never passes.
func TestDrillEveryVersion(t *testing.T) {
	withServers(t)
	for _, version := range []string{servers.Versions[0], servers.Versions[len(servers.Versions)-1]} {
		t.Run(version, func(t *testing.T) {
			j := newJob(t)
			drilled(t, j, version)
			j.drillsPass(t)
			j.drillsAssert(t)
			j.drillsNeedAKey(t)
			j.drillsShow(t)
		})
	}
}

func (j job) drillsPass(t *testing.T) {
	t.Helper()
	d := j.drill(t, 0, "--seed", "7", "--nice", "5", "--memory-limit", "1GiB")
	if d.Verdict != catalog.Passed || d.Seed != 7 || len(d.Proofs) != 2 {
		t.Fatalf("the drill %+v", d)
	}
	alone, random := d.Proofs[0], d.Proofs[1]
	if alone.Drill.RTO <= 0 || alone.Drill.Requests != 0 || alone.Drill.Target != "the newest backup" ||
		!strings.HasSuffix(alone.HashKV, "on a booted server") {
		t.Errorf("of the backup: %+v, %+v", alone, alone.Drill)
	}
	if random.Drill.RTO <= 0 || random.Drill.Lineage == "" || random.Drill.Seed != 7 || random.Revision == 0 {
		t.Errorf("of the random point: %+v, %+v", random, random.Drill)
	}
	stages := stagesOf(alone)
	if stages != "ask fetch check prove build rename boot compare" {
		t.Errorf("the steps are %s", stages)
	}
	again := j.drill(t, 0, "--seed", "7").Proofs[1]
	if again.Drill.Position != random.Drill.Position || again.Revision != random.Revision || again.Backup != random.Backup {
		t.Errorf("the same seed: %+v, %+v, first %+v, %+v", again, again.Drill, random, random.Drill)
	}
}

func stagesOf(p catalog.Proof) string {
	var stages []string
	for _, s := range p.Drill.Steps {
		stages = append(stages, s.Stage)
	}
	return strings.Join(stages, " ")
}

func (j job) drillsAssert(t *testing.T) {
	t.Helper()
	d := j.drill(t, 0, "--to", "latest", "--assert", "key=key/0/0", "--assert", "prefix=key/:150", "--assert", "prefix=last/:50")
	last := d.Proofs[0]
	if len(d.Proofs) != 1 || last.Drill.Requests < 50 || len(last.Drill.Assertions) != 3 ||
		last.Drill.Assertions[1].Found != 150 || !strings.Contains(stagesOf(last), "prove replay build") {
		t.Errorf("the end of the log: %+v, %+v", last, last.Drill)
	}
	d = j.drill(t, 3, "latest", "--assert", "key=key/0/0", "--assert", "prefix=last/:1")
	p := d.Proofs[0]
	if d.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameAssertion || p.Finding != "an assertion does not hold: prefix=last/:1, found 0" ||
		!p.Drill.Assertions[0].Held || p.Drill.Assertions[1].Held || p.Drill.RTO <= 0 {
		t.Errorf("of what is not there yet: %+v, %+v", p, p.Drill)
	}
}

// drillsNeedAKey checks that a missing key is no finding about the backup.
func (j job) drillsNeedAKey(t *testing.T) {
	t.Helper()
	j.env = slices.DeleteFunc(slices.Clone(j.env), func(v string) bool { return strings.HasPrefix(v, "DR_IDENTITY=") })
	d := j.drill(t, 1)
	if d.Verdict != catalog.NotRun || len(d.Proofs) != 2 || d.Proofs[0].Verdict != catalog.NotRun || d.Proofs[1].Drill.RTO != 0 {
		t.Errorf("without a key: %+v", d)
	}
}

// TestDrillKilledLeavesNothing checks that a killed drill leaves neither a part of the copy, which contains every
// secret of the cluster, nor a proof.
func TestDrillKilledLeavesNothing(t *testing.T) {
	withServers(t)
	j := newJob(t)
	drilled(t, j, servers.Versions[len(servers.Versions)-1])
	for _, stage := range []string{"fetch", "replay", "boot"} {
		scratch := t.TempDir()
		p := command.Start(t, j.env, "drill", "--to", "latest", "-o", "json", "--scratch-dir", scratch)
		if !p.Until(1, stage) {
			t.Fatalf("dr ended before %s\n%s", stage, p.Wait(t))
		}
		p.Signal(t, syscall.SIGKILL)
		p.Wait(t)
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			left, err := os.ReadDir(scratch)
			if err == nil && len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("killed at %s it left %v, %v", stage, left, err)
			}
		}
	}
	list, _ := j.list(t)
	for _, b := range list.Backups {
		if len(b.Proofs) > 0 {
			t.Errorf("proofs %+v", b.Proofs)
		}
	}
}

// drillsShow checks that the list shows the drills with the backup, and that no assertion or missing key counts against
// it.
func (j job) drillsShow(t *testing.T) {
	t.Helper()
	list, _ := j.list(t)
	b := list.Backups[0]
	if b.Proven != catalog.Booted || len(b.Proofs) < 4 {
		t.Errorf("listed is %s, %+v", b.Proven, b.Proofs)
	}
	out := command.Must(t, j.env, "list")
	if !strings.Contains(out, "booted, ") || !strings.Contains(out, "; drill not run, ") {
		t.Errorf("dr list:\n%s", out)
	}
	out = command.Must(t, j.env, "show")
	if !strings.Contains(out, "drill: the newest backup, served after ") {
		t.Errorf("dr show:\n%s", out)
	}
}

// TestDrillFindsADamagedSegment checks that a drill reports a damaged segment, which a restore would avoid. The backup
// before it stays good.
func TestDrillFindsADamagedSegment(t *testing.T) {
	withServers(t)
	j := newJob(t)
	drilled(t, j, servers.Versions[len(servers.Versions)-1])
	all := segments(t, j)
	j.change(t, all[len(all)-1].file, flip)
	d := j.drill(t, 3, "--to", "latest")
	if len(d.Proofs) != 1 {
		t.Fatalf("the drill %+v", d)
	}
	p := d.Proofs[0]
	if d.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameLog || !strings.Contains(p.Finding, "damaged") || p.Drill.RTO != 0 {
		t.Errorf("proof %+v, %+v", p, p.Drill)
	}
	list, _ := j.list(t)
	b := list.Backups[0]
	if b.Proven != catalog.Stored {
		t.Errorf("the backup itself is %q", b.Proven)
	}
	d = j.drill(t, 0, "latest")
	if d.Verdict != catalog.Passed {
		t.Errorf("the backup alone: %+v", d)
	}
}

// TestDrillFindsALostSegment removes a segment without a later backup. Points before it can be restored as before, so
// only the catalog shows the loss.
func TestDrillFindsALostSegment(t *testing.T) {
	withServers(t)
	j := newJob(t)
	drilled(t, j, servers.Versions[len(servers.Versions)-1])
	all := segments(t, j)
	newest, err := os.ReadDir(filepath.Join(j.repo, "prod", "backups"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range newest[1:] {
		err := os.RemoveAll(filepath.Join(j.repo, "prod", "backups", b.Name()))
		if err != nil {
			t.Fatal(err)
		}
	}
	lost := all[len(all)-2].file
	err = os.Remove(filepath.Join(j.repo, lost))
	if err != nil {
		t.Fatal(err)
	}
	d := j.drill(t, 3)
	if d.Verdict != catalog.Failed || d.Proofs[0].Verdict != catalog.Passed {
		t.Errorf("the drill %+v", d)
	}
	j.drill(t, 3, "--to", "latest")
	out := command.Run(t, j.env, "drill")
	if !strings.Contains(out.Stderr, filepath.Base(lost)) {
		t.Errorf("the drill does not name %s:\n%s", lost, out.Stderr)
	}
	d = j.drill(t, 0, "latest")
	if d.Verdict != catalog.Passed {
		t.Errorf("the backup alone: %+v", d)
	}
}

// TestDrillFindsADamagedBackup changes a byte of the newest backup.
func TestDrillFindsADamagedBackup(t *testing.T) {
	withServers(t)
	j := newJob(t)
	source := servers.Start(t, servers.Options{})
	putKeys(t, source.Client(t), "key/", 50)
	j.backUp(t, source)
	j.change(t, snapshots(t, j)[0], flip)
	d := j.drill(t, 3)
	if d.Verdict != catalog.Failed || d.Proofs[0].Drill.Blames != catalog.BlameBackup || d.Proofs[0].Drill.RTO != 0 {
		t.Errorf("the drill %+v", d)
	}
}
