package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func (a *app) diff() *cobra.Command {
	var keys selectionFlags
	var in searchFlags
	var values, best bool
	var lineage string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show which keys differ between two points",
		Long: `diff shows which keys were added, changed or removed between two points. A point is the ID of a backup, a revision (r4711),
a time (2026-11-21T10:00:00Z, "2h ago"), or latest: the newest point in backups and log. Values are shown by size and digest,
with --values in full. A key that was rewritten with the same value does not differ.`,
		Example: `  dr diff "2h ago" latest --prefix /registry/deployments/
  dr diff r4711 r4712 --values`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("expected two points, got %d", len(args))
			}
			return nil
		},
	}
	keys.add(cmd)
	cmd.Flags().BoolVar(&values, "values", false, "show the values")
	cmd.Flags().StringVar(&lineage, "lineage", "",
		"lineage to read, if several contain the revision (default: the newest)")
	cmd.Flags().BoolVar(&best, "best", false, "if a point cannot be reached, use the nearest one before it")
	a.searchFlags(cmd, &in)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		selected, err := keys.keys(cmd, true)
		if err != nil {
			return err
		}
		now := time.Now()
		var points [2]plan.Target
		for i, text := range args {
			points[i], err = parsePoint(text, now)
			if err != nil {
				return err
			}
			points[i].Best = best
			if points[i].Backup == "" { // a backup has its own lineage
				points[i].Lineage = lineage
			}
		}
		catalog, err := a.load(cmd.Context(), backups.LoadOptions{Imported: true, Proofs: true, Log: true})
		if err != nil {
			return err
		}
		search, err := a.searchIn(catalog, &in, selected, now)
		if err != nil {
			return err
		}
		for i := range points {
			points[i].Plain = in.plain.mode(in.keys)
		}
		report, done := a.searching()
		search.Report = report
		compared, err := search.Diff(cmd.Context(), points, values, a.differencePrinter(values))
		done()
		if err != nil {
			return err
		}
		return a.printDiff(convert.Diff(compared))
	}
	return cmd
}

// parsePoint parses latest, r4711, an ID or a time.
func parsePoint(text string, now time.Time) (t plan.Target, err error) {
	if text == "latest" {
		return t, nil
	}
	number, ok := strings.CutPrefix(text, "r")
	if ok {
		t.Revision, err = strconv.ParseInt(number, 10, 64)
		if err == nil && t.Revision > 0 {
			return t, nil
		}
	}
	t.Backup, err = catalog.ParseID(text)
	if err == nil {
		return t, nil
	}
	t.Time, err = when.Parse(text, now)
	if err == nil {
		return plan.Target{Time: t.Time}, nil
	}
	return t, usagef("%q is not a point: use an ID, a revision such as r4711, a time, or latest", text)
}

// differencePrinter returns a function that prints a difference. In the table, values shows the values in full.
func (a *app) differencePrinter(values bool) func(find.Difference) error {
	if a.output == "json" {
		return func(d find.Difference) error { return a.json(document.Line{Item: convert.Different(d)}) }
	}
	return func(difference find.Difference) error {
		d := convert.Different(difference)
		a.printf("%-8s %s\n", d.Change, keyText(d.Key))
		for _, side := range []struct {
			sign  string
			value *document.Value
		}{{"-", d.A}, {"+", d.B}} {
			if side.value != nil {
				a.printf("  %s %s\n", side.sign, valueText(*side.value, values))
			}
		}
		return nil
	}
}

func valueText(v document.Value, shown bool) string {
	text := fmt.Sprintf("revision %d, %d bytes, sha256 %s", v.ModRevision, v.Size, v.SHA256[:16])
	if shown {
		text += ": " + strconv.Quote(string(v.Value))
	}
	return text
}

func (a *app) printDiff(d document.Diff) error {
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	count := func(n int) string { return humanize.Comma(int64(n)) }
	a.printf("revision %d to %d: %s added, %s changed, %s removed, %s the same\n", d.A.Revision, d.B.Revision,
		count(d.Added), count(d.Changed), count(d.Removed), count(d.Same))
	return nil
}
