// Package child runs a part of this program in a separate process, so that a crash there is an error and not the end of dr.
//
// The child is the same binary with the arguments "child VERB". It reads its job, including secrets, as JSON from stdin, and
// writes events and the result as JSON lines to stdout. It ends when stdin is closed, so it also ends when the parent is
// killed.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Argument is the first argument of a child; the second is the verb.
const Argument = "child"

// DiedError reports that the child ended without a result.
type DiedError struct {
	Stage  string // the last reported stage
	Words  string // the reason from its stderr, on one line
	Killed bool   // by SIGKILL, such as the kernel's when memory runs out
}

func (e *DiedError) Error() string {
	if e.Killed {
		return fmt.Sprintf("the child process was killed at stage %s: possibly out of memory", e.Stage)
	}
	return fmt.Sprintf("the child process died at stage %s: %s", e.Stage, e.Words)
}

// line is one line of the child's stdout. Exactly one field is set.
type line struct {
	Event  *storage.Event  `json:"event,omitempty"`
	Item   json.RawMessage `json:"item,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *fault.Packed   `json:"error,omitempty"`
}

// Call describes a verb to run in a child.
type Call struct {
	Verb   string
	Job    any                         // sent to the child
	Result any                         // pointer to which Run decodes the result
	Report storage.Report              // receives the child's events
	Take   func(json.RawMessage) error // receives items as they arrive; an error stops the child; nil: items are ignored
}

// Run runs c in a child. It returns the child's error with its message, kinds and sentinels, the error of c.Take, or a
// *DiedError. If ctx is cancelled, Run asks the child to end, and kills it after 10 s.
func (c Call) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	input, err := json.Marshal(c.Job)
	if err != nil {
		return fmt.Errorf("describe the job of %s: %w", c.Verb, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, Argument, c.Verb)
	cmd.Env = environment(os.Environ(), c.Job)
	var stderr head
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close // asks the child to end; WaitDelay kills it
	cmd.WaitDelay = politeTime
	err = cmd.Start()
	if err != nil {
		return fmt.Errorf("start a child process: %w", err)
	}
	// The pipe stays open after the job: its end shows the child that the parent has ended.
	_, _ = stdin.Write(append(input, '\n')) // a child that dies early reports the cause itself
	r := &running{cmd: cmd, report: c.Report, take: c.Take, refuse: cancel}
	e := r.wait(ctx, stdout)
	switch {
	case e.refused != nil:
		return e.refused
	case e.answer != nil && e.answer.Error == nil: // also after the end of ctx: the child has done its work
		return json.Unmarshal(e.answer.Result, c.Result)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.answer == nil:
		return &DiedError{Stage: e.stage, Words: stderr.words(), Killed: killed(e.waited)}
	}
	return e.answer.Error.Err()
}

// Limits on the end of a child that has answered or that must end.
var (
	// politeTime is the time from the request to end until the child is killed.
	politeTime = 10 * time.Second
	// longestEnd is the longest time to wait for the end of a child after its answer or the request to end: the kernel cannot
	// kill a process that waits for a file system whose server hangs.
	longestEnd = 15 * time.Second
)

// running is a child that was started.
type running struct {
	cmd       *exec.Cmd
	report    storage.Report
	take      func(json.RawMessage) error // nil: items are ignored
	refuse    context.CancelCauseFunc     // ends the child with an error of take
	abandoned atomic.Bool                 // the parent no longer waits for the child
}

// ending describes the end of a child.
type ending struct {
	answer  *line  // nil: it died, or was abandoned before it answered
	stage   string // the last reported stage
	refused error  // the error of take
	waited  error  // of cmd.Wait; nil: the child exited with code 0
}

// wait returns how the child ended. It abandons a child that does not end within longestEnd after its answer or the end of
// ctx.
func (r *running) wait(ctx context.Context, stdout io.Reader) ending {
	ended, answered := make(chan ending, 1), make(chan *line, 1)
	go func() {
		var e ending
		e.answer, e.stage = read(stdout, r.say, func(item json.RawMessage) {
			if e.refused != nil || r.take == nil || r.abandoned.Load() {
				return
			}
			e.refused = r.take(item)
			if e.refused != nil {
				r.refuse(e.refused)
			}
		}, answered)
		e.waited = r.cmd.Wait()
		ended <- e
	}()
	var answer *line
	var over <-chan time.Time
	stop := ctx.Done()
	for {
		select {
		case e := <-ended:
			return e
		case answer = <-answered:
			over = time.After(longestEnd)
		case <-stop:
			stop, over = nil, time.After(longestEnd)
		case <-over:
			r.abandoned.Store(true)
			return ending{answer: answer}
		}
	}
}

// say reports an event of the child, unless the child was abandoned.
func (r *running) say(e storage.Event) {
	if !r.abandoned.Load() {
		r.report.Say(e)
	}
}

// read passes events and items on until the child's output ends. It returns the child's answer (nil if there was none) and its
// last stage, and also sends the answer to answered as soon as it arrives.
func read(stdout io.Reader, report storage.Report, take func(json.RawMessage), answered chan<- *line) (answer *line, stage string) {
	stage = "start"
	lines := bufio.NewReader(stdout)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return answer, stage
		}
		var l line
		if json.Unmarshal(text, &l) != nil {
			continue
		}
		switch {
		case l.Event != nil:
			stage = l.Event.Stage
			report.Say(*l.Event)
		case l.Item != nil:
			take(l.Item)
		case l.Result != nil || l.Error != nil: // other lines are printed by libraries, possibly as JSON
			if answer == nil {
				answered <- &l
			}
			answer = &l
		}
	}
}

// killed reports whether err, of cmd.Wait, shows that SIGKILL ended the child.
func killed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// head keeps the first 16 KiB of a stream, enough for the first lines of a panic.
type head struct{ kept []byte }

const headSize = 16 << 10

func (h *head) Write(p []byte) (int, error) {
	room := headSize - len(h.kept)
	if room > 0 {
		h.kept = append(h.kept, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// words returns the line with the reason why a Go program ended, or else the first line.
func (h *head) words() string {
	var first string
	for text := range bytes.Lines(h.kept) {
		text := strings.TrimSpace(string(text))
		for _, mark := range []string{"panic: ", "fatal error: ", "unexpected fault address"} {
			if strings.HasPrefix(text, mark) {
				return strings.TrimSuffix(strings.TrimPrefix(text, "panic: "), " [recovered]")
			}
		}
		if first == "" {
			first = text
		}
	}
	if first == "" {
		return "it printed nothing"
	}
	return first
}
