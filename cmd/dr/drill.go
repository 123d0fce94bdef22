package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// asNotRun returns the error of a drill that could not run because of err. It hides the kind of err unless that is a refusal: a missing
// key on the drill's host must not look like a damaged backup.
func asNotRun(err error) error {
	if fault.KindOf(err) == fault.Refused {
		return fmt.Errorf("the drill was not run: %w", err)
	}
	return fmt.Errorf("the drill was not run: %v", err)
}

// drillFlags holds the flags of dr drill.
type drillFlags struct {
	to         string
	revision   int64 // the value of --to-revision
	lineage    string
	seed       uint64
	assertions []string
	dir        string
	limits     limitFlags
	keys       keyFlags
	plain      plainFlags
}

func (a *app) drill() *cobra.Command {
	f := &drillFlags{}
	cmd := &cobra.Command{
		Use:   "drill [ID|latest]",
		Short: "Restore into a temporary server, measure the time, and store the result",
		Long: `drill restores the newest backup and, if there is a log, a random point of the newest recovery window; or the point given
by --to, --to-revision or an ID. It downloads, checks, replays and boots each in a scratch directory, compares it with the
HashKV that the members reported, checks --assert, measures the time, and removes the copy. It contacts no cluster, so it runs
on any host with access to the repository. It needs the identity that opens the backups, and disk space for a copy.

It appends a proof to the backup that each restore began with: passed, failed, or not run. Damage that a restore would avoid,
such as a damaged segment, fails the drill. The exit code is 0 only if all passed, 3 if one failed, and 1 if one could not run,
for example without the right key.`,
		Example: `  dr drill --identity key.txt
  dr drill --identity key.txt --assert key=/registry/namespaces/default --assert prefix=/registry/pods/:100
  dr drill --identity key.txt --to "2h ago" --nice 19 --memory-limit 2GiB`,
		Args: atMostOne("backup"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "",
		"latest, a time (2026-11-21T10:00:00Z) or how long ago (\"2h ago\"): the last state that is known to be no later than that")
	flags.Int64Var(&f.revision, "to-revision", 0, "the state right after the request that created this revision")
	flags.StringVar(&f.lineage, "lineage", "",
		"with --to or --to-revision: the history of that point (default: the newest that has it)")
	flags.Uint64Var(&f.seed, "seed", 0,
		"seed of the random point; the same seed selects the same point of the same window (default: random)")
	flags.StringArrayVar(&f.assertions, "assert", nil,
		"what the server must contain: key=KEY, or prefix=PREFIX:N for at least N keys; may be given several times")
	flags.StringVar(&f.dir, "scratch-dir", "", "directory for the scratch copies (default: the system's temporary directory)")
	f.limits.add(cmd)
	f.keys.add(cmd, a.getenv)
	f.plain.add(cmd)
	a.readFlags(cmd)
	a.store.signFlags(cmd, a.getenv)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.runDrill(cmd, f, args) }
	return cmd
}

func (a *app) runDrill(cmd *cobra.Command, f *drillFlags, args []string) error {
	request, err := f.request(cmd, args, time.Now())
	if err != nil {
		return err
	}
	keys, err := f.keys.load()
	if err != nil {
		return err
	}
	c, err := a.open(cmd.Context())
	if err != nil {
		return err
	}
	request.Source, err = a.source(a.cluster, keys)
	if err != nil {
		return err
	}
	a.warnUnsigned()
	report, done := a.progress()
	proofs, err := verify.Drill(cmd.Context(), c, request, report)
	done()
	if len(proofs) == 0 {
		return err
	}
	doc := document.NewDrill(a.cluster, request.Seed, proofs, err)
	notRun := func(p catalog.Proof) bool { return p.Verdict == catalog.NotRun }
	if doc.Verdict == catalog.NotRun && slices.ContainsFunc(proofs, notRun) {
		err = asNotRun(err)
	}
	return errors.Join(a.printDrill(doc), err)
}

