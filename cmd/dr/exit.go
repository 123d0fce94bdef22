package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// The exit codes. They are part of the interface: docs/cli.md says what each means.
const (
	exitDone        = 0
	exitOther       = 1
	exitUsage       = 2
	exitFinding     = 3
	exitRefused     = 4
	exitInterrupted = 130
)

// errUsage: the command line cannot be used as written.
var errUsage = errors.New("bad command line")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
}

// exitCode is the code for err. What was refused for safety goes first: it tells the caller that nothing was tried.
func exitCode(ctx context.Context, err error) int {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		return exitInterrupted
	case is(plan.ErrRefused, backup.ErrRefused, archive.ErrRefused, records.ErrUnsigned):
		return exitRefused
	case is(errNotRun):
		return exitOther
	case is(errWanting, catalog.ErrDamaged, catalog.ErrNotFound, seal.ErrWrongKey, backup.ErrDiverged,
		verify.ErrAssertion):
		return exitFinding
	case is(errUsage, plan.ErrLayout, catalog.ErrName, stores.ErrURL, cluster.ErrConfig, archive.ErrConfig,
		retention.ErrPolicy, config.ErrConfig):
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
		fmt.Fprintf(a.stderr, "dr: see %s --help\n", a.path)
	}
	return code
}
