package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func (a *app) pin() *cobra.Command {
	var reason string
	var confirm bool
	cmd := &cobra.Command{
		Use:   "pin ID|latest",
		Short: "Keep a backup from being pruned",
		Long: `pin keeps a backup, whatever dr prune is told to keep, until dr unpin. It works where objects are locked too, and a
backup may be pinned several times. --confirm also ends the condition ClusterChanged: it states that the backup's cluster is
the right one, although no restore by dr began its history. Keep the pin for as long as backups of the history before are kept.`,
		Example: `  dr pin latest --reason "before the upgrade to 3.7"
  dr pin latest --confirm --reason "moved to new hosts by hand"`,
		Args: theBackup,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it later")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "confirm that the backup's history is the cluster's own (condition ClusterChanged)")
	a.pinFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, b, err := a.toPin(cmd, args)
		if err != nil {
			return err
		}
		p, err := c.Pin(cmd.Context(), repository.Pin{Backup: b.ID, Reason: reason, Time: time.Now().UTC(), By: identity(), Confirms: confirm})
		if err != nil {
			return err
		}
		return a.printPins(document.Pins{Backup: b.ID, Pins: append(slices.Clone(b.Pins), p), Lifted: []repository.Pin{}})
	}
	return cmd
}

func (a *app) unpin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpin ID|latest",
		Short: "Let a backup be pruned again",
		Long:  `unpin lifts all pins of a backup. What lifts them is written beside them, so that it works where objects are locked.`,
		Args:  theBackup,
	}
	a.pinFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, b, err := a.toPin(cmd, args)
		if err != nil {
			return err
		}
		lifted, err := c.Unpin(cmd.Context(), repository.Unpin{Backup: b.ID, Time: time.Now().UTC(), By: identity()})
		if err != nil {
			return err
		}
		return a.printPins(document.Pins{Backup: b.ID, Pins: []repository.Pin{}, Lifted: append([]repository.Pin{}, lifted...)})
	}
	return cmd
}

func (a *app) pinFlags(cmd *cobra.Command) {
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.outputFlag(cmd)
}

// theBackup: nothing is the newest elsewhere, but what is to stay, or may go, is named.
func theBackup(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("name one backup, or latest")
	}
	return nil
}

// toPin is the backup that the argument names, as it is now.
func (a *app) toPin(cmd *cobra.Command, args []string) (*repository.Cluster, repository.Backup, error) {
	c, err := a.openToRemove(cmd.Context())
	if err != nil {
		return nil, repository.Backup{}, err
	}
	b, err := a.find(cmd, c, args)
	return c, b, err
}

// openToRemove is open for a verb whose word decides what goes: if it names trusted keys, it must sign with one of them, or
// what it writes would count for nothing.
func (a *app) openToRemove(ctx context.Context) (*repository.Cluster, error) {
	policy, err := a.store.policy()
	if err != nil {
		return nil, err
	}
	own := policy.Key.Trust().Keys()
	if !policy.Trust.None() && (len(own) == 0 || !slices.Contains(policy.Trust.Keys(), own[0])) {
		return nil, usagef("--trust without a --sign-key that is trusted: what is written would count for nothing")
	}
	return a.open(ctx)
}

func (a *app) printPins(d document.Pins) error {
	if a.output == "json" {
		return a.document(d)
	}
	switch n := len(d.Lifted); {
	case len(d.Pins) > 0:
		a.printf("backup %s is pinned: no dr prune removes it until dr unpin %s\n", d.Backup, d.Backup)
	case n > 0:
		a.printf("backup %s is no longer pinned (%d pins lifted)\n", d.Backup, n)
	default:
		a.printf("backup %s was not pinned\n", d.Backup)
	}
	return nil
}

func pinTexts(pins []repository.Pin, now time.Time) (texts []string) {
	for _, p := range pins {
		text := p.Reason
		if text == "" {
			text = "without a reason"
		}
		texts = append(texts, fmt.Sprintf("%s (%s, by %s)", text, age(p.Time, now), p.By))
	}
	return texts
}
