package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/page"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/notify"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

func (a *app) serve() *cobra.Command {
	var path string
	var door server.Door
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Look after one cluster or thousands: backups by schedule, and what is kept",
		Long: `serve takes the backups of all clusters in its configuration when they are due. It keeps no state: what was done is read
from the repositories. Several may run with one configuration: one works on a cluster, another takes over when it stops.

The configuration is read again on SIGHUP, and when it or a file that it names changes; one that is wrong is refused, and
the old one stays in force. On SIGTERM nothing is begun any more, and what runs may end within --patience.

--listen serves the API, /metrics, /healthz and /readyz. On a loopback address it asks for no login; on any other it demands TLS
(--tls-cert, --tls-key), and a token (--tokens-file) or a client certificate (--client-ca). Nothing is restored over the network.`,
		Example: `  dr serve --config /etc/etcd-dr/dr.yaml
  dr serve --config /etc/etcd-dr/dr.yaml --listen :2391 --tls-cert tls.crt --tls-key tls.key --tokens-file tokens`,
		Args: noArgs,
	}
	a.configFlag(cmd, &path)
	cmd.Flags().StringVar(&door.Address, "listen", "127.0.0.1:2391", "address for the page, the API, /metrics and /healthz; empty: none")
	cmd.Flags().StringVar(&door.Cert, "tls-cert", "", "certificate of --listen; it is read again when it changes, as the files below are")
	cmd.Flags().StringVar(&door.Key, "tls-key", "", "its key")
	cmd.Flags().StringVar(&door.Tokens, "tokens-file", "",
		"who may ask: lines of a role (read, operate), a name and the token's digest (sha256:…)")
	cmd.Flags().StringVar(&door.ClientCA, "client-ca", "",
		"authority of clients that log in by certificate; the role is their organizational unit, etcd-dr:read or etcd-dr:operate")
	cmd.Flags().DurationVar(&patience, "patience", 20*time.Second, "how long what runs may take to end when it is stopped; then it is given up, and cleaned up in at most 8s")
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if path == "" {
			return errNoConfig
		}
		c, err := config.Load(path, a.getenv)
		if err != nil {
			return err
		}
		for _, spec := range c.Specs {
			a.warnPlainOf(spec)
			a.warnGraceOf(spec)
		}
		defer a.endBy(cmd.Context(), patience+cleanUp)()
		report, done := a.progress()
		defer done()
		s := &serving{service: newService(report), path: path, getenv: a.getenv, first: c, report: report, pruned: map[[2]string]server.Pruned{}}
		s.service.Prune = s.prune
		s.service.Patience = patience
		s.notifier = notify.New(s.service.Healthy, report)
		s.service.Tell, s.service.TellCurrent = s.notifier.Tell, s.notifier.TellCurrent
		s.partly(c)
		return s.run(cmd.Context(), door)
	}
	return cmd
}

// cleanUp is how long what was given up may take to remove what it has left in a store. With the default --patience that is
// less than the 30 s that systemd and Kubernetes wait.
const cleanUp = 8 * time.Second

// warnPlainOf is warnPlain of one cluster among others.
func (a *app) warnPlainOf(s spec.Spec) {
	if s.Backup.To.Seal().Encryption == "" {
		fmt.Fprintf(a.stderr, "dr: WARNING: cluster %s has no recipients: its backups are NOT ENCRYPTED\n", s.Cluster)
	}
}

// warnGraceOf warns of a grace within which a backup may still run: its data would be removed under it.
func (a *app) warnGraceOf(s spec.Spec) {
	if s.Backup.Grace < s.Timeout {
		fmt.Fprintf(a.stderr, "dr: WARNING: cluster %s: backup.grace %s is shorter than backup.timeout %s: "+
			"a backup that takes longer than the grace fails\n", s.Cluster, s.Backup.Grace, s.Timeout)
	}
}

// newService is what does the work, by the functions that the verbs use.
func newService(report storage.Report) *scheduler.Service {
	host, _ := os.Hostname() // for people only
	return &scheduler.Service{
		Open: func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
			return stores.Create(ctx, r.URL, stores.Options{Parallel: r.Parallel, Limit: r.Limit})
		},
		Backup: func(
			ctx context.Context, s spec.Spec, to []backup.Store, report storage.Report,
		) (backup.Result, error) {
			return backup.Run(ctx, scheduler.ClusterConfig(s.Etcd), to, scheduler.BackupRequest(s.Backup, version()), report)
		},
		Copy:     scheduler.Copy,
		Drill:    practise,
		Revision: newestRevision,
		Check:    checkQuick,
		Archive: func(
			ctx context.Context, c archive.Config, to *repository.Cluster, observe func(archive.Status), report storage.Report,
		) error {
			c.Version = version()
			return archive.Run(ctx, c, to, observe, report)
		},
		Host:   host,
		Report: report,
	}
}

// applyRetention removes from one repository what the retention does not keep, as dr prune does.
func applyRetention(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) (document.Prune, error) {
	now := time.Now().UTC()
	catalog, err := in.Cluster.Load(ctx, repository.LoadOptions{Proofs: true, Log: true})
	if err != nil {
		return document.Prune{}, err
	}
	decisions, err := retention.Plan(catalog, s.RetentionIn(in.Repository), now)
	if err != nil {
		return document.Prune{}, err
	}
	result, err := in.Cluster.Prune(ctx, decisions.Removal(now, identity()), repository.PruneOptions{Grace: s.Backup.Grace, Now: now}, report)
	return document.NewPrune(catalog, decisions, result, false), err
}

