package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// The exit codes. They are part of the interface, which docs/cli.md describes.
const (
	exitDone        = 0
	exitOther       = 1
	exitUsage       = 2
	exitFinding     = 3
	exitRefused     = 4
	exitInterrupted = 130
)

// errUsage means that the command line cannot be used as written.
var errUsage = fault.New(fault.Usage, "bad command line")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
}

// exitCode returns the code for err. It is exitInterrupted if a signal has ended ctx, and in no other case.
func exitCode(ctx context.Context, err error) int {
	if err != nil && ctx.Err() != nil {
		return exitInterrupted
	}
	switch fault.KindOf(err) {
	case "":
		return exitDone
	case fault.Refused:
		return exitRefused
	case fault.Damaged, fault.NotFound:
		return exitFinding
	case fault.Usage:
		return exitUsage
	}
	return exitOther
}

// end prints the error, if there is one, as one line on stderr (and as the last JSON line), and returns the exit code.
func (a *app) end(ctx context.Context, err error) int {
	code := exitCode(ctx, err)
	if err == nil {
		return code
	}
	message := strings.Join(strings.Fields(err.Error()), " ")
	if ctx.Err() != nil {
		message = "interrupted: " + message
	}
	if a.output == "json" {
		_ = a.json(document.Line{Error: &document.Error{Message: message, ExitCode: code}})
	}
	a.warnf("%s", message)
	if errors.Is(err, errUsage) {
		a.warnf("see %s --help", a.path)
	}
	return code
}
