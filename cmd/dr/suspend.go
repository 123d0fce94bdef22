package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

func (a *app) suspend() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "suspend",
		Short: "Let no dr serve start anything for a cluster",
		Long: `suspend writes into the repository that services are to start nothing for the cluster: no backup, no pruning, no drill. Each
reads it before its next job, and needs no change of its configuration. What runs goes on to its end. It holds until
dr resume. Where a cluster has several repositories, the last word in any of them counts.

dr backup, dr prune and dr drill by hand work all the same.`,
		Example: `  dr suspend --repo s3://bucket/prefix --cluster prod --reason "the disks are replaced"`,
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it later")
	a.suspensionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.word(cmd, suspension.Suspension{Suspended: true, Reason: reason})
	}
	return cmd
}

func (a *app) resume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Let dr serve go on with a cluster",
		Long: `resume ends what dr suspend began. Services see it within a minute, and catch up once what they have missed. What a
configuration suspends only the configuration resumes.`,
		Args: noArgs,
	}
	a.suspensionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.word(cmd, suspension.Suspension{}) }
	return cmd
}

func (a *app) suspensionFlags(cmd *cobra.Command) {
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.signFlags(cmd, a.getenv)
	a.outputFlag(cmd)
}

// word makes s the last one.
func (a *app) word(cmd *cobra.Command, s suspension.Suspension) error {
	c, err := a.openToRemove(cmd.Context())
	if err != nil {
		return err
	}
	cat, err := c.Load(cmd.Context(), backups.LoadOptions{Newest: 1})
	if _, none := cat.Latest(); err == nil && errors.Is(none, catalog.ErrNotFound) {
		err = none // a name with a slip of the pen
	}
	if err != nil {
		return err
	}
	s.Time, s.By = time.Now(), identity()
	said, err := c.Services().Write(cmd.Context(), s)
	if err != nil {
		return err
	}
	return a.printSuspension(said)
}

func (a *app) printSuspension(s document.Suspension) error {
	if a.output == "json" {
		return a.document(s)
	}
	if s.Suspended {
		a.printf("cluster %s is suspended: no dr serve starts anything for it until dr resume\n", s.Cluster)
	} else {
		a.printf("cluster %s is not suspended\n", s.Cluster)
	}
	return nil
}
