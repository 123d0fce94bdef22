// Package memory watches how much a process takes.
package memory

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Whom selects whose memory counts.
type Whom bool

// A process is watched Alone: then the memory that it allocated counts, and not the pages of its program, which the
// kernel maps as its page cache allows (30 to 60 MB of the same program). Or it is watched WithChildren: then the
// largest of them all counts, not their sum, with every page that is mapped, because a restore maps the database.
const (
	Alone        Whom = false
	WithChildren Whom = true
)

// field names the line of /proc/PID/status that counts (man 5 proc_pid_status).
func (w Whom) field() []byte {
	if w == WithChildren {
		return []byte("VmHWM:")
	}
	return []byte("RssAnon:")
}

// Watch samples the memory of a process until the returned function is called, which returns the peak in bytes. The
// kernel's own figure at the end (ru_maxrss) would not do: it counts the process that forked.
func Watch(pid int, whom Whom) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var highest int64
		for {
			highest = max(highest, of(pid, whom))
			select {
			case <-stop:
				done <- highest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// of returns the memory of the process, or of the largest of its children.
func of(pid int, whom Whom) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var highest int64
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, whom.field())
		if ok {
			kb, _ := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			highest = kb << 10
		}
	}
	if whom == WithChildren {
		for _, child := range childrenOf(pid) {
			highest = max(highest, of(child, whom))
		}
	}
	return highest
}

// childrenOf looks at every thread: a child belongs to the one that started it.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		content, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			if err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
