package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubeadm"
	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/restore/handoff/systemd"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// intoNode is one run of dr restore --into for the member on this host.
type intoNode struct {
	inPlace
	service node.Service
	records node.Records
	planned plan.Plan // of all members
	keys    seal.Keys
	members cluster.Config // how to connect to the members
}

// restoreNode restores the member on this host, or carries out --undo or --clean.
func (a *app) restoreNode(cmd *cobra.Command, f *restoreFlags, args []string) error {
	orders := handoff.Orders{DryRun: f.dryRun, Limit: f.into.limit, Keep: untilCleaned}
	if !cmd.Flags().Changed("time-limit") {
		orders.Limit = untilCleaned // the other hosts wait for a person
	}
	r := &intoNode{inPlace: inPlace{app: a, flags: f, orders: orders}, records: node.Records{Dir: f.into.records}}
	if !f.dryRun { // which changes nothing
		unlock, err := r.records.Lock(cmd.Context())
		if err != nil {
			return err
		}
		defer unlock()
	}
	end, err := r.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer end()
	if f.into.fence || f.into.unfence {
		return r.fence(cmd.Context())
	}
	if f.swap.undo == "" && f.swap.clean == "" {
		err = r.find(cmd, args)
	} else {
		err = r.findEnd(cmd, args)
	}
	if err == nil {
		err = r.checkWithout(cmd.Context())
	}
	if err == nil {
		r.members, err = f.into.members.Access(a.getenv, a.ask)
	}
	if err != nil {
		return err
	}
	return r.run(cmd.Context(), r.restore(cmd.Context()))
}

// connect sets the service that runs the member. The caller must call the returned function.
func (r *intoNode) connect(ctx context.Context) (end func(), err error) {
	f := r.flags
	kind, name := f.into.place()
	r.words, r.name = []string{"--into", f.into.into}, name
	if f.into.records != node.DefaultDir {
		r.words = append(r.words, "--state-dir", f.into.records)
	}
	if len(f.into.endpoints) > 0 {
		r.words = append(r.words, "--endpoints", strings.Join(f.into.endpoints, ","))
	}
	if r.repo != "" {
		r.words = append(r.words, "--repo", r.repo)
	}
	if kind == intoSystemd {
		unit, err := systemd.Connect(ctx, name)
		if err != nil {
			return nil, err
		}
		r.service, r.target = unit, unit.String()
		return unit.Close, nil
	}
	if kind == intoKubeadm {
		_, folder, _ := strings.Cut(f.into.into, "/")
		pods := &kubeadm.Pods{Manifests: cmp.Or(strings.TrimSuffix("/"+folder, "/"), kubeadm.DefaultManifests)}
		r.service, r.target = pods, pods.String()
		return func() {}, nil
	}
	in := f.layout.Into
	r.words = append(r.words, "--name", in.Name, "--data-dir", in.DataDir)
	if in.WALDir != "" {
		r.words = append(r.words, "--wal-dir", in.WALDir)
	}
	r.words = append(r.words, "--stop-command", f.into.toStop, "--start-command", f.into.toStart)
	own := node.Member{Name: in.Name, DataDir: in.DataDir, WALDir: in.WALDir}
	commands := &node.Commands{Own: own, ToStop: f.into.toStop, ToStart: f.into.toStart}
	r.service, r.target, r.name = commands, commands.String(), in.Name
	return func() {}, nil
}

