package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// restoreFlags holds the flags of dr restore.
type restoreFlags struct {
	target         plan.Target
	layout         plan.Layout
	initialCluster string
	freshToken     bool
	planIn         string
	planOut        string
	to             string
	before         int64 // the value of --before-revision; 0: not given
	newestBackup   bool  // the argument is latest
	dryRun         bool
	markCompacted  bool
	salvage        salvageFlags
	swap           replaceFlags
	into           intoFlags
	keys           keyFlags
	plain          plainFlags
}

func (a *app) restore() *cobra.Command {
	f := &restoreFlags{}
	cmd := &cobra.Command{
		SuggestFor: []string{"snapshot"}, // etcdctl's and etcdutl's word
		Use:        "restore [ID|latest]",
		Short:      "Rebuild the members' data dirs as of any revision or second",
		Long: `restore rebuilds the data dirs of a new cluster: of all members (--output-dir, one directory per member), or of one (--name
and --data-dir). By default it restores the newest point in backups and log (dr archive). --to and --to-revision select
an earlier point; a backup's ID selects that backup alone; --from-file restores a plain snapshot.

It writes the data dirs only after everything has been downloaded, decrypted and checked: every page, and the HashKV that the
members reported. It refuses while a member of the old cluster responds, and never writes to a directory that is not empty.

--replace restores one member over its existing data: the new data is built next to it, even while etcd is running. Stop etcd and run
the same command again: the new data takes the place of the old, which is kept. --undo puts the old data back, --clean removes it.

--into stops the members too, and starts them again: with statefulset/NAME all members of a StatefulSet in Kubernetes, by Jobs on their
volumes; with systemd, systemd/UNIT, kubeadm or command the member on this host, so run it on each host with the same --plan. If it is
interrupted, the same command continues. It prints the commands with --undo and --clean.

If there is no backup, or to continue past the end of the stored log, --from-data-dir reads the disks of stopped members. It
does not change them.

If the target cannot be reached, the error names the nearest point that can; --best restores that one.

For a cluster on several hosts, run the same command on each host with its own --name and --data-dir before you start any
member; all must print the same token. Or use one plan: write it with --plan-out, copy it, and run --plan with --name and
--data-dir on each host.`,
		Example: `  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --output-dir /restored --dry-run
  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --output-dir /restored
  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --output-dir /restored --to "2h ago"
  dr restore --from-data-dir /mnt/a/etcd,/mnt/b/etcd --output-dir /restored
  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --replace --data-dir /var/lib/etcd
  dr restore --repo s3://backups/etcd --cluster prod --into statefulset/etcd -n payments --confirm etcd \
    --job-image registry.example.com/etcd-dr:v1.2.3 --credentials-secret backups-s3 --identity-secret backups-identity
  dr restore --repo s3://backups/etcd --identity key.txt --plan plan.json --into systemd --confirm etcd
  dr restore --from-file snapshot.db --initial-cluster infra0=https://10.0.0.1:2380 --name infra0 --data-dir /var/lib/etcd`,
		Args: atMostOne("backup"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "latest", "latest, a time (2026-11-21T10:00:00Z) or how long ago (\"2h ago\"): the last state that is known to be no later than that")
	flags.Int64Var(&f.target.Revision, "to-revision", 0, "the state right after the request that created this revision")
	flags.Int64Var(&f.before, "before-revision", 0, "the state right before the request that created this revision, such as a delete")
	flags.StringVar(&f.target.Lineage, "lineage", "", "lineage to restore from, if several contain the revision (default: the newest)")
	flags.BoolVar(&f.target.Best, "best", false, "if the point cannot be reached, restore the nearest one before it")
	flags.StringVar(&f.target.File, "from-file", "", "restore this plain snapshot.db instead of a backup")
	flags.BoolVar(&f.target.SkipHashCheck, "skip-hash-check", false, "accept a file without the digest at its end, such as a copy of member/snap/db")
	flags.StringVar(&f.layout.Into.OutputDir, "output-dir", "", "restore all members into this directory, one directory each")
	flags.StringVar(&f.layout.Into.Name, "name", "", "restore only this member (may be omitted if the cluster has one)")
	flags.StringVar(&f.layout.Into.DataDir, "data-dir", "", "data dir of the member to restore")
	flags.StringVar(&f.layout.Into.WALDir, "wal-dir", "", "with --data-dir: directory of the member's log (default: member/wal in the data dir)")
	flags.StringVar(&f.initialCluster, "initial-cluster", "", "members of the new cluster, name=peerURL,… (default: those of the backup)")
	flags.StringSliceVar(&f.layout.OwnURLs, "initial-advertise-peer-urls", nil, "peer URLs of the --name member, checked against --initial-cluster")
	flags.StringVar(&f.layout.Token, "initial-cluster-token", "", "token of the new cluster (default: random; with --name derived from the plan, so that all hosts agree)")
	flags.BoolVar(&f.freshToken, "fresh-token", false, "with --name: a unique token, for a cluster of this one member")
	flags.StringVar(&f.layout.Bump, "bump-revision", "auto", "how far to advance the revision, so that caches notice the restore: auto (for Kubernetes, far above every known one), N above the restored one, or 0 for none")
	flags.BoolVar(&f.markCompacted, "mark-compacted", false, "accepted for compatibility with etcdutl; needs --bump-revision N, which always does this")
	flags.BoolVar(&f.layout.KeepAlarms, "keep-alarms", false, "keep the alarms of the backup")
	flags.BoolVar(&f.layout.AllowCorrupt, "allow-corrupt", false, "restore even if the backup has the alarm CORRUPT")
	flags.BoolVar(&f.layout.OldIsDead, "old-is-dead", false, "restore even if the old members respond")
	flags.StringVar(&f.planOut, "plan-out", "", "write the plan to this file and stop")
	flags.StringVar(&f.planIn, "plan", "", "run the plan in this file (-: stdin)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan and stop")
	cmd.MarkFlagsMutuallyExclusive("initial-cluster-token", "fresh-token")
	f.swap.add(cmd)
	f.into.add(cmd)
	a.store.signFlags(cmd, a.getenv)
	f.salvage.add(cmd)
	f.keys.add(cmd, a.getenv)
	f.plain.add(cmd)
	a.readFlags(cmd)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.runRestore(cmd, f, args)
	}
	return cmd
}

