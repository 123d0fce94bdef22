package member_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/member"
)

const childEnv = "ETCD_DR_MEMBER_TEST_CHILD"

// job is the task of the child that TestKilledTasks kills.
type job struct {
	Tasks     []handoff.Task
	Data, WAL string
}

// TestMain is also the main function of that child.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text != "" {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.repeat()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// repeat carries out the tasks of whole restores, one after the other, until it is killed. It prints the number of each before it begins.
func (j job) repeat() error {
	d := disk{data: j.Data, wal: j.WAL, id: id}
	for {
		for i, task := range j.Tasks {
			fmt.Println(i)
			r := member.Do(context.Background(), d.work(task))
			if !r.Done {
				return fmt.Errorf("%s: %s", task, r.Encode())
			}
		}
	}
}

// TestKilledTasks kills a process in the middle of a task. The task is done again then, and the restore continues as if nothing had
// happened, to its end.
func TestKilledTasks(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	killed := map[handoff.Task]int{}
	kills := 12
	if testing.Short() {
		kills = 2
	}
	for _, f := range append(allForms(), guardedForms()...) {
		d := newDisk(t, f)
		for range kills {
			cycle := f.cycle()
			at := d.killChild(t, f, random)
			killed[cycle[at].task]++
			before, after := cycle[(at+len(cycle)-1)%len(cycle)].boots, cycle[at].boots
			got := d.boots()
			if got != before && got != after && got != blocked {
				t.Fatalf("seed %d, %+v, killed in %s: etcd starts on %q", seed, f, cycle[at].task, got)
			}
			for _, s := range cycle[at:] {
				d.do(t, s.task)
				got := d.boots()
				if got != s.boots {
					t.Fatalf("seed %d, %+v, killed in %s: after %s etcd starts on %q", seed, f, cycle[at].task, s.task, got)
				}
			}
			if len(d.left()) > 0 {
				t.Fatalf("seed %d, %+v, killed in %s: left: %q", seed, f, cycle[at].task, d.left())
			}
		}
	}
	t.Log(killed)
}

// killChild starts a process that repeats the restore, kills it in the middle of a task, and returns the task's number.
func (d disk) killChild(t *testing.T, f form, random *rand.Rand) (at int) {
	t.Helper()
	j := job{Data: d.data, WAL: d.wal}
	for _, s := range f.cycle() {
		j.Tasks = append(j.Tasks, s.task)
	}
	text, err := json.Marshal(j)
	must(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+string(text))
	var words strings.Builder
	child.Stderr = &words
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for range 1 + random.IntN(3*len(f.cycle())) {
		lines.Scan()
	}
	time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond) // not for an event, but to die somewhere else each time
	_ = child.Process.Signal(syscall.SIGKILL)
	last := lines.Text()
	for lines.Scan() {
		last = lines.Text()
	}
	_ = child.Wait()
	_, err = fmt.Sscan(last, &at)
	if err != nil || words.Len() > 0 || at >= len(f.cycle()) {
		t.Fatalf("%q, %v: %s", last, err, &words)
	}
	return at
}
