// Command dr backs etcd clusters up and restores them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], world{os.Stdin, os.Stdout, os.Stderr, os.Getenv})
	stop()
	os.Exit(code)
}

// world is all that dr touches besides files and the network.
type world struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
}

// run is dr without the process around it; it returns the exit code.
func run(ctx context.Context, args []string, w world) int {
	a := &app{world: w}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(w.stdin)
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	return a.end(ctx, root.ExecuteContext(ctx))
}