// request returns the drill that the flags describe. It reads nothing from the repository.
func (f *drillFlags) request(cmd *cobra.Command, args []string, now time.Time) (r verify.DrillRequest, err error) {
	r.Dir, r.By, r.Seed, r.Now, r.Plain = f.dir, author(), f.seed, now, f.plain.mode(f.keys)
	if !cmd.Flags().Changed("seed") {
		r.Seed = uint64(rand.Uint32()) // short enough to be typed again
	}
	r.Limits, err = f.limits.load()
	if err != nil {
		return r, err
	}
	for _, text := range f.assertions {
		parsed, err := assertion.Parse(text)
		if err != nil {
			return r, usagef("--assert %w", err)
		}
		r.Assertions = append(r.Assertions, parsed)
	}
	r.BackupOnly = len(args) > 0 && args[0] == "latest"
	r.Targets, err = f.targets(cmd, args, now)
	if r.BackupOnly && len(r.Targets) > 0 {
		return r, usagef("latest with --to or --to-revision: use one of them")
	}
	return r, err
}

// targets returns the points that the flags and arguments name. Without any, the drill selects its own.
func (f *drillFlags) targets(cmd *cobra.Command, args []string, now time.Time) (targets []plan.Target, err error) {
	if cmd.Flags().Changed("to") {
		t := plan.Target{Lineage: f.lineage}
		if f.to != "latest" {
			t.Time, err = when.Parse(f.to, now)
			if err != nil {
				return nil, usagef("--to: %w", err)
			}
		}
		targets = append(targets, t)
	}
	if cmd.Flags().Changed("to-revision") {
		if f.revision < 1 {
			return nil, usagef("--to-revision must be at least 1")
		}
		targets = append(targets, plan.Target{Lineage: f.lineage, Revision: f.revision})
	}
	if f.lineage != "" && len(targets) == 0 {
		return nil, usagef("--lineage requires --to or --to-revision")
	}
	id, err := parseID(args)
	if id != "" {
		targets = append(targets, plan.Target{Backup: id})
	}
	return targets, err
}

// limitFlags bound a child's memory and CPU, for hosts with other work.
type limitFlags struct {
	memory string // "": no limit
	nice   int    // 0: unchanged
}

func (f *limitFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.memory, "memory-limit", "",
		"soft memory limit, such as 2GiB; as with GOMEMLIMIT, mapped files do not count (default: no limit)")
	cmd.Flags().IntVar(&f.nice, "nice", 0, "niceness of the process that restores and boots, 0 to 19")
}

func (f *limitFlags) load() (l child.Limits, err error) {
	if f.nice < 0 || f.nice > 19 {
		return l, usagef("--nice must be from 0 to 19")
	}
	l.Nice = f.nice
	if f.memory == "" {
		return l, nil
	}
	limit, err := humanize.ParseBytes(f.memory)
	if err != nil || limit < minMemory {
		return l, usagef("--memory-limit %s: use a form like 2GiB, at least %s", f.memory, size(minMemory))
	}
	l.Memory = int64(limit)
	return l, nil
}

const minMemory = 64 << 20 // bytes: below it a server only collects garbage

func (a *app) printDrill(d document.Drill) error {
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	var rows [][]string
	for _, p := range d.Proofs {
		rto := "-"
		if p.Drill.RTO > 0 {
			rto = seconds(p.Drill.RTO)
		}
		rows = append(rows, []string{
			string(p.Backup), p.Drill.Target, fmt.Sprint(p.Drill.Requests), string(p.Verdict), rto, verifyText(p),
		})
	}
	a.table([]string{"BACKUP", "RESTORED", "REPLAYED", "VERDICT", "RTO", "FINDING"}, rows)
	for _, p := range d.Proofs {
		for _, assertion := range p.Drill.Assertions {
			a.printf("%s %s: %s, found %d\n", p.Backup, assertion.Text, heldText(assertion), assertion.Found)
		}
	}
	return nil
}

func heldText(a catalog.Assertion) string {
	if a.Held {
		return "holds"
	}
	return "does not hold"
}
