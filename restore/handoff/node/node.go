// Package node restores the one member that a service runs on this host. A cluster is restored by the same command, with the same plan, on
// each of its hosts, in any order. The hosts do not talk to each other: each waits before it replaces data until no member of the old
// cluster answers any more, and at the end until all members of the new one serve. Both leave out the members of Manager.Without.
//
// Package systemd has a Service for a unit, package kubeadm one for static pods, and Commands is one for any other program that starts and
// stops etcd.
package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/member"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Service runs the member on this host. Stop and Start take one step and return. They can be repeated, also after a kill at any moment.
type Service interface {
	fmt.Stringer // such as "unit etcd.service"
	// Member describes the member as the service runs it. The service may be stopped.
	Member(ctx context.Context) (Member, error)
	// Runs reports whether the service runs, or is to run again by itself.
	Runs(ctx context.Context) (bool, error)
	// Stop takes one step towards a service that is stopped, and that only Start or Enable starts again.
	Stop(ctx context.Context) (handoff.Progress, error)
	// Start takes one step towards a service that runs.
	Start(ctx context.Context) (handoff.Progress, error)
	// Enable takes one step towards a stopped service that others may start again.
	Enable(ctx context.Context) (handoff.Progress, error)
	// Acts describes Stop and Start.
	Acts() (stop, start handoff.Act)
}

// Member is a member as its service runs it.
type Member struct {
	Name       string
	PeerURLs   []string // that it advertises; nil: unknown
	ClientURLs []string // through which this host connects to it
	MetricsURL string   // the first one that serves only metrics and /health; "": none
	DataDir    string
	WALDir     string // "": in the data dir
	Owner      *Owner // of a data dir that is missing; nil: root

	CA, Cert, Key string // files with which this host connects to it; "": none
}

// Owner is a user with a group.
type Owner struct{ UID, GID int }

// Manager is the handoff.Manager of the member on this host, and the inplace.Target of its restore.
type Manager struct {
	Service
	Records
	Plan      plan.Plan // of all members
	Without   []string  // names of members whose hosts do not run the command: they may still answer
	Endpoints []string  // client URLs of the member on this host; nil: those of the service or, if it knows none, of the plan
	// Run builds the data of a plan.
	Run func(context.Context, plan.Plan) (restore.Result, error)
	// Notes returns additional findings about this host; nil: there are none.
	Notes func() []handoff.Finding
	// Access returns how to connect to members, without their endpoints.
	Access func(context.Context) (cluster.Config, error)
}

// Inspect implements handoff.Manager. It returns only the member on this host.
func (m *Manager) Inspect(ctx context.Context) (handoff.Handoff, error) {
	own, err := m.Member(ctx)
	if err != nil {
		return handoff.Handoff{}, err
	}
	runs, err := m.Runs(ctx)
	if err != nil {
		return handoff.Handoff{}, err
	}
	if len(m.Endpoints) > 0 {
		own.ClientURLs = m.Endpoints
	}
	if len(own.ClientURLs) == 0 {
		own.ClientURLs = m.Plan.Old.ClientURLs
	}
	stop, start := m.Acts()
	h := handoff.Handoff{
		Manager: m.String(), Endpoints: own.ClientURLs, Acts: []handoff.Act{stop, start}, Findings: m.compare(own),
		Members: []handoff.Member{{
			Member: m.planned(own), DataDir: own.DataDir, WALDir: own.WALDir, Disk: own.DataDir, Fresh: isMissing(own.DataDir),
		}},
	}
	if m.Notes != nil {
		h.Findings = append(h.Findings, m.Notes()...)
	}
	if runs {
		h.Saved = saysRunning
	}
	return h, nil
}

// saysRunning is the saved value of a service that ran before the restore.
const saysRunning = "running"

// planned returns the plan's member of this host; without one, the member as it runs.
func (m *Manager) planned(own Member) plan.Member {
	i := slices.IndexFunc(m.Plan.Members, func(p plan.Member) bool { return p.Name == own.Name })
	if i < 0 {
		return plan.Member{Name: own.Name, PeerURLs: own.PeerURLs}
	}
	return m.Plan.Members[i]
}

