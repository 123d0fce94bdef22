package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/member"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
)

// memberFlags holds the flags of dr member.
type memberFlags struct {
	restore string
	place   plan.Into
	plan    string
	report  string
	keys    keyFlags
	plain   plainFlags
}

// member returns the hidden verb that carries out a task of a restore on one member's disk. Jobs in Kubernetes start it.
func (a *app) member() *cobra.Command {
	f := &memberFlags{}
	cmd := &cobra.Command{
		Use:    "member TASK",
		Hidden: true,
		Short:  "Carry out a task of a restore on the disk of one member",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("expected one task, got %d: use dr member TASK", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runMember(cmd.Context(), f, handoff.Task(args[0]))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.restore, "restore", "", "id of the restore: 16 hex digits")
	flags.StringVar(&f.place.Name, "name", "", "the member's name")
	flags.StringVar(&f.place.DataDir, "data-dir", "", "the member's data dir")
	flags.StringVar(&f.place.WALDir, "wal-dir", "", "directory of the member's log (default: member/wal in the data dir)")
	flags.StringVar(&f.plan, "plan", "", "of stage: file with the plan (-: stdin)")
	flags.StringVar(&f.report, "report", "", "write the outcome to this file too, which is not replaced, such as /dev/termination-log")
	f.keys.add(cmd, a.getenv)
	f.plain.add(cmd)
	a.readFlags(cmd)
	a.store.transferFlags(cmd)
	return cmd
}

func (a *app) runMember(ctx context.Context, f *memberFlags, task handoff.Task) error {
	err := f.writeReport(nil) // before the task: its outcome must not be lost
	if err != nil {
		return err
	}
	events, done := a.progress()
	report := a.memberReport(ctx, f, task, events)
	done()
	encoded := report.Encode()
	a.printf("%s\n", encoded)
	return errors.Join(report.Err(), f.writeReport(encoded))
}

func (f *memberFlags) writeReport(encoded []byte) error {
	if f.report == "" {
		return nil
	}
	err := os.WriteFile(f.report, encoded, 0o600)
	if err != nil {
		return usagef("--report: %w", err)
	}
	return nil
}

// memberReport carries out a task, and returns its outcome.
func (a *app) memberReport(ctx context.Context, f *memberFlags, task handoff.Task, events storage.Report) handoff.Report {
	w := member.Work{Task: task, Restore: f.restore, Place: f.place}
	err := a.addPlan(f, &w, events)
	if err != nil {
		return handoff.ReportOf(err)
	}
	return member.Do(ctx, w)
}

// addPlan adds the plan that the flags name, if they name one, and the access to its data.
func (a *app) addPlan(f *memberFlags, w *member.Work, events storage.Report) error {
	if f.plan == "" {
		return nil
	}
	planned, err := a.decodePlan(f.plan)
	if err != nil {
		return err
	}
	if f.plain.mode(f.keys) != plan.PlainTaken {
		err := planned.RefusePlain()
		if err != nil {
			return err
		}
	}
	keys, err := f.keys.load()
	if err != nil {
		return err
	}
	w.Plan = &planned
	w.Run = func(ctx context.Context, p plan.Plan) (restore.Result, error) { return a.spawn(ctx, p, keys, events) }
	return nil
}
