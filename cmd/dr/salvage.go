package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// salvageFlags holds the flags that name the disks of stopped members and their use.
type salvageFlags struct {
	dirs    []string // data dirs
	tail    string   // auto or all
	base    string   // one of dirs; "": the newest
	version string   // of etcd; "": the newest of the minor version on the disks
}

func (f *salvageFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.dirs, "from-data-dir", nil,
		"data dirs (etcd's --data-dir) of stopped members of one cluster, which are only read")
	cmd.Flags().StringVar(&f.tail, "salvage-tail", "auto",
		"requests at the end of the log that may not have been committed: all restores them, auto only if --from-data-dir has a majority of the members")
	cmd.Flags().StringVar(&f.base, "salvage-base", "",
		"data dir, one of --from-data-dir, whose database is the base if the members disagree (default: the newest)")
	cmd.Flags().StringVar(&f.version, "etcd-version", "",
		"version of the stopped members, such as 3.5.12 (default: the newest of the minor version on their disks)")
}

var fullVersion = regexp.MustCompile(`^3\.[0-9]+\.[0-9]+$`)

func (a *app) salvage() *cobra.Command {
	var disks salvageFlags
	var f importFlags
	var toRepository, oldIsDead bool
	cmd := &cobra.Command{
		Use:   "salvage",
		Short: "Inspect the disks of stopped members, and store their data as a backup",
		Long: `salvage reads the data dirs of stopped members without changing them. It prints the revision that can be restored from them, and
which part is certain. With --to-repository it stores the result as a backup, whose manifest names the disks and the revision up to which
everything is known to be committed. Restore that backup by its id.

It uses the disks alone. If the log was archived, dr restore --from-data-dir with --repo continues the stored log, and may lose less.`,
		Example: `  dr salvage --from-data-dir /mnt/a/etcd,/mnt/b/etcd
  dr salvage --from-data-dir /mnt/a/etcd --salvage-tail all --to-repository --repo file:///var/backups/etcd --cluster prod --recipient age1…`,
		Args: noArgs,
	}
	disks.add(cmd)
	cmd.Flags().BoolVar(&toRepository, "to-repository", false, "store the result as a backup in --repo")
	cmd.Flags().BoolVar(&oldIsDead, "old-is-dead", false, "read a data dir even if a process has it open")
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := f.load()
		if err != nil {
			return err
		}
		found, err := a.salvagePlan(cmd.Context(), &disks, oldIsDead)
		if err != nil {
			return err
		}
		if !toRepository {
			return a.printSalvage(found)
		}
		return a.storeImport(cmd.Context(), &f, func(ctx context.Context, places []backup.Store, report storage.Report) (*imported.Database, error) {
			database, err := imported.FromDisks(ctx, found, o, report)
			if err == nil {
				for _, p := range places {
					database.ReportNewer(ctx, p.Cluster, p.Repository, report)
				}
			}
			return database, err
		})
	}
	return cmd
}

// salvagePlan returns the plan that salvages from the disks alone.
func (a *app) salvagePlan(ctx context.Context, f *salvageFlags, oldIsDead bool) (plan.Plan, error) {
	if len(f.dirs) == 0 {
		return plan.Plan{}, usagef("no data dir: name those of the stopped members with --from-data-dir")
	}
	err := absolute(f.paths())
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return plan.Plan{}, err
	}
	disks, err := f.survey(ctx, catalog.Catalog{}, nil)
	if err != nil {
		return plan.Plan{}, err
	}
	return imported.PlanDisks(*disks, oldIsDead, time.Now())
}

// paths returns the flags with paths.
func (f *salvageFlags) paths() []*string {
	all := []*string{&f.base}
	for i := range f.dirs {
		all = append(all, &f.dirs[i])
	}
	return all
}

func (a *app) printSalvage(p plan.Plan) error {
	if a.output == "json" {
		return a.document(document.Plan(p))
	}
	pairs := append([]string{"base", planSource(p)}, planSalvage(p)...)
	for _, note := range p.Notes {
		pairs = append(pairs, "note", note)
	}
	a.facts(pairs...)
	return nil
}

