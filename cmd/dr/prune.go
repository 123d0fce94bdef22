package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func (a *app) prune() *cobra.Command {
	var keep keepFlags
	o := repository.PruneOptions{Grace: grace}
	var imports []string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the backups, and the part of the log, that no rule keeps",
		Long: `prune removes the backups and segments that none of its rules keeps. --dry-run prints the decisions, each with its reason.

Whatever the rules, it never removes the newest backup, the newest good one, the last proven one, a pinned or locked one, one
that the kept log continues from, or anything of another cluster. It removes nothing while no backup is good.

A doubtful backup takes no slot of a good one: of a member with the alarm CORRUPT, of members that had diverged, one that failed
its last check, or one with a database far smaller than the one before it.

No rule counts or removes an imported backup (dr import, dr salvage): --imported removes those that it names.

A removed backup is no longer listed. A later prune deletes its data, after the grace.

dr prune also packs the small segments of the log into large objects, once all segments of an index are an hour old. A prune an hour
later (or after --grace, if that is shorter) deletes the small objects.`,
		Example: `  dr prune --keep-last 3 --keep-daily 7 --keep-monthly 12 --window 14d --dry-run
  dr prune --imported 20261121T092433Z-000000000000abcd-import`,
		Args: noArgs,
	}
	keep.add(cmd)
	cmd.Flags().StringSliceVar(&imports, "imported", nil, "remove these imported backups, and nothing else")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print the decisions and their reasons, and change nothing")
	cmd.Flags().Var((*when.Span)(&o.Grace), "grace", "how long data stays after its backup was removed; must be longer than any backup or restore takes")
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.signFlags(cmd, a.getenv)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		decide, err := decider(&keep, imports)
		if err != nil {
			return err
		}
		if o.Grace <= 0 {
			return usagef("--grace must be above zero")
		}
		o.Now = time.Now().UTC()
		return a.runPrune(cmd.Context(), decide, o)
	}
	return cmd
}

// pruneDecider returns which backups and segments of c a prune at the time now removes.
type pruneDecider func(c catalog.Catalog, now time.Time) (retention.Decisions, error)

// decider returns a function that applies the rules of keep or, if there are imports, removes these imported backups and nothing
// else.
func decider(keep *keepFlags, imports []string) (pruneDecider, error) {
	if len(imports) == 0 {
		policy, err := keep.policy()
		return func(c catalog.Catalog, now time.Time) (retention.Decisions, error) {
			_, err := c.Latest()
			if errors.Is(err, catalog.ErrNotFound) { // the cluster's name is probably misspelled
				return retention.Decisions{}, err
			}
			return retention.Plan(c, policy, now)
		}, err
	}
	var ids []catalog.ID
	for _, text := range imports {
		id, err := catalog.ParseID(text)
		if err != nil {
			return nil, usagef("--imported: %w", err)
		}
		ids = append(ids, id)
	}
	return func(c catalog.Catalog, _ time.Time) (retention.Decisions, error) {
		return retention.RemoveImported(c, ids)
	}, nil
}

func (a *app) runPrune(ctx context.Context, decide pruneDecider, o repository.PruneOptions) error {
	open := a.openToSign
	if o.DryRun {
		open = a.open
	} else {
		o.Index = &backups.Collector{}
	}
	c, err := open(ctx)
	if err != nil {
		return err
	}
	c.Remembering(&log.Headers{}) // the prune stores the summary of what this load reads
	cat, err := c.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Log: true, Collect: o.Index})
	if err != nil {
		return err
	}
	a.warnUntrusted(cat)
	decisions, err := decide(cat, o.Now)
	if err != nil {
		return err
	}
	report, done := a.progress()
	result, err := c.Prune(ctx, decisions.Removal(o.Now, author()), o, report)
	done()
	if err != nil {
		return err
	}
	return a.printPrune(convert.Prune(cat, decisions, result, o.DryRun), o)
}

// keepFlags holds the flags of a retention policy.
type keepFlags struct {
	retention.Policy
	within, window, size, zone string // policy parses them
}

func (f *keepFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.Last, "keep-last", 0, "keep the newest N backups")
	flags.IntVar(&f.Hourly, "keep-hourly", 0, "keep the newest backup of each of the last N hours that have one")
	flags.IntVar(&f.Daily, "keep-daily", 0, "the same for days")
	flags.IntVar(&f.Weekly, "keep-weekly", 0, "the same for weeks, from Monday")
	flags.IntVar(&f.Monthly, "keep-monthly", 0, "the same for months")
	flags.IntVar(&f.Yearly, "keep-yearly", 0, "the same for years")
	flags.StringVar(&f.within, "keep-within", "", "keep all backups that are at most this much older than the newest good one: 30d, 36h")
	flags.StringVar(&f.window, "window", "",
		"keep any point of this long before now restorable: 14d. The log before it is removed (default: the log is kept from the oldest backup on)")
	flags.StringVar(&f.size, "max-size", "", "remove the oldest backups, even kept ones, until backups and log have at most this size: 50GiB")
	flags.IntVar(&f.MinCopies, "min-copies", 0, "keep the newest N good backups despite --max-size")
	flags.StringVar(&f.zone, "zone", "UTC", "time zone of hours, days, weeks, months and years: Europe/Berlin, Local")
}

