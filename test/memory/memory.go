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

// Whom selects whose memory counts. The pages of the program itself never do: the kernel maps them as its page cache allows (50 to 75 MB of
// the same program).
type Whom bool

// A process is watched Alone: then the memory that it allocated counts. Or it is watched WithChildren: then the largest of them all
// counts, not their sum, with the files that it maps, because a restore maps the database.
const (
	Alone        Whom = false
	WithChildren Whom = true
)

// Watch samples the memory of a process until the returned function is called, which returns the peak in bytes. The
// kernel's own figure at the end (ru_maxrss) would not do: it counts the process that forked.
func Watch(pid int, whom Whom) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		all := processes{}
		for {
			all.sample(pid, whom)
			select {
			case <-stop:
				done <- all.highest()
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

// processes are those that were seen, by their ids.
type processes map[int]*process

type process struct {
	peak    int64     // bytes
	program int64     // of it the program's own pages: the most that were seen
	read    time.Time // when program was read
}

func (all processes) highest() (bytes int64) {
	for _, p := range all {
		bytes = max(bytes, p.peak-p.program)
	}
	return bytes
}

// sample looks at a process, and at its children if they count.
func (all processes) sample(pid int, whom Whom) {
	if all[pid] == nil {
		all[pid] = &process{}
	}
	p := all[pid]
	if whom == Alone {
		p.peak = max(p.peak, sum(read(pid, "status"), "RssAnon:"))
		return
	}
	p.peak = max(p.peak, sum(read(pid, "status"), "VmHWM:"))
	if time.Since(p.read) > 200*time.Millisecond { // the kernel counts the pages anew each time
		p.program = max(p.program, programPages(pid))
		p.read = time.Now()
	}
	for _, child := range childrenOf(pid) {
		all.sample(child, whom)
	}
}

// programPages returns the bytes of a process's own program that are mapped.
func programPages(pid int) (all int64) {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return 0
	}
	for mapping := range bytes.SplitSeq(read(pid, "smaps"), []byte("\nVmFlags:")) {
		if bytes.Contains(mapping, []byte(program+"\n")) {
			all += sum(mapping, "Rss:")
		}
	}
	return all
}

// read returns a file about a process, which is empty once the process has ended (man 5 proc).
func read(pid int, name string) []byte {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return content
}

// sum returns the sum of the lines of a field, in bytes. The kernel writes them in kB.
func sum(text []byte, field string) (all int64) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(field))
		if !ok {
			continue
		}
		kb, _ := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
		all += kb << 10
	}
	return all
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
