// Package service runs one scheduler.Service with the settings of a configuration file, applies changes of the file, and serves the
// API.
package service

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/page"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/notify"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
)

// Options are the settings of Run.
type Options struct {
	Path     string        // of the configuration file
	Config   config.Config // loaded from Path by the caller
	Getenv   func(string) string
	Reload   <-chan os.Signal // each signal makes Run load the file again, as a change of the file does
	Door     server.Door      // of the API; without addresses nothing is served
	Patience time.Duration    // how long Run waits for running jobs after ctx has ended
	Identity jobs.Identity
}

// Run runs the service until ctx ends and its jobs have ended. Its error matches server.ErrListen.
func Run(ctx context.Context, o Options, report storage.Report) error {
	r := &running{
		Options: o, report: report, scheduler: jobs.NewService(o.Identity, nil, report), latest: o.Config,
		pruner: NewPruner(o.Identity), changes: make(chan spec.Config),
	}
	r.scheduler.Prune, r.scheduler.Patience = r.pruner.Prune, o.Patience
	jobs.Rename(r.scheduler, config.Keys)
	r.notifier = notify.New(r.scheduler.Healthy, report)
	r.scheduler.Tell, r.scheduler.TellCurrent = r.notifier.Tell, r.notifier.TellCurrent
	r.use(o.Config)
	stop, err := server.Listen(o.Door, r.server(), report)
	if err != nil {
		return err
	}
	defer stop()
	r.run(ctx)
	return nil
}

// running is the state of one Run.
type running struct {
	Options
	report    storage.Report
	scheduler *scheduler.Service
	notifier  *notify.Notifier
	pruner    *Pruner
	changes   chan spec.Config
	latest    config.Config // in effect; only the watching goroutine uses it

	mu       sync.Mutex
	inEffect document.ServeConfig // guarded by mu
}

func (r *running) server() server.Service {
	return server.Service{
		Scheduler: r.scheduler, Status: r.status, Page: page.Handler(), Pruned: r.pruner.Last, Spec: r.scheduler.Spec,
		Version: r.Identity.Version, By: r.Identity.By,
	}
}

// run notifies, watches the configuration and runs the jobs until ctx ends.
func (r *running) run(ctx context.Context) {
	r.notifier.Use(r.Config.Notify)
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { r.notifier.Run(ctx) })
	background.Go(func() {
		config.Watcher{Path: r.Path, Getenv: r.Getenv, Reload: r.Reload, Tell: func(c config.Config, err error) { r.change(ctx, c, err) }}.Watch(ctx, r.Config)
	})
	r.scheduler.Run(ctx, r.Config.Config, r.changes)
}

// change applies c or, if err is not nil, reports it and changes nothing. Clusters whose section of c is refused keep their previous
// settings.
func (r *running) change(ctx context.Context, c config.Config, err error) {
	if err != nil {
		r.refuse(err)
		return
	}
	c = c.Keeping(r.latest)
	r.use(c)
	r.say(storage.Note, "%s is in effect, with %d clusters", r.Path, len(c.Specs))
	r.latest = c
	r.notifier.Use(c.Notify)
	select {
	case r.changes <- c.Config:
	case <-ctx.Done():
	}
}

// refuse records and reports why the file's new content is not in effect.
func (r *running) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inEffect.Refused = err.Error()
	r.say(storage.Warning, "refused, the old one stays in effect: %v", err)
}

// use records that c is in effect. It records and reports which of its clusters are refused.
func (r *running) use(c config.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inEffect = document.ServeConfig{File: r.Path, Since: time.Now().UTC()}
	err := c.RefusedErr()
	if err != nil {
		r.inEffect.Refused = err.Error()
		r.say(storage.Warning, "refused, these clusters keep their previous settings: %v", err)
	}
}

func (r *running) say(level storage.Level, format string, args ...any) {
	r.report.Say(storage.Event{Stage: "config", Level: level, Message: fmt.Sprintf(format, args...)})
}

func (r *running) status() document.ServeStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return document.ServeStatus{Config: r.inEffect, Clusters: convert.Clusters(r.scheduler.Status())}
}
