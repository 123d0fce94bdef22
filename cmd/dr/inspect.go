package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
)

// inspect runs dr status FILE.
func (a *app) inspect(cmd *cobra.Command, file string) error {
	for _, name := range []string{"repo", "cluster", "config", "all", "check"} {
		if cmd.Flags().Changed(name) {
			return usagef("%s is a file: --%s cannot be used with it: leave one of them out", file, name)
		}
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	found, err := restore.Inspect(cmd.Context(), file, nil)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return usagef("%w", err)
	}
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.document(document.Inspection(found))
	}
	a.printf("%s is intact\n", found.File)
	a.facts(
		"hash", found.Hash,
		"revision", fmt.Sprint(found.Revision),
		"keys", fmt.Sprint(found.Keys),
		"size", size(found.Size),
		"position", fmt.Sprint(found.Index),
		"storage", found.Version,
		"digest", digestText(found.Digest),
	)
	return nil
}

// digestText describes the digest at the end of a file. A digest that does not match is an error of restore.Inspect.
func digestText(exists bool) string {
	if exists {
		return "matches"
	}
	return "none at its end, as in a copy of member/snap/db: to restore it use dr restore --skip-hash-check"
}
