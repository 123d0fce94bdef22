//go:build linux

package child_test

import (
	"context"
	"encoding/json"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
)

func init() { verbs["limit"] = limit }

// limited is a child's memory limit and the distinct nicenesses of its threads.
type limited struct {
	Memory int64
	Nice   map[int]bool
}

// limit applies the limits in its job and reads those of every thread, including new ones.
func limit(_ context.Context, input []byte, _ storage.Report) (any, error) {
	var l child.Limits
	err := json.Unmarshal(input, &l)
	if err != nil {
		return nil, err
	}
	err = l.Apply()
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	for range 4 { // a blocked system call needs a thread
		all.Go(func() { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: 50_000_000}, nil) })
	}
	all.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	got := limited{Memory: debug.SetMemoryLimit(-1), Nice: map[int]bool{}}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return nil, err
		}
		raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
		if err == nil {
			got.Nice[20-raw] = true
		}
	}
	return got, nil
}

func TestLimits(t *testing.T) {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := 20 - raw
	for _, l := range []child.Limits{{}, {Nice: 19}, {Memory: 1 << 30}, {Memory: 1 << 30, Nice: 19}} {
		var got limited
		err := child.Call{Verb: "limit", Job: l, Result: &got}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := max(own, l.Nice)
		if len(got.Nice) != 1 || !got.Nice[want] {
			t.Errorf("%+v: the threads have %v", l, got.Nice)
		}
		if (got.Memory == l.Memory) != (l.Memory > 0) {
			t.Errorf("%+v: the limit is %d bytes", l, got.Memory)
		}
	}
}
