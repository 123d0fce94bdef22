package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// inPlace is one run of dr restore --into.
type inPlace struct {
	*app
	flags  *restoreFlags
	orders handoff.Orders
	id     string         // of the restore
	name   string         // that a person repeats to confirm
	target string         // such as "StatefulSet payments/etcd"
	words  []string       // of the command line, which name the target
	stored handoff.Record // zero: the restore begins
	report storage.Report
}

// intoSet is one run of dr restore --into statefulset/NAME.
type intoSet struct {
	inPlace
	api     *statefulset.API
	options statefulset.Options
	order   statefulset.Order
}

// untilCleaned is how long the old data is kept: until --clean, because no process waits for another time.
const untilCleaned = 100 * 365 * 24 * time.Hour

// restoreInto restores into a StatefulSet, or carries out --undo or --clean there.
func (a *app) restoreInto(cmd *cobra.Command, f *restoreFlags, args []string) (err error) {
	r := &intoSet{inPlace: inPlace{app: a, flags: f, orders: handoff.Orders{DryRun: f.dryRun, Limit: f.into.limit, Keep: untilCleaned}}}
	load := r.findRecord
	if f.swap.undo == "" && f.swap.clean == "" {
		r.order, err = a.orderOf(cmd, f, args)
	} else {
		err = r.setEnd(cmd, args, undoFlagsOfSet())
		load = r.loadRecord
	}
	if err == nil {
		err = r.connect()
	}
	if err == nil {
		err = load(cmd.Context())
	}
	if err != nil {
		return err
	}
	restore, err := r.restore()
	if err != nil {
		return err
	}
	return r.run(cmd.Context(), restore)
}

// connect sets the access to the API server.
func (r *intoSet) connect() (err error) {
	r.api, err = statefulset.Connect(r.flags.into.access)
	if err != nil {
		return err
	}
	_, r.name, _ = strings.Cut(r.flags.into.into, "/")
	r.options.Name, r.options.Client, r.options.Namespace = r.name, r.api.Client, r.api.Namespace
	r.target = statefulset.New(r.options).String()
	r.words = []string{"--into", r.flags.into.into, "--namespace", r.options.Namespace}
	if r.flags.into.access.Kubeconfig != "" {
		r.words = append(r.words, "--kubeconfig", r.flags.into.access.Kubeconfig)
	}
	if r.flags.into.access.Context != "" {
		r.words = append(r.words, "--context", r.flags.into.access.Context)
	}
	return nil
}

// findRecord sets the id of the restore, and its record if an earlier run has begun it. A record that was deleted since is made again.
func (r *intoSet) findRecord(ctx context.Context) (err error) {
	r.id, err = statefulset.New(r.options).OrderID(ctx, r.order)
	r.options.ID = r.id
	if err != nil || r.orders.DryRun {
		return err
	}
	r.stored, err = statefulset.New(r.options).Load(ctx, r.options.ID)
	if errors.Is(err, fault.NotFound) {
		r.options.Into = r.order.Into
		r.stored, err = statefulset.New(r.options).Rebuild(ctx, r.order.Encode())
		return err
	}
	if err != nil {
		return err
	}
	r.order, err = statefulset.OrderOf(r.stored)
	if err != nil {
		return err
	}
	return r.refuseAgain()
}

// refuseAgain refuses to begin a restore that has ended.
func (r *inPlace) refuseAgain() error {
	if !hasEnded(r.stored) {
		return nil
	}
	return fmt.Errorf("%w: the same command has restored %s before (restore %s, %s): to restore again, remove the data that it keeps: run %s",
		fault.Refused, r.stored.Handoff.Manager, r.stored.ID, r.stored.Phase, shellescape.QuoteCommand(r.command("clean")))
}

// hasEnded reports whether nothing is left of a restore but data that is aside.
func hasEnded(r handoff.Record) bool { return r.Step == handoff.Keep || r.Step == handoff.Clean }

