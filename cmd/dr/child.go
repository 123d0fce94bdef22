package main

import (
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/restore/verify"
)

// child returns the hidden verb that restore.Spawn, restore.Inspect, verify.Run and packages find and imported start as a child process.
func (a *app) child() *cobra.Command {
	verbs := map[string]child.ItemVerb{
		restore.ChildVerb:   child.Verb(restore.Serve).WithoutItems(),
		restore.InspectVerb: child.Verb(restore.ServeInspect).WithoutItems(),
		verify.ChildVerb:    child.Verb(verify.Serve).WithoutItems(),
		find.ChildVerb:      find.Serve,
		imported.ChildVerb:  child.Verb(imported.Serve).WithoutItems(),
	}
	return &cobra.Command{
		Use:    child.Argument,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || verbs[args[0]] == nil {
				return usagef("child is for internal use: see dr --help")
			}
			return child.ServeItems(cmd.Context(), verbs[args[0]], a.stdin, a.stdout)
		},
	}
}
