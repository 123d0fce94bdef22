package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Fence stops a service and keeps it stopped until Unfence or a restore starts it. It returns once no process uses the data of the member.
// waits gets the reason of each wait. Fence changes no data.
func Fence(ctx context.Context, s Service, waits func(why string)) error {
	own, err := s.Member(ctx)
	if err != nil {
		return err
	}
	return repeat(ctx, waits, func(ctx context.Context) (handoff.Progress, error) { return stop(ctx, s, own.DataDir, own.WALDir) })
}

// Unfence starts a service that Fence has stopped, and returns once it runs. waits gets the reason of each wait. It refuses while a restore
// has closed the data dir and, unless empty is true, if the member has no data: etcd would begin a new, empty cluster.
func Unfence(ctx context.Context, s Service, empty bool, waits func(why string)) error {
	own, err := s.Member(ctx)
	if err == nil {
		err = checkData(own.DataDir, empty)
	}
	if err != nil {
		return err
	}
	return repeat(ctx, waits, s.Start)
}

// checkData refuses a data dir on which etcd would exit and, unless empty is true, one on which it would begin a new cluster.
func checkData(dir string, empty bool) error {
	for _, path := range []string{dir, filepath.Join(dir, "member")} {
		info, err := os.Lstat(path)
		switch {
		case err == nil && info.Mode().IsRegular():
			return fmt.Errorf("%w: a restore has put a file in the place of %s, on which etcd exits: run the command of the restore again, or see the file",
				fault.Refused, path)
		case errors.Is(err, fs.ErrNotExist) && !empty:
			return fmt.Errorf("%w: %s is missing, so etcd would begin a new, empty cluster: restore the member, or pass --confirm with its name",
				fault.Refused, path)
		}
	}
	return nil
}

// stop takes one step towards a stopped service whose data no process uses.
func stop(ctx context.Context, s Service, dataDir, walDir string) (handoff.Progress, error) {
	p, err := s.Stop(ctx)
	if err != nil || !p.Done {
		return p, err
	}
	running, err := salvage.RunningWith(dataDir, walDir)
	if err != nil || !running {
		return handoff.Progress{Done: err == nil}, err
	}
	return handoff.Progress{Waiting: fmt.Sprintf("%s is stopped, but another process still uses %s: stop that process", s, dataDir)}, nil
}

// repeat calls step once a second until it is done, or its error is permanent.
func repeat(ctx context.Context, waits func(why string), step func(context.Context) (handoff.Progress, error)) error {
	for {
		p, err := step(ctx)
		switch {
		case err == nil && p.Done, handoff.IsFinal(err):
			return err
		case err != nil:
			waits(err.Error())
		default:
			waits(p.Waiting)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