// command returns the command that goes back, or removes the data that is aside.
func (r *inPlace) command(flag string) []string {
	return slices.Concat([]string{"dr", "restore"}, r.words, []string{"--" + flag, r.id})
}

// run carries out the restore. If it begins, run prints the plan first.
func (r *inPlace) run(ctx context.Context, restore *inplace.Restore) error {
	if r.stored.ID == "" {
		err := r.preview(ctx, restore)
		if err != nil || r.orders.DryRun {
			return err
		}
	}
	report, done := r.progress()
	r.report = report
	record, err := restore.Run(ctx, r.stored, r.orders)
	done()
	if err != nil {
		return r.interrupted(record, err)
	}
	return r.printEnd(record)
}

// preview prints the plan of a restore that begins, and refuses to replace data without a confirmation.
func (r *inPlace) preview(ctx context.Context, restore *inplace.Restore) error {
	restore.DryRun = true // the plan is printed without a confirmation too
	h, p, err := restore.Preview(ctx)
	restore.DryRun = r.orders.DryRun
	if err != nil {
		return err
	}
	if r.output != "json" || r.orders.DryRun {
		err = r.printIntoPlan(p, h)
	}
	if err != nil || r.orders.DryRun {
		return err
	}
	return restore.RefuseUnconfirmed(h)
}

// restore returns the restore that the order describes.
func (r *intoSet) restore() (*inplace.Restore, error) {
	access, err := r.flags.into.members.Access(r.getenv, r.ask)
	if err != nil {
		return nil, err
	}
	if r.flags.into.forward {
		access.Dial = r.api.Dial
	}
	o := r.order
	r.options.Into, r.options.Jobs = o.Into, statefulset.Jobs{Image: o.Image, Repository: o.Repository, Memory: o.Memory}
	one := &inplace.Restore{
		ID: r.id, By: cmp.Or(o.By, inplace.Author("dr restore --into", r.id, r.target)), Name: r.name,
		Confirmed: r.flags.into.confirm != "" || r.orders.Back, DryRun: r.orders.DryRun, Clone: o.Clone, Reach: reach.Anywhere, Point: o.Point, Layout: o.Layout,
		Manage: func(backup []plan.Member) inplace.Target {
			described := r.options
			described.Backup = backup
			return statefulset.New(described)
		},
		Open:   r.open,
		Access: func(context.Context) (cluster.Config, error) { return access, nil },
		Warn:   r.warn,

		Settings: o.Encode(), Watch: r.watch(),
	}
	if r.stored.Plan != nil {
		one.Known = r.stored.Plan.Bump.Known // a later plan must not continue below it
	}
	return one, nil
}

func (r *inPlace) warn(_ inplace.Warning, text string) {
	r.report.Say(storage.Event{Stage: "claim", Level: storage.Warning, Message: text})
}

// watch returns a receiver of records, which reports each change of their phase and of the reason why they wait. Logs contain the phases,
// and now and then the reason: it changes with each Job and pod.
func (r *inPlace) watch() func(handoff.Record) {
	var last, noted storage.Event
	return func(record handoff.Record) {
		if r.orders.Back && record.Phase == handoff.Succeeded { // the next record begins the rollback
			return
		}
		e := storage.Event{Stage: strings.ToLower(string(record.Phase)), Message: phaseWords[record.Phase]}
		if record.Waiting != "" {
			e.Message += ": " + record.Waiting
		}
		switch {
		case e.Stage != noted.Stage:
			noted = e
			noted.Time = time.Now()
		case e.Message != noted.Message && time.Since(noted.Time) >= notePause:
			e.Level, e.Time = storage.Note, time.Now().UTC()
			noted = e
		case e == last:
			return
		}
		last = e
		r.report.Say(e)
	}
}

// notePause is the shortest time between two notes on a phase that waits.
const notePause = 30 * time.Second