// checkSalvage returns an error for flags that cannot be combined.
func (f *restoreFlags) checkSalvage(cmd *cobra.Command) error {
	s := f.salvage
	changed := func(name string) bool { return cmd.Flags().Changed(name) }
	switch {
	case len(s.dirs) == 0 && (changed("salvage-tail") || changed("salvage-base") || changed("etcd-version")):
		return usagef("--salvage-tail, --salvage-base and --etcd-version require --from-data-dir")
	case len(s.dirs) > 0 && (f.target.File != "" || f.target.Backup != "" || f.newestBackup):
		return usagef("--from-data-dir with a backup or --from-file: use one of them")
	}
	return s.check()
}

// check returns an error for malformed flags.
func (s *salvageFlags) check() error {
	switch {
	case s.base != "" && !slices.Contains(s.dirs, s.base):
		return usagef("--salvage-base %s: name one of --from-data-dir: %s", s.base, strings.Join(s.dirs, ", "))
	case s.tail != "auto" && s.tail != string(plan.TailAll):
		return usagef("--salvage-tail %s: use auto or all", s.tail)
	case s.version != "" && !fullVersion.MatchString(s.version):
		return usagef("--etcd-version %s: use a form like 3.5.12", s.version)
	}
	return nil
}

// survey reads the disks into f.target.
func (a *app) survey(ctx context.Context, f *restoreFlags, c catalog.Catalog) error {
	var report storage.Report // nil, to print only the plan, with --dry-run and --plan-out
	done := func() {}
	if !f.dryRun && f.planOut == "" {
		report, done = a.progress()
	}
	disks, err := f.salvage.survey(ctx, c, report)
	done()
	f.target.Disks = disks
	return err
}

// survey reads the disks. It returns them for a plan, with the use that the flags require.
func (f *salvageFlags) survey(ctx context.Context, c catalog.Catalog, report storage.Report) (*plan.Disks, error) {
	found, err := salvage.Survey(ctx, c, f.dirs, report)
	if errors.Is(err, salvage.ErrNoMember) {
		return nil, usagef("--from-data-dir: %w", err)
	}
	if err != nil {
		return nil, err
	}
	disks := &plan.Disks{Found: found, Base: f.base, Version: f.version}
	if f.tail == string(plan.TailAll) {
		disks.Tail = plan.TailAll
	}
	return disks, nil
}

// planSalvage returns names and values of the lines about the content of each disk and its use.
func planSalvage(p plan.Plan) (pairs []string) {
	s := p.Salvage
	if s == nil {
		return nil
	}
	for _, d := range s.Disks {
		pairs = append(pairs, "disk", diskWords(d))
	}
	if s.Disagreement != "" {
		pairs = append(pairs, "disagree", s.Disagreement)
	}
	if s.Log == nil {
		return append(pairs, "left out", partWords(s.LeftOut))
	}
	l, end := s.Log, fmt.Sprintf("position %d", s.Log.UpTo)
	if l.Revision > 0 {
		end = fmt.Sprintf("revision %d", l.Revision)
	}
	return append(pairs,
		"replays", fmt.Sprintf("the log in %s, from position %d on", l.Dir, l.After.Position+1), "up to", end,
		"certain", partWords(l.Certain), "probable", partWords(l.Probable), "left out", partWords(s.LeftOut))
}

func diskWords(d plan.DiskSummary) string {
	member := "a member that it does not name"
	if d.Member != "" {
		member = "member " + strings.TrimSpace(d.Name+" "+d.Member)
	}
	db, log := "no database", "no log"
	if d.Database > 0 {
		db = fmt.Sprintf("database at position %d, revision %d", d.Database, d.Revision)
	}
	if d.Last > 0 {
		log = fmt.Sprintf("log %d to %d, committed to %d", d.First, d.Last, d.Commit)
	}
	return fmt.Sprintf("%s: %s, %s, %s", d.Dir, member, db, log)
}

// partWords returns "" for an empty part, so that it has no line.
func partWords(p plan.Part) string {
	if p.Positions == 0 {
		return ""
	}
	return fmt.Sprintf("%s requests in %s positions", humanize.Comma(int64(p.Requests)), humanize.Comma(int64(p.Positions)))
}

func salvagedWords(s *restore.Salvaged) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("from %s, up to position %d, revision %d: %s requests of the log that were certainly committed, %s probably",
		strings.Join(s.Disks, ", "), s.Position, s.Revision, humanize.Comma(int64(s.Certain)), humanize.Comma(int64(s.Probable)))
}