func (a *app) runRestore(cmd *cobra.Command, f *restoreFlags, args []string) error {
	err := absolute(f.paths())
	if err != nil {
		return err
	}
	if f.planIn == "" || f.into.into != "" {
		err = f.checkInto(cmd)
	}
	if err != nil {
		return err
	}
	if f.into.isNode() {
		return a.restoreNode(cmd, f, args)
	}
	if f.into.into != "" {
		return a.restoreInto(cmd, f, args)
	}
	if f.swap.undo != "" || f.swap.clean != "" {
		return a.undoOrClean(cmd, f, args)
	}
	err = f.checkReplace()
	if err != nil {
		return err
	}
	if f.planIn != "" {
		planned, err := a.readPlan(cmd, f, args)
		if err != nil {
			return err
		}
		return a.outputOrRun(cmd, f, planned)
	}
	request, planned, err := a.request(cmd, f, args)
	if err != nil {
		return err
	}
	if f.dryRun || f.planOut != "" {
		planned, err = plan.New(request.Catalog, request.Target, request.Layout, request.Now) // again, with the live revision
		if err != nil {
			return err
		}
		return a.outputOrRun(cmd, f, planned)
	}
	keys, err := f.keys.load()
	if err != nil {
		return err
	}
	runTarget := func(run func(context.Context, plan.Plan) (restore.Result, error)) (plan.Plan, restore.Result, error) {
		return restore.RunTarget(cmd.Context(), restore.Attempt{Request: request, Unfold: a.unfold, Run: run})
	}
	if f.swap.replace {
		err := f.checkShared(planned)
		if err != nil {
			return err
		}
		return a.replace(cmd.Context(), planned, keys, runTarget)
	}
	report, done := a.progress()
	planned, result, err := runTarget(func(ctx context.Context, p plan.Plan) (restore.Result, error) {
		return a.spawn(ctx, p, keys, report)
	})
	done()
	if err != nil {
		return err
	}
	return a.printNew(planned, result)
}

