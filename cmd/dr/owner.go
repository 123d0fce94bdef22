package main

import (
	"slices"

	"al.essio.dev/pkg/shellescape"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// printNew prints the result of a restore into new directories.
func (a *app) printNew(p plan.Plan, r restore.Result) error {
	err := a.printRestore(p, r)
	if err != nil || a.output == "json" {
		return err
	}
	dirs := []string{p.Into.WALDir}
	for _, m := range r.Members {
		dirs = append(dirs, m.DataDir)
	}
	a.printOwner(dirs)
	return nil
}

// printOwner prints the command that changes the owner of the dirs that belong to root: etcd's user could not open them.
func (a *app) printOwner(dirs []string) {
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		uid, _, err := filesystem.OwnerOf(dir)
		return err != nil || uid != 0
	})
	if len(dirs) == 0 {
		return
	}
	chown := append([]string{"chown", "-R", "USER:GROUP"}, dirs...)
	a.printf("\nthe new files belong to root: if etcd runs as another user, run this before the start:\n\n  %s\n", shellescape.QuoteCommand(chown))
}
