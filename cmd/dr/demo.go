package main

import (
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/cmd/dr/demo"
)

func (a *app) demo() *cobra.Command {
	var story demo.Story
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Lose a three-member cluster and get it back, here and now",
		Long: `demo starts three etcd members on free loopback ports, fills them, backs them up, destroys all three data dirs,
restores them, boots them and compares what they hold with what was there. It needs nothing and leaves nothing; with
--repo the backups go through a store of yours, under a name of their own, and are removed from there in the end.`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&story.Keep, "keep", false, "leave the folder with the repository and the restored members")
	cmd.Flags().StringVar(&story.Repository, "repo", "", "repository to use, such as s3://bucket/prefix (default: a folder of its own)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		story.Out = a.stdout
		story.Version = version()
		return story.Tell(cmd.Context())
	}
	return cmd
}