// request returns the request for the target that the flags select, and a plan that was made without the live revision.
func (a *app) request(cmd *cobra.Command, f *restoreFlags, args []string) (r plan.Request, planned plan.Plan, err error) {
	cat, err := a.readTarget(cmd, f, args)
	if err != nil {
		return r, planned, err
	}
	r = plan.Request{Catalog: cat, Target: f.target, Layout: f.layout, Now: time.Now()}
	planned, err = plan.New(r.Catalog, r.Target, r.Layout, r.Now)
	if err != nil {
		return r, planned, err
	}
	r.Layout.Known = restore.LiveRevision(cmd.Context(), planned) // known only after planning, which selects the servers to ask
	return r, planned, nil
}

// outputOrRun writes the plan to a file, prints it, or runs it, as the flags require.
func (a *app) outputOrRun(cmd *cobra.Command, f *restoreFlags, planned plan.Plan) error {
	if f.plain.mode(f.keys) != plan.PlainTaken { // the plan may have been made without a key
		err := planned.RefusePlain()
		if err != nil {
			return err
		}
	}
	if f.planOut != "" {
		return a.writePlan(planned, f.planOut)
	}
	if f.dryRun && f.swap.replace {
		err := f.checkShared(planned)
		if err != nil {
			return err
		}
		return a.printReplacePlan(cmd.Context(), planned)
	}
	if f.dryRun {
		return a.printPlan(planned, planInto(planned))
	}
	keys, err := f.keys.load()
	if err != nil {
		return err
	}
	if f.swap.replace {
		return a.replace(cmd.Context(), planned, keys, func(run func(context.Context, plan.Plan) (restore.Result, error)) (plan.Plan, restore.Result, error) {
			result, err := run(cmd.Context(), planned)
			return planned, result, err
		})
	}
	report, done := a.progress()
	result, err := a.spawn(cmd.Context(), planned, keys, report)
	done()
	if err != nil {
		return err
	}
	return a.printNew(planned, result)
}

// sourceOf returns the location from which the child restores p. A plan without a backup, such as that of a file, needs no repository,
// even if the flags name one.
func (a *app) sourceOf(p plan.Plan, keys seal.Keys) (child.Source, error) {
	if p.Backup == nil {
		return child.Source{}, nil
	}
	return a.source(p.Cluster, keys)
}

// spawn runs a plan in a child.
func (a *app) spawn(ctx context.Context, p plan.Plan, keys seal.Keys, report storage.Report) (restore.Result, error) {
	source, err := a.sourceOf(p, keys)
	if err != nil {
		return restore.Result{}, err
	}
	return restore.Spawn(ctx, p, source, report)
}

// readTarget sets f.target and f.layout from the command line, and returns the catalog in which to plan the target.
func (a *app) readTarget(cmd *cobra.Command, f *restoreFlags, args []string) (catalog.Catalog, error) {
	err := f.setTarget(cmd, args, time.Now())
	if err != nil {
		return catalog.Catalog{}, err
	}
	f.target.Plain = f.plain.mode(f.keys)
	if f.markCompacted && !isPositive(f.layout.Bump) {
		return catalog.Catalog{}, usagef("--mark-compacted requires --bump-revision N: without a bump no revision is marked as compacted")
	}
	if f.initialCluster != "" {
		var err error
		f.layout.Members, err = plan.ParseMembers(f.initialCluster)
		if err != nil {
			return catalog.Catalog{}, err
		}
	}
	err = f.checkSalvage(cmd)
	if err != nil {
		return catalog.Catalog{}, err
	}
	if f.freshToken || f.layout.Into.Name == "" { // one run or one plan restores all members: no other host has to derive the same token
		f.layout.Salt = rand.Text()
	}
	cat, err := a.catalog(cmd, f)
	if err == nil && len(f.salvage.dirs) > 0 {
		err = a.survey(cmd.Context(), f, cat)
	}
	if err != nil {
		return catalog.Catalog{}, err
	}
	return restore.Detail(cmd.Context(), plan.Request{Catalog: cat, Target: f.target}, a.unfold)
}

func isPositive(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && n > 0
}

