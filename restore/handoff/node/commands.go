package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Commands is the Service of a member that two commands stop and start. Both run in a shell. That of Start must not wait until etcd serves,
// which it does only with other members; nothing but this Service may start etcd meanwhile.
type Commands struct {
	Own     Member
	ToStop  string
	ToStart string

	stopped, started time.Time // when the commands ran last
}

// again is the shortest time between two runs of one command: etcd may need that long to close or to open its data.
const again = 30 * time.Second

// String implements fmt.Stringer.
func (c *Commands) String() string { return "member " + c.Own.Name }

// Member implements Service.
func (c *Commands) Member(context.Context) (Member, error) { return c.Own, nil }

// Runs implements Service.
func (c *Commands) Runs(context.Context) (bool, error) {
	return salvage.RunningWith(c.Own.DataDir, c.Own.WALDir)
}

// Stop implements Service.
func (c *Commands) Stop(ctx context.Context) (handoff.Progress, error) {
	runs, err := c.Runs(ctx)
	if err != nil || !runs {
		return handoff.Progress{Done: err == nil}, err
	}
	if time.Since(c.stopped) < again {
		return handoff.Progress{Waiting: "etcd is being stopped"}, nil
	}
	c.stopped = time.Now()
	failure := run(ctx, c.ToStop)
	runs, err = c.Runs(ctx)
	if err != nil || !runs {
		return handoff.Progress{Done: err == nil}, err
	}
	return handoff.Progress{Waiting: "etcd is being stopped"}, failure
}

// Start implements Service.
func (c *Commands) Start(ctx context.Context) (handoff.Progress, error) {
	runs, err := c.Runs(ctx)
	if err != nil || runs {
		return handoff.Progress{Done: err == nil}, err
	}
	if time.Since(c.started) >= again {
		c.started = time.Now()
		err = run(ctx, c.ToStart)
	}
	return handoff.Progress{Waiting: "etcd is being started"}, err
}

// Enable implements Service.
func (c *Commands) Enable(context.Context) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}

// Acts implements Service.
func (c *Commands) Acts() (stop, start handoff.Act) {
	return handoff.Act{Text: "stop etcd", Verb: c.ToStop}, handoff.Act{Text: "start etcd", Verb: c.ToStart}
}

// run runs a command in a shell, in a session of its own: an etcd that it starts outlives this process.
func run(ctx context.Context, command string) error {
	output, err := os.CreateTemp("", "dr-command-*") // a pipe would stay open as long as the etcd that the command starts
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, &syscall.SysProcAttr{Setsid: true}
	err = cmd.Run()
	if err != nil {
		text, _ := os.ReadFile(output.Name())
		return fmt.Errorf("%w: run %s: %w: %s: correct the command", fault.Usage, command, err, strings.TrimSpace(string(text)))
	}
	return nil
}
