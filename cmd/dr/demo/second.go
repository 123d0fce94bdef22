package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// secondPart returns the acts of the second part: a mistake deletes data, and no server is lost.
func (d *demoRun) secondPart() []act {
	return []act{
		{"From now on the log is archived too", d.archiveLog},
		{"More data is written, and the content is recorded", d.writeMore},
		{"A mistake: a client deletes every order", d.deleteEverything},
		{"The cluster is restored to the revision right before", d.restoreBefore},
		{"The three restored members start", d.startLast},
		{"Each of them is compared with the record", d.compareAgain},
	}
}

// agent is an archiving agent next to the first member.
type agent struct {
	stop   context.CancelFunc
	ended  chan error // contains the result after the agent has ended
	status atomic.Pointer[archive.Status]
}

// archiveLog starts the agent, and waits until it has a base backup and is up to date.
func (d *demoRun) archiveLog(ctx context.Context) ([]string, error) {
	a := &agent{ended: make(chan error, 1)}
	a.status.Store(&archive.Status{})
	config := archive.Config{
		Source: segment.WAL, DataDir: d.members[0].dataDir, Etcd: d.etcdConfig(), To: d.recipients, Version: d.Version, Host: "demo",
		Flush: 100 * time.Millisecond, SegmentSize: 1 << 20, Lease: time.Second, HashEvery: time.Hour, MaxWALs: 5,
		Snapshot: func(ctx context.Context, why string) error {
			_, err := backup.Run(ctx, d.etcdConfig(), []backup.Store{{Cluster: d.repository}}, d.request())
			return err
		},
		Observe: func(s archive.Status) { a.status.Store(&s) },
	}
	var running context.Context
	running, a.stop = context.WithCancel(context.WithoutCancel(ctx)) // until end calls a.stop
	go func() {
		a.ended <- archive.Run(running, config, d.repository)
	}()
	d.agent = a
	err := a.catchUp(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	s := a.status.Load()
	return []string{fmt.Sprintf("next to %s, read-only; %s requests stored up to position %s", d.members[0].name, count(s.StoredRequests), count(int64(s.Durable)))}, nil
}

// catchUp waits until all writes that were acknowledged before the time at are stored.
func (a *agent) catchUp(ctx context.Context, at time.Time) error {
	for {
		s := a.status.Load()
		if s.ConfirmedAt.After(at) {
			return nil
		}
		select {
		case err := <-a.ended:
			a.ended <- err // for end
			return errors.Join(errors.New("the archive ended"), err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the archive (status: %s %s): %w", s.State, s.Problem, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end stops the agent and waits for it.
func (a *agent) end() error {
	if a == nil {
		return nil
	}
	a.stop()
	err := <-a.ended
	a.ended <- err // for later calls
	return err
}

// moreOrders is the number of orders that are overwritten in the second part.
const moreOrders = 500

func (d *demoRun) writeMore(ctx context.Context) ([]string, error) {
	c, err := connect(ctx, d.members[0], root, d.rootPassword)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var answer *clientv3.PutResponse
	for i := range moreOrders {
		answer, err = c.Put(ctx, order(i), value(i))
		if err != nil {
			return nil, fmt.Errorf("overwrite: %w", err)
		}
	}
	d.revision = answer.Header.Revision
	lines, err := d.record(ctx)
	if err != nil {
		return nil, err
	}
	return append([]string{fmt.Sprintf("%d orders overwritten", moreOrders)}, lines...), nil
}

func (d *demoRun) deleteEverything(ctx context.Context) ([]string, error) {
	c, err := connect(ctx, d.members[0], root, d.rootPassword)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer, err := c.Delete(ctx, orders, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	if answer.Header.Revision != d.revision+1 {
		return nil, fmt.Errorf("the delete made revision %d, not %d", answer.Header.Revision, d.revision+1)
	}
	err = d.agent.catchUp(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%s keys are gone at revision %s; the delete is in the log as well", count(answer.Deleted), count(answer.Header.Revision))}, nil
}

// restoreBefore stops the old cluster, since two clusters must not have the same URLs. Then it restores the revision before the delete.
func (d *demoRun) restoreBefore(ctx context.Context) ([]string, error) {
	err := d.agent.end()
	if err != nil {
		return nil, err
	}
	d.members.stop()
	d.lost = time.Now()
	catalog, err := d.repository.Load(ctx, backups.LoadOptions{Log: true})
	if err != nil {
		return nil, err
	}
	d.token = "dr-" + strings.ToLower(rand.Text()[:20])
	layout := plan.Layout{Token: d.token, Into: plan.Into{OutputDir: d.path("restored-again")}}
	request := plan.Request{Catalog: catalog, Target: plan.Target{Revision: d.revision}, Layout: layout, Now: time.Now()}
	_, result, err := restore.RunTarget(ctx, restore.Attempt{Request: request, Unfold: d.repository.Log().Unfold, Run: d.spawn})
	if err != nil {
		return nil, err
	}
	r := result.Replayed
	if r == nil {
		return nil, errors.New("nothing was replayed")
	}
	return []string{
		fmt.Sprintf("backup %s at revision %s, and %s requests of the log up to revision %s", result.Backup, count(r.From), count(int64(r.Requests)), count(r.To)),
		fmt.Sprintf("data dirs of %s built; they form the new cluster %s", d.members.names(), result.ClusterID),
	}, nil
}

func (d *demoRun) spawn(ctx context.Context, p plan.Plan) (restore.Result, error) {
	options, err := d.options()
	if err != nil {
		return restore.Result{}, err
	}
	return restore.Spawn(ctx, p, child.NewSource(child.Repository{URL: d.repositoryURL(), Options: options, Cluster: d.repository.Name()}, d.secret), nil)
}

// startLast starts the members for the third and last time.
func (d *demoRun) startLast(ctx context.Context) ([]string, error) {
	err := d.startFrom(ctx, "restored-again")
	if err != nil {
		return nil, err
	}
	d.secondOutage = time.Since(d.lost)
	return []string{fmt.Sprintf("under the same names and URLs, %.1f s after the old ones were stopped", d.secondOutage.Seconds())}, nil
}

func (d *demoRun) compareAgain(ctx context.Context) ([]string, error) {
	err := d.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	err = d.put(ctx, newKey)
	if err != nil {
		return nil, err
	}
	return []string{
		"the same on all three: " + strings.Join(d.before.names(), ", "),
		"every order is back as it was one revision before; a new write went through",
	}, nil
}