// practise restores the newest backup and a random point of the log, in a child, as dr drill does.
func practise(
	ctx context.Context, s spec.Spec, in backup.Store, seed uint64, report storage.Report,
) ([]catalog.Proof, error) {
	r := verify.DrillRequest{
		Aim: verify.Aim{Seed: seed}, Dir: s.Drill.Dir, By: identity(), Limits: child.Limits{Memory: s.Drill.Memory, Nice: s.Drill.Nice},
	}
	for _, text := range s.Drill.Assertions {
		assertion, err := verify.ParseAssertion(text)
		if err != nil {
			return nil, err
		}
		r.Assertions = append(r.Assertions, assertion)
	}
	for _, from := range s.Repositories {
		if from.Name == in.Repository {
			options := stores.Options{Parallel: from.Parallel, Limit: from.Limit, Guard: scheduler.Patience}
			r.Source = restore.NewSource(from.URL, options, s.Cluster, from.Policy.Trusted(), s.Drill.Keys)
		}
	}
	return verify.Drill(ctx, in.Cluster, r, time.Now(), report)
}

// newestRevision asks a cluster for the newest revision that a member knows.
func newestRevision(ctx context.Context, s spec.Spec) (int64, error) {
	c, err := cluster.Connect(ctx, scheduler.ClusterConfig(s.Etcd))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var newest int64
	for _, member := range c.Servers {
		newest = max(newest, member.Status.Header.Revision)
	}
	return newest, nil
}

// serving is one run of dr serve.
type serving struct {
	service  *scheduler.Service
	notifier *notify.Notifier
	path     string
	getenv   func(string) string
	first    config.Config
	latest   config.Config // that is in force; the watching goroutine's own
	report   storage.Report

	mu      sync.Mutex
	inForce document.ServeConfig
	pruned  map[[2]string]server.Pruned // the last, by cluster and repository
}

// prune applies the retention, and remembers for the metrics what came of it.
func (s *serving) prune(ctx context.Context, spec spec.Spec, in backup.Store, report storage.Report) error {
	d, err := applyRetention(ctx, spec, in, report)
	if err != nil {
		return err
	}
	logPruned(d, in.Repository, report)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruned[[2]string{spec.Cluster, in.Repository}] = server.NewPruned(in.Repository, d)
	return nil
}

// logPruned reports each backup and each piece of the log that was removed, and why.
func logPruned(d document.Prune, repository string, report storage.Report) {
	note := func(format string, args ...any) {
		report.Say(storage.Event{Stage: "prune", Level: storage.Note, Object: repository, Message: fmt.Sprintf(format, args...)})
	}
	for _, b := range d.Backups {
		if !b.Keep {
			note("backup %s is removed from repository %s: %s", b.ID, repository, strings.Join(b.Reasons, ", "))
		}
	}
	for _, l := range d.Log {
		note("%d segments of the log, up to %d of lineage %s, are removed from repository %s: %s", l.Segments, l.Upto, l.Lineage, repository, l.Reason)
	}
}

func (s *serving) lastPruned() []server.Pruned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.pruned))
}

// run serves until ctx ends, and until what was begun has ended.
func (s *serving) run(ctx context.Context, door server.Door) error {
	if door.Address != "" {
		service := server.Service{
			Scheduler: s.service, Status: s.status, Page: page.Handler(), Pruned: s.lastPruned, Spec: s.service.Spec,
			Version: version(), By: identity(),
		}
		stop, err := server.Listen(door, service, s.report)
		if err != nil {
			return cannotListen(err)
		}
		defer stop()
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	s.notifier.Use(s.first.Notify)
	changes := make(chan spec.Config)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { s.notifier.Run(ctx) })
	s.latest = s.first
	watching.Go(func() {
		config.Watch(ctx, s.path, s.getenv, s.first, hangup, func(c config.Config, err error) {
			if c = c.Keeping(s.latest); s.judge(c, err) {
				s.latest = c
				s.notifier.Use(c.Notify)
				select {
				case changes <- c.Config:
				case <-ctx.Done():
				}
			}
		})
	})
	s.service.Run(ctx, s.first.Config, changes)
	return nil
}

// judge says whether what was read is to be in force.
func (s *serving) judge(c config.Config, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.inForce.Refused = err.Error()
		s.report.Say(storage.Event{Stage: "config", Level: storage.Warning,
			Message: fmt.Sprintf("refused, the old one stays in force: %v", err)})
		return false
	}
	s.partly(c)
	s.report.Say(storage.Event{Stage: "config", Level: storage.Note,
		Message: fmt.Sprintf("%s is in force, with %d clusters", s.path, len(c.Specs))})
	return true
}

// partly notes that c is in force, and what of it is refused.
func (s *serving) partly(c config.Config) {
	s.inForce = document.ServeConfig{File: s.path, Since: time.Now().UTC()}
	if err := c.RefusedErr(); err != nil {
		s.inForce.Refused = err.Error()
		s.report.Say(storage.Event{Stage: "config", Level: storage.Warning,
			Message: fmt.Sprintf("refused, what was in force before stays so for these clusters: %v", err)})
	}
}

func (s *serving) status() document.ServeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return document.ServeStatus{Config: s.inForce, Clusters: s.service.Status()}
}
