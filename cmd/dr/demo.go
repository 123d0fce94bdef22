package main

import (
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/cmd/dr/demo"
)

func (a *app) demo() *cobra.Command {
	var story demo.Story
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Destroy a three-member cluster and restore it, on this machine",
		Long: `demo starts three etcd members on free loopback ports, writes data, takes a backup, destroys all three data dirs, restores
and boots them, and compares the data with the original. It needs no setup and leaves nothing. With --repo the backups are
stored in your own store, under a separate name, and removed at the end.`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&story.Keep, "keep", false, "keep the directory with the repository and the restored members")
	cmd.Flags().StringVar(&story.Repository, "repo", "", "repository to use, such as s3://bucket/prefix (default: a temporary directory)")
	cmd.Flags().StringVar(&story.Credentials, "credentials", a.getenv("DR_CREDENTIALS"), credentialsUsage)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		story.Out = a.stdout
		story.Version = version()
		return story.Tell(cmd.Context())
	}
	return cmd
}