// policy returns the policy that the flags describe.
func (f *keepFlags) policy() (p retention.Policy, err error) {
	p = f.Policy
	for name, span := range map[string]struct {
		text string
		to   *time.Duration
	}{"keep-within": {f.within, &p.Within}, "window": {f.window, &p.Window}} {
		if span.text == "" {
			continue
		}
		*span.to, err = when.ParseSpan(span.text)
		if err != nil || *span.to <= 0 {
			return p, usagef("--%s %s: use a form like 14d, 36h or 1d12h", name, span.text)
		}
	}
	if f.size != "" {
		size, err := humanize.ParseBytes(f.size)
		if err != nil || size == 0 || size > 1<<62 {
			return p, usagef("--max-size %s: use a form like 50GiB", f.size)
		}
		p.MaxSize = int64(size)
	}
	p.Zone, err = time.LoadLocation(f.zone)
	if err != nil {
		return p, usagef("--zone %s: use a name like Europe/Berlin, or UTC", f.zone)
	}
	return p, p.Validate()
}

func (a *app) printPrune(d document.Prune, o repository.PruneOptions) error {
	if d.Over > 0 {
		a.warnf("WARNING: the backups and segments that must stay exceed --max-size by %s", size(d.Over))
	}
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	a.table([]string{"", "BACKUP", "TAKEN", "STORED", "WHY"}, pruneRows(d, o.Now))
	var rows [][]string
	for _, l := range d.Log {
		rows = append(rows, []string{"remove", l.Lineage, fmt.Sprint(l.Segments), size(l.Size), l.Reason})
	}
	if len(rows) > 0 {
		a.printf("\n")
		a.table([]string{"", "LINEAGE", "SEGMENTS", "STORED", "WHY"}, rows)
	}
	a.printLocked(d)
	a.printf("\n%s\n", pruneSummary(d, o.Grace))
	return nil
}

func pruneRows(d document.Prune, now time.Time) (rows [][]string) {
	for _, b := range d.Backups {
		decision, why := "keep", strings.Join(b.Reasons, ", ")
		if !b.Keep {
			decision = "remove"
		}
		if b.Doubt != "" {
			why += " (takes no slot of a good one: " + b.Doubt + ")"
		}
		rows = append(rows, []string{decision, string(b.ID), age(b.Started, now), size(b.Size), why})
	}
	for _, b := range d.Damaged {
		rows = append(rows, []string{"keep", string(b.ID), "-", "-", "DAMAGED: examine it yourself"})
	}
	for _, b := range d.Untrusted {
		rows = append(rows, []string{"keep", string(b.ID), "-", "-", "NOT TRUSTED: ignored"})
	}
	return rows
}

func (a *app) printLocked(d document.Prune) {
	const shown = 10
	for i, l := range d.Locked {
		if i == shown {
			a.printf("  and %d more\n", len(d.Locked)-shown)
			return
		}
		if i == 0 {
			a.printf("\nlocked, not removed:\n")
		}
		until := "without a known end"
		if !l.Until.IsZero() {
			until = "until " + moment(l.Until)
		}
		a.printf("  %s, %s\n", l.Key, until)
	}
}

func pruneSummary(d document.Prune, grace time.Duration) string {
	backups, segments := 0, 0
	for _, b := range d.Backups {
		if !b.Keep {
			backups++
		}
	}
	for _, l := range d.Log {
		segments += l.Segments
	}
	removed := "removed"
	if d.DryRun {
		removed = "would be removed"
	}
	text := fmt.Sprintf("%d backups and %d segments %s, %s stay", backups, segments, removed, size(d.Kept))
	if backups+segments > 0 {
		text += fmt.Sprintf("; a prune after %s deletes their data, %s", retention.Span(grace), size(d.Removed))
	}
	if d.Swept > 0 {
		text += fmt.Sprintf("\n%d objects that nothing needs any more, %s, %s for good", d.Swept, size(d.SweptSize), removed)
	}
	if d.Packs > 0 {
		packed := "packed"
		if d.DryRun {
			packed = "would be packed"
		}
		text += fmt.Sprintf("\n%d segments of the log %s into %d objects", d.Packed, packed, d.Packs)
	}
	return text
}
