// Command dr backs etcd clusters up and restores them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // schedules have zones, and an image from scratch has no files of them
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings(os.Args[1:])...)
	code := run(ctx, os.Args[1:], world{os.Stdin, os.Stdout, os.Stderr, getenv})
	stop()
	os.Exit(code)
}

// endings returns the signals that end dr cleanly. A hangup, which a closed terminal sends, is one of them, but not under
// nohup, and not for serve, which reads its configuration again then.
func endings(args []string) []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) || len(args) > 0 && args[0] == "serve" {
		return signals
	}
	return append(signals, syscall.SIGHUP)
}

// endBy ends the process when it still runs so long after ctx has ended: whoever stops it waits 30 s, and a store or a mount
// that hangs knows of no context. What is left then is what a kill leaves. The caller cancels it when all has ended.
func (w world) endBy(ctx context.Context, after time.Duration) (cancel func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		select {
		case <-time.After(after):
			fmt.Fprintf(w.stderr, "dr: interrupted: not everything has ended after %s: what is left is cleaned up by the next run\n", after)
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return func() { close(done) }
}

// world is all that dr touches besides files and the network.
type world struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
}

// getenv returns the value of a variable. One that is set and empty is a blank, so that it can be told from one that is not
// set: it must not switch off what its flag switches on.
func getenv(name string) string {
	value, set := os.LookupEnv(name)
	if set && value == "" && protecting[name] != "" {
		return " "
	}
	return value
}

// run is dr without the process around it; it returns the exit code.
func run(ctx context.Context, args []string, w world) int {
	out := &printed{Writer: w.stdout}
	w.stdout = out
	a := &app{world: w}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(w.stdin)
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	a.path = cmd.CommandPath()
	return a.end(ctx, out.check(err))
}
