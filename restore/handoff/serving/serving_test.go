package serving_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/serving"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// subject is a running cluster with the members and the data that Check expects.
type subject struct {
	access cluster.Config
	target handoff.Handoff
	built  handoff.Built
}

// newSubject returns a subject whose expectations e meets.
func newSubject(t *testing.T, e *servers.Cluster) subject {
	t.Helper()
	s := subject{access: cluster.Config{
		Endpoints: e.Endpoints(), DialTimeout: 10 * time.Second, CommandTimeout: 10 * time.Second, User: "root", Password: e.RootPassword,
	}}
	if e.RootPassword == "" {
		s.access.User = ""
	}
	s.target.Endpoints = e.Endpoints()
	for _, m := range e.Members {
		s.target.Members = append(s.target.Members, handoff.Member{Member: plan.Member{Name: m.Name, PeerURLs: []string{m.PeerURL}}})
	}
	c, err := cluster.Connect(t.Context(), s.access)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.built = handoff.Built{ClusterID: fmt.Sprintf("%x", c.ID), Revision: c.Servers[0].Status.Header.Revision}
	return s
}

func (s subject) check(t *testing.T) handoff.Progress {
	t.Helper()
	p, err := serving.Check(t.Context(), s.access, s.target, s.built)
	if err != nil {
		return handoff.Progress{Waiting: err.Error()}
	}
	return p
}

// wantReason fails the test unless a check waits for this reason.
func (s subject) wantReason(t *testing.T, reason string) {
	t.Helper()
	p := s.check(t)
	if p.Done || !strings.Contains(p.Waiting, reason) {
		t.Errorf("got %+v, want it to wait for %q", p, reason)
	}
}

func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	e := servers.Start(t, servers.Options{Members: 3, ExtraArgs: []string{"--strict-reconfig-check=false"}})
	client := e.Client(t)
	_, err := client.Put(t.Context(), "key", "value")
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, e)

	p := s.check(t)
	hash := servers.HashKV(t, client, e.Endpoints()[0], p.Agreed.Revision)
	if !p.Done || p.Agreed.Revision != 2 || p.Agreed.HashKV != hash.Hash {
		t.Errorf("got %+v, want revision 2 and the hash %08x", p, hash.Hash)
	}
	other := s
	other.built.ClusterID = "1234"
	other.wantReason(t, "expected the restored one, 1234")
	later := s
	later.built.Revision = 3
	later.wantReason(t, "is at revision 2, expected at least 3")
	fewer := s
	fewer.target.Members = s.target.Members[:2]
	fewer.wantReason(t, "the members are ")
	renamed := s
	renamed.target.Members = slices.Clone(s.target.Members)
	renamed.target.Members[0].Name = "etcd-0"
	renamed.wantReason(t, "expected etcd-0=http://")

	one := s // the endpoints of the others are known from their cluster
	one.target.Endpoints = e.Endpoints()[:1]
	if !one.check(t).Done {
		t.Errorf("with one endpoint got %+v", one.check(t))
	}
	const never = "http://127.0.0.1:1"
	unstarted, err := client.MemberAdd(t.Context(), []string{never})
	if err != nil {
		t.Fatal(err)
	}
	added := s
	added.target.Members = append(slices.Clone(s.target.Members), handoff.Member{Member: plan.Member{PeerURLs: []string{never}}})
	added.wantReason(t, never+" has not started yet")
	_, err = client.MemberRemove(t.Context(), unstarted.Member.ID)
	if err != nil {
		t.Fatal(err)
	}

	const learns = "http://127.0.0.1:2" // with the same URL in the same second, a member has the id of the removed one
	learner, err := client.MemberAddAsLearner(t.Context(), []string{learns})
	if err != nil {
		t.Fatal(err)
	}
	added.target.Members[len(e.Members)].PeerURLs = []string{learns}
	added.wantReason(t, "the members are ")
	_, err = client.MemberRemove(t.Context(), learner.Member.ID)
	if err != nil {
		t.Fatal(err)
	}

	e.Kill(t, 0)
	s.wantReason(t, "not all members answer: "+e.Endpoints()[0])
	loose := s
	loose.built = handoff.Built{}
	if !loose.check(t).Done {
		t.Errorf("any cluster with a leader is enough, and got %+v", loose.check(t))
	}
	e.Kill(t, 1)
	loose.wantReason(t, "the members have no leader")
	e.Kill(t, 2)
	loose.wantReason(t, "no member answers: ")
}

// The data of an older backup may have another password, and a full database still has its alarm.
func TestCheckNamesTheRemedy(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	e := servers.Start(t, servers.Options{Auth: true, QuotaBytes: 1 << 20})
	s := newSubject(t, e)
	p := s.check(t)
	if !p.Done {
		t.Errorf("got %+v", p)
	}
	wrong := s
	wrong.access.Password = "of a later time"
	wrong.wantReason(t, "the restored data has the users and the passwords of its time: use those")

	client := e.Client(t)
	for range 20 {
		_, err := client.Put(t.Context(), "key", strings.Repeat("x", 1<<20))
		if err != nil {
			break
		}
	}
	s.wantReason(t, "the alarm NOSPACE is raised")
}
