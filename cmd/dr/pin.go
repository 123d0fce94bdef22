package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func (a *app) pin() *cobra.Command {
	var reason, until, span string
	var confirm bool
	cmd := &cobra.Command{
		Use:   "pin ID|latest",
		Short: "Keep a backup from being pruned",
		Long: `pin keeps a backup, whatever the rules of dr prune, until dr unpin or until the pin's end if it has one. A backup may be
pinned several times, and pins work with locked objects too.

--confirm also ends the condition ClusterChanged: it states that the backup's cluster is the right one, although no restore by
dr began its history. Keep the pin as long as backups of the previous history are kept.`,
		Example: `  dr pin latest --reason "before the upgrade to 3.7" --for 90d
  dr pin 20261121T092433Z-0000000000001267 --until 2026-12-31
  dr pin latest --confirm --reason "moved to new hosts by hand"`,
		Args: oneBackup,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the pin")
	cmd.Flags().StringVar(&until, "until", "", "when the pin ends: 2026-12-31 (all of that day, UTC) or 2026-12-31T10:00:00Z (default: with dr unpin)")
	cmd.Flags().StringVar(&span, "for", "", "how long the pin lasts, such as 90d")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "confirm that the backup's history is the cluster's own (condition ClusterChanged)")
	a.pinFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := catalog.Pin{Reason: reason, Time: time.Now().UTC(), By: author(), Confirms: confirm}
		var err error
		p.Until, err = pinEnd(until, span, p.Time)
		if err != nil {
			return err
		}
		if confirm && !p.Until.IsZero() {
			return usagef("--confirm with an end: the confirmation would end with the pin: leave out --until and --for")
		}
		c, b, err := a.toPin(cmd, args)
		if err != nil {
			return err
		}
		p.Backup = b.ID
		p, err = c.Pin(cmd.Context(), p)
		if err != nil {
			return err
		}
		return a.printPins(document.Pins{Backup: b.ID, Pins: append(slices.Clone(b.Pins), p), Lifted: []catalog.Pin{}})
	}
	return cmd
}

// pinEnd returns when a pin that begins now ends. It returns the zero time, for a pin without an end, if neither flag is given.
func pinEnd(until, span string, now time.Time) (time.Time, error) {
	switch {
	case until != "" && span != "":
		return time.Time{}, usagef("--until and --for: use one")
	case until != "":
		at, err := when.ParseUntil(until, now)
		if err != nil {
			return time.Time{}, usagef("--until: %w", err)
		}
		return at, nil
	case span != "":
		d, err := when.ParseSpan(span)
		if err != nil || d <= 0 {
			return time.Time{}, usagef("--for %q: use a form like 12h, 90d or 1d12h", span)
		}
		return now.Add(d), nil
	}
	return time.Time{}, nil
}

func (a *app) unpin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpin ID|latest",
		Short: "Allow a backup to be pruned again",
		Long:  `unpin lifts all pins of a backup. It writes a new object and deletes none, so it works with locked objects too.`,
		Args:  oneBackup,
	}
	a.pinFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, b, err := a.toPin(cmd, args)
		if err != nil {
			return err
		}
		lifted, err := c.Unpin(cmd.Context(), catalog.Unpin{Backup: b.ID, Time: time.Now().UTC(), By: author()})
		if err != nil {
			return err
		}
		return a.printPins(document.Pins{Backup: b.ID, Pins: []catalog.Pin{}, Lifted: append([]catalog.Pin{}, lifted...)})
	}
	return cmd
}

func (a *app) pinFlags(cmd *cobra.Command) {
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.outputFlag(cmd)
}

// oneBackup requires an argument. In other verbs no argument is the newest backup; here the operator must name it.
func oneBackup(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("expected one backup: use its ID, or latest")
	}
	return nil
}

// toPin returns the cluster, and the backup that the argument names with its current pins.
func (a *app) toPin(cmd *cobra.Command, args []string) (*repository.Cluster, catalog.Backup, error) {
	c, err := a.openToSign(cmd.Context())
	if err != nil {
		return nil, catalog.Backup{}, err
	}
	b, err := a.find(cmd, c, args)
	return c, b, err
}

// openToSign opens the cluster for a verb that writes pins, tombstones or suspensions. If --trust is given, the signing key must be
// one of the trusted keys: readers ignore documents that no trusted key signed.
func (a *app) openToSign(ctx context.Context) (*repository.Cluster, error) {
	err := a.store.checkSigner()
	if err != nil {
		return nil, err
	}
	return a.open(ctx)
}

func (a *app) printPins(d document.Pins) error {
	if a.output == "json" {
		return a.document(d)
	}
	switch n := len(d.Lifted); {
	case len(d.Pins) > 0:
		end := ""
		last := lastEnd(d.Pins)
		if !last.IsZero() {
			end = last.Format(time.RFC3339) + ", or until "
		}
		a.printf("backup %s is pinned: no dr prune removes it until %sdr unpin %s\n", d.Backup, end, d.Backup)
	case n > 0:
		a.printf("backup %s is no longer pinned (%d pins lifted)\n", d.Backup, n)
	default:
		a.printf("backup %s was not pinned\n", d.Backup)
	}
	return nil
}

// lastEnd returns when the last of the pins ends; the zero time if a pin has no end, or if there are no pins.
func lastEnd(pins []catalog.Pin) (last time.Time) {
	for _, p := range pins {
		if p.Until.IsZero() {
			return time.Time{}
		}
		if p.Until.After(last) {
			last = p.Until
		}
	}
	return last
}

func pinTexts(pins []catalog.Pin, now time.Time) (texts []string) {
	for _, p := range pins {
		text := p.Reason
		if text == "" {
			text = "without a reason"
		}
		end := ""
		if !p.Until.IsZero() {
			end = ", until " + p.Until.Format(time.RFC3339)
		}
		texts = append(texts, fmt.Sprintf("%s (%s, by %s%s)", text, age(p.Time, now), p.By, end))
	}
	return texts
}
