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
		Short: "Keep every dr serve from starting jobs for a cluster",
		Long: `suspend writes to the repository that services must start no backup, pruning or drill for the cluster. Each service reads
that before its next job; its configuration need not change. Running jobs continue to their end. The suspension lasts until
dr resume. If a cluster has several repositories, the latest suspend or resume in any of them counts.

dr backup, dr prune and dr drill on the command line still work.`,
		Example: `  dr suspend --repo s3://bucket/prefix --cluster prod --reason "the disks are replaced"`,
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the suspension")
	a.suspensionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.writeSuspension(cmd, suspension.Suspension{Suspended: true, Reason: reason})
	}
	return cmd
}

func (a *app) resume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a suspension",
		Long: `resume ends a suspension by dr suspend. Services notice it within a minute, and run each missed job once. It does not end
a suspension in a configuration.`,
		Args: noArgs,
	}
	a.suspensionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.writeSuspension(cmd, suspension.Suspension{}) }
	return cmd
}

func (a *app) suspensionFlags(cmd *cobra.Command) {
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.signFlags(cmd, a.getenv)
	a.outputFlag(cmd)
}

// writeSuspension writes s to the repository, and prints it. It refuses a cluster without a backup.
func (a *app) writeSuspension(cmd *cobra.Command, s suspension.Suspension) error {
	c, err := a.openToSign(cmd.Context())
	if err != nil {
		return err
	}
	cat, err := c.Load(cmd.Context(), backups.LoadOptions{Newest: 1})
	_, noBackup := cat.Latest()
	if err == nil && errors.Is(noBackup, catalog.ErrNotFound) {
		err = noBackup // the cluster's name is probably misspelled
	}
	if err != nil {
		return err
	}
	s.Time, s.By = time.Now(), author()
	written, err := c.Services().Write(cmd.Context(), s)
	if err != nil {
		return err
	}
	return a.printSuspension(written)
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
