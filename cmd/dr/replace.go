package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// replaceFlags holds the flags of restores that replace live data, and of undoing and cleaning up these restores.
type replaceFlags struct {
	replace bool
	undo    string // ID of a --replace or an --into; "": not given
	clean   string // likewise
}

func (f *replaceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.replace, "replace", false, "with --data-dir: build next to the member's existing data, then exchange both; the old data is kept")
	flags.StringVar(&f.undo, "undo", "", "ID of a --replace or --into: put the old data back")
	flags.StringVar(&f.clean, "clean", "", "ID of a --replace or --into: remove for good the data that is not in use, which is the old data unless it was undone")
	cmd.MarkFlagsMutuallyExclusive("replace", "undo", "clean")
}

// checkReplace returns an error for flags that --replace lacks, or that cannot be combined with it.
func (f *restoreFlags) checkReplace() error {
	switch {
	case f.swap.replace && f.layout.Into.DataDir == "":
		return usagef("--replace replaces one member's data: name its directory with --data-dir")
	case f.swap.replace && f.planOut != "":
		return usagef("--plan-out only writes a plan: leave --replace out, and pass it with --plan")
	}
	return nil
}

// undoOrClean runs --undo or --clean.
func (a *app) undoOrClean(cmd *cobra.Command, f *restoreFlags, args []string) error {
	name, id := "undo", f.swap.undo
	if id == "" {
		name, id = "clean", f.swap.clean
	}
	accepted := []string{name, "data-dir", "wal-dir", "output", "write-out"}
	other := append(given(cmd, func(name string) bool { return !slices.Contains(accepted, name) }), args...)
	if len(other) > 0 {
		return usagef("%s: omit it: use dr restore --%s %s --data-dir DIR", strings.Join(other, ", "), name, id)
	}
	if f.layout.Into.DataDir == "" {
		return usagef("--%s %s: name the data dir with --data-dir", name, id)
	}
	if name == "clean" {
		return a.cleanSwap(id, f.layout.Into)
	}
	s, err := swap.Load(id, f.layout.Into.DataDir, f.layout.Into.WALDir)
	if err != nil {
		return err
	}
	err = s.Undo()
	if err != nil {
		return err
	}
	return a.printSwap(s)
}

func (a *app) cleanSwap(id string, in plan.Into) error {
	err := swap.Clean(id, in.DataDir, in.WALDir)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(document.Line{Result: document.Swap{ID: id, State: "removed", DataDir: in.DataDir}})
	}
	a.printf("removed the data of restore %s that was not in use; %s is unchanged\n", id, in.DataDir)
	return nil
}

// runner calls run with a plan and, after each obstacle, with the next plan. It returns the last plan and its result.
type runner func(run func(context.Context, plan.Plan) (restore.Result, error)) (plan.Plan, restore.Result, error)

// replace builds the new data next to the live data, unless an earlier command built it, and exchanges the two.
func (a *app) replace(ctx context.Context, planned plan.Plan, keys seal.Keys, runTarget runner) error {
	report, done := a.progress()
	s, err := swap.Choose(planned, report)
	if err == nil && !s.IsStaged() {
		err = s.Check(ctx, planned)
		if err == nil {
			_, _, err = runTarget(func(ctx context.Context, p plan.Plan) (restore.Result, error) {
				return s.Stage(p, func(staged plan.Plan) (restore.Result, error) { return a.spawn(ctx, staged, keys, report) })
			})
		}
	}
	if err == nil {
		err = s.Switch(ctx, report)
	}
	done()
	if err != nil {
		return err
	}
	return a.printReplaced(s)
}

// checkShared refuses to replace one of several members by a plan that other hosts do not share. While the old cluster runs, each host
// would derive a different token, and the members would form no cluster.
func (f *restoreFlags) checkShared(planned plan.Plan) error {
	if f.planIn != "" || len(planned.Members) == 1 {
		return nil
	}
	return usagef("--replace of one of %d members: all hosts need the same plan: write it with --plan-out plan.json, copy it, "+
		"and run dr restore --replace --plan plan.json --name %s --data-dir %s", len(planned.Members), planned.Into.Name, planned.Into.DataDir)
}

// printReplacePlan runs the checks of a --replace, and prints its plan.
func (a *app) printReplacePlan(ctx context.Context, planned plan.Plan) error {
	// Only a real run creates an ID: zeros take its place.
	s, err := swap.New(strings.Repeat("0", 8), planned.Into.DataDir, planned.Into.WALDir)
	if err != nil {
		return err
	}
	err = s.Check(ctx, planned)
	if err != nil {
		return err
	}
	view, err := s.Look()
	if err != nil {
		return err
	}
	into := fmt.Sprintf("%s, member %s; the old data moves to %s, where %s is the restore's id",
		s.DataDir, planned.Into.Name, strings.Join(s.OldData(), " and "), s.ID)
	if view.Running {
		into += "; etcd runs there: it must be stopped after the new data is built"
	}
	return a.printPlan(planned, into)
}

func (a *app) printReplaced(s *swap.Swap) error {
	r, err := s.Record()
	if err != nil {
		return err
	}
	d, err := swapDocument(s)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(document.Line{Result: document.Replaced{Restore: convert.Restore(*r.Result), Replaced: d}})
	}
	err = a.printRestore(r.Plan, *r.Result)
	if err != nil {
		return err
	}
	a.printf("\nreplaced the data of %s by restore %s\n", s.DataDir, s.ID)
	a.facts(
		"old data", strings.Join(d.Aside, " and "),
		"to go back", "stop etcd, then run "+shellescape.QuoteCommand(d.Undo),
		"to remove it", "once the cluster is proven, run "+shellescape.QuoteCommand(d.Clean),
	)
	return nil
}

// printSwap prints the outcome of an undo.
func (a *app) printSwap(s *swap.Swap) error {
	d, err := swapDocument(s)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	a.printf("the old data is in %s again\n", s.DataDir)
	a.facts("restored data", strings.Join(d.Aside, " and "), "to remove it", shellescape.QuoteCommand(d.Clean))
	return nil
}

// swapDocument describes the state of s on the disk.
func swapDocument(s *swap.Swap) (document.Swap, error) {
	view, err := s.Look()
	if err != nil {
		return document.Swap{}, err
	}
	d := document.Swap{
		ID: s.ID, State: string(view.State), DataDir: s.DataDir, WALDir: s.WALDir, Aside: s.Aside(view.State),
		Clean: s.CleanCommand(),
	}
	if view.State == swap.Placed {
		d.Undo = s.UndoCommand()
	}
	return d, nil
}
