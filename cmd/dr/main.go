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
	end := profile()
	ctx, stop := signal.NotifyContext(context.Background(), endSignals(os.Args[1:])...)
	code := run(ctx, os.Args[1:], world{os.Stdin, os.Stdout, os.Stderr, getenv})
	stop()
	end()
	os.Exit(code)
}

// endSignals returns the signals that end dr cleanly. SIGHUP, which a closed terminal sends, is one of them unless nohup ignores it. dr
// serve reloads its configuration on SIGHUP instead.
func endSignals(args []string) []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) || len(args) > 0 && args[0] == "serve" {
		return signals
	}
	return append(signals, syscall.SIGHUP)
}

// exitLate exits the process if it still runs when the time limit has passed since ctx ended. Service managers wait 30 s, and a
// store or a mount that hangs may ignore ctx. The exit leaves the same leftovers as a kill. The caller calls cancel when its work
// has ended.
func (w world) exitLate(ctx context.Context, limit time.Duration) (cancel func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		select {
		case <-time.After(limit):
			fmt.Fprintf(w.stderr, "dr: interrupted: did not finish within %s: the next run removes the leftovers\n", limit)
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

// getenv returns the value of a variable. If a variable of protectingFlags is set to an empty value, getenv returns a blank, which
// checkVariables refuses: an empty value must not switch off encryption or signatures.
func getenv(name string) string {
	value, set := os.LookupEnv(name)
	if set && value == "" && protectingFlags[name] != "" {
		return " "
	}
	return value
}

// run runs dr with the arguments and returns the exit code.
func run(ctx context.Context, args []string, w world) int {
	out := &checkedWriter{Writer: w.stdout}
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
