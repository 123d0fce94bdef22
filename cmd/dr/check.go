package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// errCheckFailed means that dr check has found something that would fail when a backup or a restore needs it.
var errCheckFailed = fault.New(fault.Damaged, "wanting")

// errAttention means that dr status has found a cluster that needs attention now.
var errAttention = fault.New(fault.Damaged, "attention needed")

// shortestLock is long enough to try a lock on a slow store.
const shortestLock = time.Minute

func (a *app) check() *cobra.Command {
	var lock string
	var noHash bool
	var store storeFlags // for --trust only; a.store has the other flags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Test a store and a cluster before you rely on them",
		Long: `check tests on your own bucket everything that backups and restores rely on; with --endpoints it also checks the cluster.
It prints one line per check: ok; note (may be intended); WANTING, with a remedy, and then the exit code is 3; not run;
unknown. It writes about 35 MiB below .dr-check-<random>/ in the repository and removes them, also when it is interrupted.
With --lock one small object stays until its lock ends: choose a short time.`,
		Example: `  dr check --repo s3://bucket/prefix --lock 1m:governance
  dr check --repo s3://bucket/prefix --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key`,
		Args: noArgs,
	}
	etcd := cluster.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&lock, "lock", "",
		"test that a lock prevents deletion: 1m, 1m:compliance, or governance or compliance alone (1m); one object stays that long")
	cmd.Flags().BoolVar(&noHash, "no-hash", false,
		"do not compare the members' HashKV (it stalls each member's writes for about 160 ms per GB)")
	store.trustFlags(cmd, a.getenv)
	a.repositoryFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := a.checkOptions(lock, &store)
		if err != nil {
			return err
		}
		hasEndpoints := cmd.Flags().Changed("endpoints") || a.getenv("ETCDCTL_ENDPOINTS") != "" ||
			cmd.Flags().Changed("discovery-srv") || a.getenv("ETCDCTL_DISCOVERY_SRV") != ""
		if a.repo == "" && !hasEndpoints {
			return usagef("nothing to check: use --repo or DR_REPO, --endpoints or ETCDCTL_ENDPOINTS")
		}
		live := liveCheck{noHash: noHash}
		if hasEndpoints {
			live.config, err = etcd.Config(a.getenv, a.ask)
			if err != nil {
				return err
			}
		}
		report, done := a.progress()
		var doc document.Check
		doc, err = a.runChecks(cmd.Context(), o, live, report)
		done()
		return a.endCheck(cmd.Context(), doc, err)
	}
	return cmd
}

// checkOptions returns the options of the store's checks, limited to one cluster if the flags name one.
func (a *app) checkOptions(lock string, store *storeFlags) (o check.Options, err error) {
	if lock == "governance" || lock == "compliance" {
		lock = shortestLock.String() + ":" + lock
	}
	o.Lock, err = parseLock(lock)
	if err != nil {
		return o, usagef("--lock %s: %w", lock, err)
	}
	policy, err := store.policy()
	if err != nil {
		return o, err
	}
	o.Trust = policy.Trusted()
	if a.cluster != "" {
		err := catalog.ValidCluster(a.cluster)
		if err != nil {
			return o, err
		}
		o.Clusters = []string{a.cluster}
	}
	options, err := a.store.options()
	if err != nil {
		return o, err
	}
	o.AsOf = func(ctx context.Context, t time.Time) (storage.Bucket, error) {
		return stores.Open(ctx, a.repo, stores.Options{AsOf: t, Credentials: options.Credentials})
	}
	return o, nil
}

// liveCheck describes the checks of the cluster itself.
type liveCheck struct {
	config cluster.Config // without endpoints nothing is checked
	noHash bool
}

// runChecks checks the repository if the flags name one, and the cluster if they name its endpoints.
func (a *app) runChecks(ctx context.Context, o check.Options, live liveCheck, report storage.Report) (document.Check, error) {
	var store, etcd []check.Line
	shown := ""
	if a.repo != "" {
		options, err := a.store.options()
		if err != nil {
			return document.Check{}, err
		}
		options.Parallel = stores.DefaultParallel
		bucket, err := stores.Open(ctx, a.repo, options)
		if err != nil {
			return document.Check{}, err
		}
		shown = stores.Shown(a.repo)
		store = check.Run(ctx, bucket, o, report)
	}
	if len(live.config.Endpoints) > 0 {
		etcd = cluster.Check(ctx, live.config, cluster.CheckOptions{NoHash: live.noHash, Now: time.Now()}, report)
	}
	return document.NewCheck(shown, store, etcd), nil
}

func (a *app) endCheck(ctx context.Context, doc document.Check, err error) error {
	if err != nil {
		return err
	}
	if a.output == "json" {
		err := a.json(document.Line{Result: doc})
		if err != nil {
			return err
		}
	} else {
		a.printCheck(doc)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n := len(doc.Wanting)
	if n > 0 {
		return fmt.Errorf("%d of %d checks are %w: %s",
			n, len(doc.Store)+len(doc.Etcd), errCheckFailed, strings.Join(doc.Wanting, ", "))
	}
	return nil
}

func (a *app) printCheck(doc document.Check) {
	var rows [][]string
	for _, part := range []struct {
		subject string // for lines that name none
		lines   []check.Line
	}{{"store", doc.Store}, {"etcd", doc.Etcd}} {
		for _, l := range part.lines {
			subject, verdict := part.subject, string(l.Verdict)
			if l.Of != "" {
				subject = l.Of
			}
			if l.Verdict == check.Wanting {
				verdict = strings.ToUpper(verdict)
			}
			rows = append(rows, []string{subject, l.Name, verdict, l.Seen})
			if l.Cure != "" {
				rows = append(rows, []string{"", "", "", "→ " + l.Cure})
			}
		}
	}
	a.table([]string{"OF", "CHECK", "VERDICT", "SEEN"}, rows)
}