// fence carries out --fence-only or --unfence. The other flags may be those of the restore.
func (r *intoNode) fence(ctx context.Context) error {
	f := &r.flags.into
	_, isCommand := r.service.(*node.Commands)
	switch {
	case isCommand:
		return usagef("--fence-only, --unfence: nothing but the stop command would keep etcd stopped: stop it yourself, and see that nothing starts it")
	case f.fence && f.unfence, r.orders.DryRun, r.flags.swap.undo+r.flags.swap.clean != "":
		return usagef("--fence-only, --unfence, --dry-run, --undo, --clean: use only one")
	case f.fence && f.confirm == "":
		return fmt.Errorf("%w: --fence-only stops %s: to confirm that, pass --confirm %s", fault.Refused, r.target, r.name)
	}
	report, done := r.progress()
	unit, isUnit := r.service.(*systemd.Unit)
	if isUnit && f.fence {
		for _, dependent := range unit.Dependents(ctx) {
			report.Say(storage.Event{Stage: "fence", Level: storage.Warning, Message: dependent.String()})
		}
	}
	waits := func(why string) { report.Say(storage.Event{Stage: "fence", Message: why}) }
	d := document.Into{Target: r.target, State: document.IntoFenced, Phases: []document.Phase{}}
	var err error
	if f.unfence {
		d.State = document.IntoUnfenced
		err = node.Unfence(ctx, r.service, f.confirm != "", waits)
	} else {
		err = node.Fence(ctx, r.service, waits)
	}
	done()
	if err != nil {
		return err
	}
	if r.output == "json" {
		return r.json(document.Line{Result: d})
	}
	r.printf("%s: %s\n", d.Target, stateWords[d.State])
	return nil
}

// find sets the plan, the id and, if an earlier run has begun it, the record of the restore.
func (r *intoNode) find(cmd *cobra.Command, args []string) (err error) {
	r.keys, err = r.flags.keys.load()
	if err != nil {
		return err
	}
	if r.flags.planIn != "" {
		err = r.readPlan(cmd, args)
	} else {
		r.id, err = r.idOf(r.flags.to, r.flags.before, r.flags.target, r.flags.layout, r.flags.initialCluster, r.repo, r.cluster, args)
	}
	if err != nil {
		return err
	}
	r.stored, err = r.records.Load(cmd.Context(), r.id)
	switch {
	case errors.Is(err, fault.NotFound), err == nil && r.orders.DryRun:
		r.stored = handoff.Record{}
		return r.plan(cmd, args)
	case err != nil:
		return err
	case r.stored.Plan == nil:
		return r.plan(cmd, args)
	}
	r.planned = *r.stored.Plan
	return r.refuseAgain()
}

// readPlan reads the plan of --plan.
func (r *intoNode) readPlan(cmd *cobra.Command, args []string) (err error) {
	err = checkWithPlan(cmd, args, r.flags.into.ofAll, r.flags.into.ofNode, []string{"into"})
	if err == nil {
		r.planned, err = r.decodePlan(r.flags.planIn)
	}
	if err != nil {
		return err
	}
	r.id, err = r.idOf(r.planned.ID)
	return err
}