var phaseWords = map[handoff.Phase]string{
	handoff.Pending:     "claiming the target",
	handoff.Planning:    "reading the target and the repository",
	handoff.Staging:     "building the new data next to the old; no member is stopped",
	handoff.Fencing:     "stopping all members",
	handoff.Sealing:     "moving the old data aside",
	handoff.Placing:     "moving the new data into its place",
	handoff.Releasing:   "starting all members",
	handoff.Verifying:   "comparing the members with the plan and with each other",
	handoff.RollingBack: "putting the old data back",
	handoff.Succeeded:   "removing the old data",
	handoff.Failed:      "removing the new data",
}

// interrupted returns the error of a restore that has not ended.
func (r *inPlace) interrupted(record handoff.Record, err error) error {
	if errors.Is(err, fault.Busy) {
		return fmt.Errorf("another command works on the same restore: wait for its end: %w", err)
	}
	remedy := "run the same command again to continue"
	if !r.orders.Back && !r.orders.Clean {
		remedy += ", or go back with " + shellescape.QuoteCommand(r.command("undo"))
	}
	return fmt.Errorf("restore %s of %s has not ended (phase %s): %w: %s", r.id, r.name, record.Phase, err, remedy)
}

// setEnd sets the id and the orders of --undo or --clean.
func (r *inPlace) setEnd(cmd *cobra.Command, args, accepted []string) error {
	f := r.flags
	r.id, r.orders.Back, r.orders.Clean = f.swap.undo+f.swap.clean, f.swap.undo != "", f.swap.clean != ""
	wrong := append(given(cmd, func(name string) bool { return !slices.Contains(accepted, name) }), args...)
	if len(wrong) > 0 {
		return usagef("%s: omit it: the record of restore %s has it", strings.Join(wrong, ", "), r.id)
	}
	return nil
}

// loadRecord loads the record of the restore that ends, and its order.
func (r *intoSet) loadRecord(ctx context.Context) (err error) {
	r.options.ID = r.id
	r.stored, err = statefulset.New(r.options).Load(ctx, r.id)
	if err != nil {
		return err
	}
	r.order, err = statefulset.New(r.options).OrderToEnd(ctx, r.stored)
	if err == nil {
		err = r.checkEnd()
	}
	if err != nil {
		return err
	}
	r.repo, r.cluster = r.order.URL, r.order.Repository.Cluster
	if len(r.store.trust) == 0 {
		r.store.trust = r.order.Repository.Trust
	}
	return nil
}

// checkEnd refuses --undo and --clean in a phase that does not allow it.
func (r *inPlace) checkEnd() error {
	switch {
	case r.orders.Back && r.stored.Step == handoff.Clean:
		return fmt.Errorf("%w: the data of restore %s that is aside is being removed: to complete that, run %s",
			fault.Refused, r.stored.ID, shellescape.QuoteCommand(r.command("clean")))
	case r.orders.Clean && !hasEnded(r.stored):
		return fmt.Errorf("%w: restore %s has not ended (phase %s): run its command again to continue it, or %s",
			fault.Refused, r.stored.ID, r.stored.Phase, shellescape.QuoteCommand(r.command("undo")))
	}
	return nil
}

// printIntoPlan prints the plan of a dry run.
func (r *inPlace) printIntoPlan(p plan.Plan, h handoff.Handoff) error {
	if r.output == "json" {
		return r.document(document.NewIntoPlan(r.id, p, h))
	}
	var disks []string
	for _, m := range h.Members {
		disks = append(disks, fmt.Sprintf("%s on %s", m.Name, m.Disk))
	}
	pairs := planFacts(p, fmt.Sprintf("%s: %s", h.Manager, strings.Join(disks, ", ")))
	for _, a := range h.Acts {
		pairs = append(pairs, "act", fmt.Sprintf("%s (%s)", a.Text, a.Verb))
	}
	for _, f := range h.Findings {
		pairs = append(pairs, "finding", f.String())
	}
	r.printf("plan %s of restore %s\n", p.ID, r.id)
	r.facts(pairs...)
	return nil
}

