package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func (a *app) archiveVerify() *cobra.Command {
	var headers bool
	var from string
	var keys keyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the log has no gap and that every segment is intact",
		Long: `verify checks the chain of a cluster's segments: each names the one before, so a missing, duplicate or foreign segment is
found. Then it reads them all, and decodes every request, as a restore does. Without the key of encrypted segments it only compares
their stored bytes with their digests: pass --identity or --passphrase-file.

The exit code is 3 if a segment is missing or damaged, or if there is a gap. A restore of the cluster starts a new log; that
is not a gap. A gap never closes: with --since, gaps that ended before do not count, and a daily check reads only one day.`,
		Example: `  dr archive verify --repo s3://backups/etcd --cluster prod --since "26h ago"`,
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&headers, "headers", false, "read only the headers: fast, but does not find damage in the bodies")
	cmd.Flags().StringVar(&from, "since", "",
		"ignore segments and gaps that ended before this time (2026-11-21T10:00:00Z, \"26h ago\")")
	keys.add(cmd, a.getenv)
	a.readFlags(cmd)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		since, err := sinceFlag(from)
		if err != nil {
			return err
		}
		loaded, err := keys.load()
		if err != nil {
			return err
		}
		c, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		cat, err := c.Load(cmd.Context(), backups.LoadOptions{Log: true})
		if err != nil {
			return err
		}
		if len(cat.Lineages) == 0 {
			return fmt.Errorf("a log of cluster %s is %w: start dr archive", c.Name(), catalog.ErrNotFound)
		}
		cat = cat.Since(since)
		depth := "headers"
		if !headers {
			depth, err = a.readLog(cmd.Context(), c, &cat, loaded)
			if err != nil {
				return err
			}
		}
		return a.printArchiveVerify(document.NewArchiveVerify(cat, depth, since))
	}
	return cmd
}

// readLog reads every segment, and adds the damage that it finds to the catalog. It returns how deeply it checked: "stored" without
// keys, and "opened" with them.
func (a *app) readLog(ctx context.Context, c *repository.Cluster, catalog *catalog.Catalog, keys seal.Keys) (depth string, err error) {
	report, done := a.progress()
	defer done()
	reader := log.VerifyOptions{Keys: keys, Report: report, Check: restore.CheckSegment}
	for i, l := range catalog.Lineages {
		catalog.Lineages[i], err = c.Log().Verify(ctx, l, reader)
		if err != nil {
			return "", err
		}
	}
	if keys.None() {
		return "stored", nil
	}
	return "opened", nil
}

func (a *app) printArchiveVerify(d document.ArchiveVerify) error {
	var failed error
	if d.Verdict != "passed" {
		failed = logFault(d)
	}
	if a.output == "json" {
		return errors.Join(a.json(document.Line{Result: d}), failed)
	}
	depths := map[string]string{
		"headers": "headers read, bodies not checked",
		"stored":  "stored bytes compared with digests; not decrypted (no key was given)",
		"opened":  "segments decrypted, requests decoded",
	}
	a.printf("log of cluster %s%s: %s\n", d.Cluster, sinceWords(d.Since), d.Verdict)
	a.facts("found", fmt.Sprintf("%d segments, %s requests, %s", d.Found, humanize.Comma(d.Requests), size(d.Bytes)), "depth", depths[d.Depth])
	var rows [][]string
	for _, f := range d.Missing {
		rows = append(rows, []string{"missing", f.Key, f.Message})
	}
	for _, f := range d.Damaged {
		rows = append(rows, []string{"DAMAGED", f.Key, f.Message})
	}
	if len(rows) > 0 {
		a.table([]string{"SEGMENT", "OBJECT", "WHY"}, rows)
	}
	a.printLog(document.List{Windows: d.Windows, Gaps: d.Gaps}, time.Now())
	return failed
}

// logFault returns the findings in d, whose verdict is "failed", as an error.
func logFault(d document.ArchiveVerify) error {
	log := fmt.Sprintf("the log of cluster %s%s", d.Cluster, sinceWords(d.Since))
	lost, recorded := d.Holes()
	if len(d.Missing)+len(d.Damaged) == 0 {
		return fmt.Errorf("%s has gaps (%d recorded, %d lost): the requests in them are %w", log, recorded, lost, catalog.ErrNotFound)
	}
	return fmt.Errorf("%s has %d missing and %d damaged runs of segments, and gaps (%d recorded, %d lost): %w",
		log, len(d.Missing), len(d.Damaged), recorded, lost, catalog.ErrDamaged)
}

func sinceWords(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + moment(t)
}