// setTarget sets the target from the flags and arguments, at most one of which may name it. The argument latest selects the newest
// backup, without the log.
func (f *restoreFlags) setTarget(cmd *cobra.Command, args []string, now time.Time) error {
	var given []string
	for _, name := range []string{"to", "to-revision", "before-revision", "from-file"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(args) > 0 {
		given = append(given, args[0])
	}
	if len(given) > 1 {
		return usagef("%s: use only one", strings.Join(given, ", "))
	}
	id, err := parseID(args)
	if err != nil {
		return err
	}
	f.target.Backup, f.newestBackup = id, len(args) > 0 && id == ""
	if f.target.Revision < 0 || f.before < 0 || cmd.Flags().Changed("to-revision") && f.target.Revision == 0 ||
		cmd.Flags().Changed("before-revision") && f.before < 2 {
		return usagef("--to-revision must be at least 1, --before-revision at least 2")
	}
	if f.before > 0 {
		f.target.Revision = f.before - 1
	}
	if f.to != "latest" {
		f.target.Time, err = when.Parse(f.to, now)
		if err != nil {
			return usagef("--to: %w", err)
		}
	}
	return nil
}

// paths returns the flags with paths.
func (f *restoreFlags) paths() []*string {
	return append(f.salvage.paths(), &f.layout.Into.OutputDir, &f.layout.Into.DataDir, &f.layout.Into.WALDir, &f.target.File)
}

// absolute makes paths absolute, except empty ones: the child and readers of a plan have other working directories.
func absolute(paths []*string) (err error) {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		*path, err = filepath.Abs(*path)
		if err != nil {
			return err
		}
	}
	return nil
}

// catalog returns the catalog in which to plan the target: an empty one for a file, and for disks without a repository. It also
// sets the file's digest, and the newest backup for the argument latest.
func (a *app) catalog(cmd *cobra.Command, f *restoreFlags) (catalog.Catalog, error) {
	if f.target.File != "" {
		var err error
		f.target.FileDigest, err = restore.FileDigest(f.target.File, f.target.SkipHashCheck)
		if err != nil {
			return catalog.Catalog{}, usagef("--from-file: %w", err)
		}
		return catalog.Catalog{Cluster: a.cluster}, nil
	}
	if len(f.salvage.dirs) > 0 && a.repo == "" {
		return catalog.Catalog{Cluster: a.cluster}, nil
	}
	// Load all backups even if the target names one: the plan notes how this backup differs from earlier ones.
	cat, err := a.load(cmd.Context(), backups.LoadOptions{
		Imported: true, Proofs: true, Log: true, Details: len(f.salvage.dirs) > 0, Copies: records.SignedCopies,
	})
	if err != nil || !f.newestBackup {
		return cat, err
	}
	err = plan.CheckAmbiguous(cat)
	if err != nil {
		return cat, err
	}
	newest, err := cat.Latest()
	f.target.Backup = newest.ID
	return cat, err
}

func (a *app) printRestore(p plan.Plan, r restore.Result) error {
	if a.output == "json" {
		return a.json(document.Line{Result: convert.Restore(r)})
	}
	a.printf("restored %s\n", planSource(p))
	var took float64
	var phases []string
	for _, phase := range r.Phases {
		took += phase.Seconds
		phases = append(phases, fmt.Sprintf("%s %.1f", phase.Stage, phase.Seconds))
	}
	bumped := ""
	if r.BumpedTo > 0 {
		bumped = fmt.Sprintf("; revisions continue from %d", r.BumpedTo)
	}
	facts := []string{
		"key space", fmt.Sprintf("%d keys at revision %d%s", r.Keys, r.Revision, bumped),
		"HashKV", r.HashKV,
		"log", replayedWords(r.Replayed),
		"salvaged", salvagedWords(r.Salvaged),
	}
	for _, note := range p.Notes {
		facts = append(facts, "note", note)
	}
	a.facts(append(facts,
		"new cluster", fmt.Sprintf("%s, token %s", r.ClusterID, r.Token),
		"cleared alarms", strings.Join(r.Cleared, ", "),
		"took", fmt.Sprintf("%s (%s)", seconds(took), strings.Join(phases, ", ")),
	)...)
	a.printf("start all members at once, each with its previous TLS flags:\n")
	for _, m := range r.Members {
		a.printf("\n  %s\n", shellLine(m.Command))
	}
	return nil
}

// shellLine returns a command quoted for a shell, with a line break before each flag.
func shellLine(command []string) string {
	var b strings.Builder
	for i, word := range command {
		switch {
		case i == 0:
		case strings.HasPrefix(word, "--"):
			b.WriteString(" \\\n    ")
		default:
			b.WriteString(" ")
		}
		b.WriteString(shellescape.Quote(word))
	}
	return b.String()
}