// idOf derives the id of a restore from its order and its target, so that the same command continues the same restore.
func (r *intoNode) idOf(order ...any) (string, error) {
	text, err := json.Marshal(append(order, r.target))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// plan makes the plan, unless one was read. Plans made on different hosts differ, so all hosts must use the same one.
func (r *intoNode) plan(cmd *cobra.Command, args []string) error {
	if r.flags.planIn == "" {
		r.flags.layout.Into = plan.Into{}
		request, _, err := r.request(cmd, r.flags, args)
		if err != nil {
			return err
		}
		r.planned, err = plan.New(request.Catalog, request.Target, request.Layout, request.Now)
		if err != nil {
			return err
		}
		if len(r.planned.Members) > 1 {
			return usagef("--into %s restores one of %d members: all hosts need the same plan: write it with --plan-out plan.json "+
				"(without --into), copy it, and run dr restore --plan plan.json --into %s on each", r.flags.into.into, len(r.planned.Members), r.flags.into.into)
		}
	}
	if r.flags.plain.mode(r.flags.keys) != plan.PlainTaken {
		return r.planned.RefusePlain()
	}
	return nil
}

// findEnd sets the record of the restore that --undo or --clean ends.
func (r *intoNode) findEnd(cmd *cobra.Command, args []string) error {
	err := r.setEnd(cmd, args, undoFlagsOfNode())
	if err != nil {
		return err
	}
	r.stored, err = r.records.Load(cmd.Context(), r.id)
	if err != nil {
		return err
	}
	if r.stored.Handoff.Manager != "" && r.stored.Handoff.Manager != r.target {
		return usagef("restore %s is of %s, and --into %s is %s: correct one of them", r.id, r.stored.Handoff.Manager, r.flags.into.into, r.target)
	}
	if r.stored.Plan != nil {
		r.planned = *r.stored.Plan
	}
	return r.checkEnd()
}

// checkWithout refuses to go on without this host, and what plan.Plan.CheckWithout refuses.
func (r *intoNode) checkWithout(ctx context.Context) error {
	if len(r.flags.into.without) == 0 {
		return nil
	}
	own, err := r.service.Member(ctx)
	if err == nil && slices.Contains(r.flags.into.without, own.Name) {
		return usagef("--without %s: %s runs that member: omit it", own.Name, r.target)
	}
	return r.planned.CheckWithout(r.flags.into.without)
}

// restore returns the restore. One that ends needs no repository.
func (r *intoNode) restore(ctx context.Context) *inplace.Restore {
	notes := sync.OnceValue(func() []handoff.Finding { return r.notes(ctx) }) // not for each inspection: it downloads files
	one := &inplace.Restore{
		ID: r.id, By: "dr restore --into, restore " + r.id, Name: r.name, Confirmed: r.flags.into.confirm != "" || r.orders.Back,
		DryRun: r.orders.DryRun, Reach: reach.Anywhere, Given: &r.planned, Without: r.flags.into.without,
		Manage: func([]plan.Member) inplace.Target {
			return &node.Manager{
				Service: r.service, Records: r.records, Plan: r.planned, Without: r.flags.into.without, Endpoints: r.flags.into.endpoints,
				Run: r.build, Access: r.access, Notes: notes,
			}
		},
		Access: r.access,
		Warn:   r.warn,
		Watch:  r.watch(),
	}
	if r.repo != "" && r.planned.Backup != nil {
		r.cluster = r.planned.Cluster
		one.Open = r.open
	}
	return one
}

// build builds the data of a plan in a child.
func (r *intoNode) build(ctx context.Context, p plan.Plan) (restore.Result, error) {
	return r.spawn(ctx, p, r.keys, r.report)
}

// notes returns findings about this host that concern its kind of service.
func (r *intoNode) notes(ctx context.Context) []handoff.Finding {
	switch s := r.service.(type) {
	case *systemd.Unit:
		return s.Dependents(ctx)
	case *kubeadm.Pods:
		return append(s.CheckClusterAPI("/"), r.compareKeys(ctx, s)...)
	}
	return nil
}

// compareTime bounds compareKeys: the restore does not depend on it.
const compareTime = 30 * time.Second

// compareKeys returns a finding if the host of a control plane has other keys than those that are stored with its backups.
func (r *intoNode) compareKeys(ctx context.Context, pods *kubeadm.Pods) []handoff.Finding {
	if r.repo == "" || r.planned.Backup == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	name, err := os.Hostname()
	if err != nil {
		return nil // the node's name in the repository is unknown
	}
	c, err := r.open(ctx)
	if err != nil {
		return []handoff.Finding{{Text: fmt.Sprintf("the keys of this host are not compared with its stored assets: %v", err)}}
	}
	at := r.planned.Reach.NotAfter
	if at.IsZero() { // unknown
		at = time.Now()
	}
	return pods.CompareKeys(ctx, c, r.keys, assets.Node{Name: name, Root: "/"}, at)
}

// access returns how to connect to the members. Without flags for TLS, those files of the member are used.
func (r *intoNode) access(ctx context.Context) (cluster.Config, error) {
	c := r.members
	if c.CACert != "" || c.Cert != "" {
		return c, nil
	}
	own, err := r.service.Member(ctx)
	c.CACert, c.Cert, c.Key = own.CA, own.Cert, own.Key
	return c, err
}