// printEnd prints the result of a restore that has ended, or returns its error.
func (r *inPlace) printEnd(record handoff.Record) error {
	err := inplace.Err(record, r.orders)
	if err != nil && !r.orders.Clean {
		if hasEnded(record) {
			err = fmt.Errorf("%w; the new data is kept: to restore again, first run %s", err, shellescape.QuoteCommand(r.command("clean")))
		}
		return err
	}
	d := document.NewInto(record)
	d.Target = r.target // a restore that ended early has no other name of it
	if hasEnded(record) {
		d.Clean = r.command("clean")
	}
	if d.State == document.IntoRestored {
		d.Without = r.flags.into.without
	}
	if hasEnded(record) && record.End == handoff.Succeeded {
		d.Undo = r.command("undo")
	}
	if r.output == "json" {
		return r.json(document.Line{Result: d})
	}
	r.printInto(d)
	return nil
}

// printInto prints the result of a restore.
func (r *inPlace) printInto(d document.Into) {
	words, compared := stateWords[d.State], "all members"
	if len(d.Without) > 0 {
		compared = "the other members"
		words = "all members but " + strings.Join(d.Without, ", ") + " serve the restored data"
	}
	r.printf("%s: %s (restore %s)\n", d.Target, words, d.ID)
	var facts []string
	if d.State == document.IntoRestored {
		facts = []string{
			"backup", d.Backup,
			"key space", fmt.Sprintf("%d keys; revisions continue from %d", d.Keys, d.Revision),
			"new cluster", d.ClusterID,
		}
	}
	if d.HashKV != "" {
		facts = append(facts, "HashKV", fmt.Sprintf("%s on %s, at revision %d", d.HashKV, compared, d.HashRevision))
	}
	if d.Downtime > 0 {
		facts = append(facts, "downtime", seconds(d.Downtime))
	}
	for _, obstacle := range d.Obstacles {
		facts = append(facts, "avoided", obstacle)
	}
	if d.State == document.IntoUndone || d.State == document.IntoStopped {
		facts = append(facts, "why", d.Why)
	}
	facts = append(facts, "took", phases(d.Phases))
	if len(d.Without) > 0 {
		facts = append(facts, "left", strings.Join(d.Without, ", ")+": "+r.toJoin())
	}
	if d.Undo != nil {
		facts = append(facts, "to go back", shellescape.QuoteCommand(d.Undo)+", which loses every write since the restore"+quorumWithout(d))
	}
	if d.Clean != nil {
		facts = append(facts, "to remove the data that is aside", shellescape.QuoteCommand(d.Clean))
	}
	r.facts(facts...)
}

// quorumWithout warns, as the end of a sentence, if old members may still run: with one that goes back they may be a quorum.
func quorumWithout(d document.Into) string {
	if len(d.Without) == 0 {
		return ""
	}
	return ": go back on all hosts, because " + strings.Join(d.Without, ", ") + " may still run in the old cluster, and one more host may give it a quorum"
}

// toJoin returns how a host that was left out becomes a member again.
func (r *inPlace) toJoin() string {
	text := "run this command there, without --without, as soon as you can; if the host is lost, remove the member with etcdctl member remove"
	kind, _, _ := strings.Cut(r.flags.into.into, "/")
	if kind == intoKubeadm {
		text += `, create a join command with kubeadm token create --print-join-command --certificate-key "$(kubeadm init phase upload-certs --upload-certs | tail -1)"` +
			", and on the new host run kubeadm reset, then the join command"
	}
	return text
}

var stateWords = map[document.IntoState]string{
	document.IntoRestored: "all members serve the restored data", document.IntoUndone: "the old data is in place",
	document.IntoStopped: "all members stay stopped", document.IntoRefused: "no member was touched", document.IntoRemoved: "the data that was aside is removed",
	document.IntoFenced: "stopped, and stays so until the restore", document.IntoUnfenced: "started again",
}

func phases(all []document.Phase) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, fmt.Sprintf("%s %.1f", p.Stage, p.Seconds))
	}
	return strings.Join(texts, ", ")
}