// compare returns a finding if the plan has no such member. etcd does not compare its settings with restored data: the other
// members dial the peer URL in the data, where this member would not listen.
func (m *Manager) compare(own Member) []handoff.Finding {
	planned := m.planned(own)
	known := slices.ContainsFunc(m.Plan.Members, func(p plan.Member) bool { return p.Name == own.Name })
	switch {
	case !known:
		return []handoff.Finding{{
			Text:   fmt.Sprintf("%s runs the member %s, and the plan has %s", m, own.Name, m.Plan.InitialCluster()),
			Remedy: "make a plan with the members that the hosts run: pass --initial-cluster", Refuses: true,
		}}
	case own.PeerURLs != nil && !equal(own.PeerURLs, planned.PeerURLs):
		return []handoff.Finding{{
			Text: fmt.Sprintf("%s runs %s with the peer URLs %s, and the plan has %s", m, own.Name,
				strings.Join(own.PeerURLs, ","), strings.Join(planned.PeerURLs, ",")),
			Remedy: "change the settings of the service, or make a plan with these URLs: pass --initial-cluster", Refuses: true,
		}}
	}
	return nil
}

func equal(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func isMissing(dir string) bool {
	_, err := os.Lstat(dir)
	return os.IsNotExist(err)
}

// Fence implements handoff.Manager. A process that the service does not know may run etcd too: no process may hold a lock of the data.
func (m *Manager) Fence(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	return stop(ctx, m.Service, h.Members[0].DataDir, h.Members[0].WALDir)
}

// Do implements handoff.Manager. Before it seals, it waits until no member of the old cluster answers, on whatever host: see survivors.
func (m *Manager) Do(ctx context.Context, r handoff.Record, t handoff.Task) ([]handoff.Progress, error) {
	own := r.Handoff.Members[0]
	if t == handoff.DoSeal {
		why := m.survivors(ctx, r)
		if why != "" {
			return []handoff.Progress{{Waiting: why}}, nil
		}
	}
	if t == handoff.DoStage {
		err := m.makeDataDir(ctx, own.DataDir)
		if err != nil {
			return []handoff.Progress{{}}, err
		}
	}
	report := member.Do(ctx, member.Work{
		Task: t, Restore: r.ID, Plan: r.Plan, Run: m.Run,
		Place: plan.Into{Name: own.Name, DataDir: own.DataDir, WALDir: own.WALDir},
	})
	planned := plan.Plan{}
	if r.Plan != nil {
		planned = *r.Plan
	}
	p, err := report.Progress(planned)
	return []handoff.Progress{p}, err
}

// survivors returns why the old cluster may still serve; "" if no member of it answers but those that are left out, which are no quorum. One
// that is left out may have begun a cluster of its own, though, in which it is a quorum.
//
// A server that accepts connections and names no cluster may be a restored member, which answers only once it has a leader. If hosts waited
// for such a server, they would wait for each other. An old member that hangs does no harm: each host runs one member, so at most one of
// the two clusters has a quorum.
func (m *Manager) survivors(ctx context.Context, r handoff.Record) string {
	if r.Plan == nil || r.Plan.OldIsDead {
		return ""
	}
	clusters := m.ask(ctx, *r.Plan)
	for _, at := range r.Plan.Old.ClientURLs {
		found := clusters[at]
		isOld := found.id != "" && !catalog.SameClusterID(found.id, r.Built.ClusterID) && !r.Plan.IsStranger(found.id, found.members)
		switch {
		case isOld && m.servesAlone(at, found):
			return fmt.Sprintf("at %s a cluster of its own serves, without the other members: run the same command there, or stop it", at)
		case isOld && !m.isWithout(at):
			return fmt.Sprintf("a member of the old cluster still answers at %s: run the same command there, or stop it%s", at, m.withoutIt(at))
		}
	}
	return ""
}

// identified describes the cluster of a server.
type identified struct {
	id      string           // in hex; "": unknown
	members []catalog.Member // none: unknown
}

// ask asks the servers at the client URLs of p's old members for their clusters, by URL. It asks them concurrently, because one that hangs
// takes the whole timeout. A server without TLS gets a password only if it does not name its cluster to a client without credentials.
func (m *Manager) ask(ctx context.Context, p plan.Plan) map[string]identified {
	var encrypted, plain []string
	for _, at := range p.Old.ClientURLs {
		if strings.HasPrefix(at, "https:") {
			encrypted = append(encrypted, at)
		} else {
			plain = append(plain, at)
		}
	}
	var asking sync.WaitGroup
	var found map[string]identified
	asking.Go(func() { found = m.knock(ctx, plain) })
	clusters := m.identifyAll(ctx, encrypted)
	asking.Wait()
	maps.Copy(clusters, found)
	return clusters
}

// knock asks servers without TLS for their clusters: first without credentials.
func (m *Manager) knock(ctx context.Context, urls []string) map[string]identified {
	found := map[string]identified{}
	var silent []string
	for _, a := range cluster.Knock(ctx, urls, reach.Anywhere) {
		switch {
		case a.ClusterID != "":
			found[a.URL] = identified{a.ClusterID, a.Members}
		case a.Alive:
			silent = append(silent, a.URL)
		}
	}
	maps.Copy(found, m.identifyAll(ctx, silent))
	return found
}

// identifyAll asks servers for their clusters, concurrently.
func (m *Manager) identifyAll(ctx context.Context, urls []string) map[string]identified {
	found := make([]identified, len(urls))
	var asking sync.WaitGroup
	for i, at := range urls {
		asking.Go(func() { found[i] = m.identify(ctx, at) })
	}
	asking.Wait()
	clusters := map[string]identified{}
	for i, at := range urls {
		clusters[at] = found[i]
	}
	return clusters
}

// identifyTime bounds the connection to a server that is asked for its cluster. A restored member without a leader takes all of it.
const identifyTime = 1500 * time.Millisecond

// identify asks a server for its cluster.
func (m *Manager) identify(ctx context.Context, at string) identified {
	access, err := m.Access(ctx)
	if err != nil {
		return identified{}
	}
	access.Endpoints, access.DialTimeout = []string{at}, identifyTime
	c, err := cluster.Connect(ctx, access)
	if err != nil {
		return identified{}
	}
	defer c.Close()
	return identified{fmt.Sprintf("%x", c.ID), c.Members}
}

// makeDataDir makes a data dir that is missing, for the user that runs etcd: the restored data gets the owner of the directory. A guard in
// its place goes into it.
func (m *Manager) makeDataDir(ctx context.Context, dir string) error {
	guarded := swap.IsGuard(dir)
	if !isMissing(dir) && !guarded {
		return nil
	}
	own, err := m.Member(ctx)
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(dir), 0o755)
	if err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".dr-*") // its mode is 0700
	if err == nil && own.Owner != nil {
		err = filesystem.ChangeOwner(made, own.Owner.UID, own.Owner.GID)
	}
	switch {
	case err != nil:
		return err
	case guarded:
		return swap.MoveGuard(dir, made)
	}
	return os.Rename(made, dir)
}

// Release implements handoff.Manager.
func (m *Manager) Release(ctx context.Context, _ handoff.Handoff) (handoff.Progress, error) {
	return m.Start(ctx)
}

// Return implements handoff.Manager.
func (m *Manager) Return(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	if h.Saved == saysRunning {
		return m.Start(ctx)
	}
	return m.Enable(ctx)
}

// Settled implements handoff.Manager.
func (m *Manager) Settled(ctx context.Context, _ handoff.Handoff) (handoff.Progress, error) {
	return m.Start(ctx)
}

// Exists implements inplace.Target.
func (m *Manager) Exists(ctx context.Context) (bool, error) {
	_, err := m.Member(ctx)
	return err == nil, err
}

// Take implements inplace.Target: Records.Lock holds the host.
func (m *Manager) Take(context.Context, handoff.Record) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}

// Lift implements inplace.Target.
func (m *Manager) Lift(context.Context, handoff.Record) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}
