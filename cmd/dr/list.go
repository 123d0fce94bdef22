package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

func (a *app) list() *cobra.Command {
	var newest int
	var leftovers bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the backups of one cluster, or of all",
		Long: `list shows the backups in the repository, newest first, and how far each has been proven: stored, hashed, opened, booted
(see dr verify). A backup that cannot be used is shown as damaged or, with --trust, as not trusted; then the exit code is 3.`,
		Args: noArgs,
	}
	cmd.Flags().IntVar(&newest, "newest", 0, "list only this many backups per cluster, without the log; 0: all")
	cmd.Flags().BoolVar(&leftovers, "leftovers", false, "list leftovers of killed backups instead")
	a.readFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		clusters, err := a.clusters(cmd.Context())
		if err != nil {
			return err
		}
		if leftovers {
			return a.listLeftovers(cmd.Context(), clusters)
		}
		return a.listBackups(cmd.Context(), clusters, newest)
	}
	return cmd
}

// clusters returns the cluster that the flags name or, if they name none, all clusters of the repository.
func (a *app) clusters(ctx context.Context) ([]*repository.Cluster, error) {
	policy, err := a.store.policy()
	if err != nil {
		return nil, err
	}
	bucket, err := a.bucket(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{a.cluster}
	if a.cluster == "" {
		names, err = repository.Clusters(ctx, bucket)
		if err != nil {
			return nil, err
		}
	}
	var clusters []*repository.Cluster
	for _, name := range names {
		c, err := repository.OpenWith(bucket, name, policy)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, c)
	}
	if len(clusters) == 0 {
		return nil, fault.Mark(fault.NotFound, fmt.Errorf("repository %s is empty: take the first backup with dr backup", stores.Shown(a.repo)))
	}
	return clusters, nil
}

func (a *app) listBackups(ctx context.Context, clusters []*repository.Cluster, newest int) error {
	list := document.NewList()
	var rows [][]string
	var unusable, noBackup error
	now := time.Now()
	options := backups.LoadOptions{Newest: newest, Imported: true, Proofs: true, Log: newest == 0}
	if a.store.asOf == "" { // a listing of the past has other versions
		options.Copies = records.AnyCopies
	}
	for _, c := range clusters {
		cat, err := c.Load(ctx, options)
		if err != nil {
			return err
		}
		_, err = cat.Latest()
		if errors.Is(err, catalog.ErrNotFound) {
			noBackup = err // c may be the folder of another program
		}
		list.Add(cat)
		for _, b := range cat.All() {
			rows = append(rows, listRow(b, now))
		}
		for _, d := range cat.Damaged {
			rows = append(rows, []string{c.Name(), string(d.ID), "-", "-", "-", "-", "-", "DAMAGED", ""})
			unusable = errors.Join(unusable, d.Err)
		}
		for _, d := range cat.Untrusted {
			rows = append(rows, []string{c.Name(), string(d.ID), "-", "-", "-", "-", "-", "NOT TRUSTED", ""})
			unusable = errors.Join(unusable, d.Err)
		}
		for _, d := range cat.Ignored {
			unusable = errors.Join(unusable, d.Err)
		}
	}
	if len(rows) == 0 && len(list.Gaps) == 0 && unusable == nil {
		return noBackup
	}
	if a.output == "json" {
		return errors.Join(a.document(list), unusable)
	}
	a.table([]string{"CLUSTER", "ID", "TAKEN", "REVISION", "DATABASE", "STORED", "ETCD", "PROVEN", "MARKS"}, rows)
	a.printLog(list, now)
	return unusable
}

