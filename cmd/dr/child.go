package main

import (
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
)

// child is not for people: restore.Spawn and verify.Run start it.
func (a *app) child() *cobra.Command {
	verbs := map[string]child.Verb{restore.ChildVerb: restore.Serve, verify.ChildVerb: verify.Serve}
	return &cobra.Command{
		Use:    child.Argument,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || verbs[args[0]] == nil {
				return usagef("child is not for people")
			}
			return child.Serve(cmd.Context(), verbs[args[0]], restore.Kinds, a.stdin, a.stdout)
		},
	}
}
