// Command dr backs up and restores etcd clusters.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // schedules have time zones, and an image from scratch has no zone files
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings(os.Args[1:])...)
	code := run(ctx, os.Args[1:], world{os.Stdin, os.Stdout, os.Stderr, getenv})
	stop()
	os.Exit(code)
}

// endings returns the signals that end dr cleanly. SIGHUP, which a closed terminal sends, is one of them, except under nohup and
// for serve, which reloads its configuration on it.
func endings(args []string) []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) || len(args) > 0 && args[0] == "serve" {
		return signals
	}
	return append(signals, syscall.SIGHUP)
}

// endBy exits the process if it still runs this long after ctx has ended: service managers wait 30 s, and a store or a mount
// that hangs may ignore the context. It leaves the same leftovers as a kill. The caller cancels it at the regular end.
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
			fmt.Fprintf(w.stderr, "dr: interrupted: did not finish within %s: the next run removes the leftovers\n", after)
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return func() { close(done) }
}

// world is the environment of dr, without files and the network.
type world struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
}

// getenv returns the value of a variable. For a protecting variable that is set to an empty value it returns a blank, so that
// checkVariables can refuse it: an empty value must not switch off encryption or signatures.
func getenv(name string) string {
	value, set := os.LookupEnv(name)
	if set && value == "" && protecting[name] != "" {
		return " "
	}
	return value
}

// run runs dr with the arguments and returns the exit code.
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