// printLog prints the recovery windows and the gaps, if there are any.
func (a *app) printLog(list document.List, now time.Time) {
	var windows, gaps [][]string
	for _, w := range list.Windows {
		windows = append(windows, []string{
			w.Cluster, fmt.Sprint(w.From.Revision), toRevision(w), moment(w.From.Time), moment(w.To.Time), age(w.To.Time, now),
			fmt.Sprint(w.Segments), size(w.Bytes), string(w.Source), w.Lineage,
		})
	}
	for _, g := range list.Gaps {
		gaps = append(gaps, []string{g.Cluster, string(g.Kind), gapPositions(g), gapTimes(g), g.Reason})
	}
	if len(windows) > 0 {
		a.printf("\nany revision or second in these windows can be restored:\n")
		a.table([]string{"CLUSTER", "FROM REVISION", "TO REVISION", "FROM", "TO", "ENDS", "SEGMENTS", "STORED", "SOURCE", "LINEAGE"}, windows)
	}
	for _, w := range list.Windows {
		if w.Diverged != "" {
			a.printf("the members had different data while lineage %s was written: %s\n", w.Lineage, w.Diverged)
		}
	}
	if slices.ContainsFunc(list.Windows, func(w document.Window) bool { return w.Source == segment.Watch }) {
		a.printf("source watch: %s\n", plan.UnseenBy(segment.Watch))
	}
	if len(gaps) > 0 {
		a.printf("\ngaps in the log:\n")
		a.table([]string{"CLUSTER", "KIND", "POSITIONS", "TIME", "WHY"}, gaps)
	}
}

// toRevision returns the last revision of a window, or a range that contains it if no mark records it.
func toRevision(w document.Window) string {
	if w.Most <= w.To.Revision {
		return fmt.Sprint(w.To.Revision)
	}
	return fmt.Sprintf("%d to %d", w.To.Revision, w.Most)
}

// gapPositions returns the range of a gap, and the number of its positions; "another history" if it has none or the number is unknown.
func gapPositions(g document.Gap) string {
	if g.Positions == 0 || g.Kind == catalog.GapRestored {
		return "another history"
	}
	return fmt.Sprintf("%d to %d (%d)", g.From, g.To, g.Positions)
}

func gapTimes(g document.Gap) string {
	if g.Until.IsZero() {
		return "since " + moment(g.Since)
	}
	return fmt.Sprintf("%s, %s", moment(g.Since), seconds(g.Seconds))
}

func listRow(b catalog.Backup, now time.Time) []string {
	return []string{
		b.Cluster, string(b.ID), age(b.Started, now), fmt.Sprint(b.Revision), size(b.Plain.Size), size(b.Stored.Size),
		b.EtcdVersion, provenText(b, now), strings.Join(notices(b), ", "),
	}
}

// provenText returns the best level of b, its age, and the newest drill. The level "no" means that the last check failed.
func provenText(b catalog.Backup, now time.Time) string {
	level, at := b.Best()
	text := fmt.Sprintf("%s, %s", level, age(at, now))
	if level == "" {
		text = "no, " + age(at, now)
	}
	p, ok := b.LastDrill()
	if ok {
		text += fmt.Sprintf("; drill %s, %s", p.Verdict, age(p.Time, now))
	}
	return text
}

func (a *app) listLeftovers(ctx context.Context, clusters []*repository.Cluster) error {
	doc := document.Leftovers{Leftovers: []document.Leftover{}}
	var rows [][]string
	now := time.Now()
	for _, c := range clusters {
		leftovers, err := c.Leftovers(ctx)
		if err != nil {
			return err
		}
		for _, l := range leftovers {
			doc.Leftovers = append(doc.Leftovers, document.Leftover{Cluster: c.Name(), Key: l.Key, Size: l.Size, Since: l.Since})
			rows = append(rows, []string{c.Name(), l.Key, size(l.Size), age(l.Since, now)})
		}
	}
	if a.output == "json" {
		return a.document(doc)
	}
	if len(rows) == 0 {
		a.printf("no leftovers\n")
		return nil
	}
	a.table([]string{"CLUSTER", "OBJECT", "SIZE", "LAST WRITTEN"}, rows)
	return nil
}

// warnUntrusted warns of objects that are ignored: the operator may not know that others can write to the repository.
func (a *app) warnUntrusted(c catalog.Catalog) {
	for _, d := range slices.Concat(c.Untrusted, c.Ignored) {
		a.warnf("WARNING: ignored: %v", d.Err)
	}
}
