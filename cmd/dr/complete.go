package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	completeTimeout = 5 * time.Second // for all requests to the store: the user waits at a prompt
	completeIDs     = 20              // how many of the newest IDs are offered; each costs a request
)

// complete registers shell completion for the verbs of parent, and for theirs: of backup IDs and cluster names from the repository, and of
// folders.
func (a *app) complete(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		switch {
		case strings.Contains(cmd.Use, "ID|latest"):
			cmd.ValidArgsFunction = a.completeID
		case !strings.Contains(cmd.Use, "FILE"):
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		if cmd.Flags().Lookup("cluster") != nil {
			_ = cmd.RegisterFlagCompletionFunc("cluster", a.completeCluster) // no error: the flag exists
		}
		for _, folder := range []string{"credentials", "from-credentials", "to-credentials"} {
			if cmd.Flags().Lookup(folder) != nil {
				_ = cmd.MarkFlagDirname(folder) // no error: the flag exists
			}
		}
		a.complete(cmd)
	}
}

// completeFormats completes the flag --output of cmd, which takes one of the formats.
func completeFormats(cmd *cobra.Command, formats ...string) {
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", complete) // no error: the flag exists
}

// completeID completes backup IDs. It returns none if the repository cannot be read: the verb itself reports that error.
func (a *app) completeID(cmd *cobra.Command, args []string, _ string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	catalog, err := c.Load(ctx, backups.LoadOptions{Newest: completeIDs, Imported: true})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, b := range catalog.All() {
		ids = append(ids, cobra.CompletionWithDesc(string(b.ID), fmt.Sprintf("revision %d, %s", b.Manifest.Revision, age(b.Manifest.Started, time.Now()))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) completeCluster(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	bucket, err := a.bucket(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := repository.Clusters(ctx, bucket)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
