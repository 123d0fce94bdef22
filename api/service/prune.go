package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
)

// Pruner prunes for a scheduler.Service, and remembers the last result of each cluster and repository.
type Pruner struct {
	who jobs.Identity

	mu   sync.Mutex
	last map[[2]string]server.Pruned // by cluster and repository; guarded by mu
}

// NewPruner returns a Pruner that prunes in the name of who.
func NewPruner(who jobs.Identity) *Pruner {
	return &Pruner{who: who, last: map[[2]string]server.Pruned{}}
}

// Prune removes the backups and segments in one repository that the retention of s does not keep, and reports each of them. It may be
// called from several goroutines at once.
func (p *Pruner) Prune(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) error {
	pruned, err := p.who.Prune(ctx, s, in, report)
	if err != nil {
		return err
	}
	d := convert.Prune(pruned.Catalog, pruned.Decisions, pruned.Result, false)
	logPruned(d, in.Repository, report)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[[2]string{s.Cluster, in.Repository}] = server.NewPruned(in.Repository, d)
	return nil
}

// Last returns the last result of each cluster and repository, in no order.
func (p *Pruner) Last() []server.Pruned {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.last))
}

// logPruned reports each backup and each part of the log that was removed, and why.
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
