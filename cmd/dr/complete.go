package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	completeTimeout = 5 * time.Second // for all requests to the store: the user waits at a prompt
	completeIDs     = 20              // how many of the newest IDs are offered, besides those of imported backups; each costs a request
)

// complete registers shell completion for the verbs of parent, and for theirs: of IDs and cluster
// names from the repository, and of folders.
func (a *app) complete(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		switch {
		case strings.Contains(cmd.Use, "ID|latest"):
			cmd.ValidArgsFunction = a.completeID
		case strings.Contains(cmd.Use, "VERSION"):
			cmd.ValidArgsFunction = a.completeVersion
		case !strings.Contains(cmd.Use, "FILE") && !strings.Contains(cmd.Use, "PATH"):
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

// completeFirst completes the first argument from the cluster's repository, in the order of read. It returns none if the repository cannot be
// read: the verb itself reports that error.
func (a *app) completeFirst(cmd *cobra.Command, args []string, read func(context.Context, *repository.Cluster) ([]cobra.Completion, error)) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids, err := read(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeID completes backup IDs.
func (a *app) completeID(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, func(ctx context.Context, c *repository.Cluster) (ids []cobra.Completion, _ error) {
		catalog, err := c.Load(ctx, backups.LoadOptions{Newest: completeIDs, Imported: true, Copies: records.AnyCopies})
		for _, b := range catalog.All() {
			ids = append(ids, cobra.CompletionWithDesc(string(b.ID), fmt.Sprintf("revision %d, %s", b.Manifest.Revision, age(b.Manifest.Started, time.Now()))))
		}
		return ids, err
	})
}

// completeVersion completes the IDs of versions of assets, newest first.
func (a *app) completeVersion(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, func(ctx context.Context, c *repository.Cluster) (ids []cobra.Completion, _ error) {
		versions, err := c.Assets().List(ctx, cmd.Flag("node").Value.String())
		for _, v := range versions {
			ids = append(ids, cobra.CompletionWithDesc(string(v.ID), v.Node))
		}
		return ids, err
	})
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
