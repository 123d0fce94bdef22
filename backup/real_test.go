package backup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// start starts real servers. They need tools and seconds.
func start(t *testing.T, o servers.Options) *servers.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts real servers")
	}
	t.Parallel()
	o.Members = 3
	return servers.Start(t, o)
}

// reach returns the configuration for c, with root's certificate if there is one.
func reach(c *servers.Cluster, endpoints ...string) cluster.Config {
	if len(endpoints) == 0 {
		endpoints = c.Endpoints()
	}
	cfg := cluster.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, CommandTimeout: 2 * time.Second}
	if c.Certificates != nil {
		cfg.CACert, cfg.Cert, cfg.Key = c.Certificates.CA, c.Certificates.Cert, c.Certificates.Key
	}
	return cfg
}

func TestRealWithoutQuorum(t *testing.T) {
	for _, o := range []servers.Options{
		{Version: "3.4"}, {Version: "3.7"}, {Version: "3.4", TLS: true, Auth: true}, {Version: "3.7", TLS: true, Auth: true},
	} {
		t.Run(fmt.Sprintf("%s auth=%t", o.Version, o.Auth), func(t *testing.T) {
			c := start(t, o)
			client := c.Client(t)
			revision := servers.Fill(t, client, 1, servers.FillOptions{Kubernetes: true})
			raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 7, Alarm: pb.AlarmType_NOSPACE}
			_, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), raise)
			if err != nil {
				t.Fatal(err)
			}
			left := c.Leader(t) // it has the whole log
			dead := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == left })
			for _, i := range dead {
				c.Kill(t, i)
			}
			to, l := open(t, mem.New()), &listener{}
			r, keys := request(t)
			m := mustRun(t, reach(c), to, r, l)
			alarmed := slices.Equal(m.Alarms, []string{"NOSPACE"})
			if !m.NoQuorum || len(m.Members) != 3 || m.Member.Name != c.Members[left].Name || !alarmed {
				t.Errorf("no quorum %t, member %+v of %+v, alarms %v", m.NoQuorum, m.Member, m.Members, m.Alarms)
			}
			if m.HashKV == nil || !m.Kubernetes || !strings.HasPrefix(m.EtcdVersion, o.Version+".") || m.Revision < revision {
				t.Errorf("HashKV %+v, Kubernetes %t, etcd %s, revision %d", m.HashKV, m.Kubernetes, m.EtcdVersion, m.Revision)
			}
			f := factsOf(t, fetched(t, to, m.Backup, keys))
			// 3.4 stores its index only together with keys, so that it lags after an alarm.
			if f.revision < m.Revision || f.index < m.RaftIndex && o.Version != "3.4" {
				t.Errorf("the snapshot is at %+v, the manifest says %d, %d", f, m.Revision, m.RaftIndex)
			}
			l.wantWarnings(t, c.Members[dead[0]].ClientURL, c.Members[dead[1]].ClientURL,
				"no quorum", "whether authentication is enabled", "NOSPACE")
			if o.Auth {
				wantNoLogin(t, c)
			}
		})
	}
}

// wantNoLogin accounts for etcd, which checks no password without a quorum; a certificate still works.
func wantNoLogin(t *testing.T, c *servers.Cluster) {
	t.Helper()
	cfg := reach(c)
	cfg.User, cfg.Password = "root", c.RootPassword
	_, err := cluster.Connect(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "without a quorum") || !strings.Contains(err.Error(), "--cert") {
		t.Errorf("a login without a quorum: %v", err)
	}
}

func TestRealOneOfThreeIsDead(t *testing.T) {
	c := start(t, servers.Options{})
	servers.Fill(t, c.Client(t), 1, servers.FillOptions{})
	r, _ := request(t)
	for name, choose := range map[string]func(leader int) int{
		"a follower": func(leader int) int { return (leader + 1) % 3 },
		"the leader": func(leader int) int { return leader },
	} {
		t.Run(name, func(t *testing.T) {
			dead := choose(c.Leader(t))
			c.Kill(t, dead)
			leader, gone := c.Leader(t), c.Members[dead].ClientURL
			other := c.Members[3-dead-leader].ClientURL
			for _, endpoints := range [][]string{c.Endpoints(), {gone, other}, {other}} {
				l := &listener{}
				result := mustRun(t, reach(c, endpoints...), open(t, mem.New()), r, l)
				if result.Member.Name != c.Members[leader].Name || result.NoQuorum || len(result.Members) != 3 {
					t.Errorf("endpoints %v: read from %+v of %+v", endpoints, result.Member, result.Members)
				}
				l.wantWarnings(t, gone+" does not answer")
			}
			_, err := backup.Run(t.Context(), reach(c, gone), only(open(t, mem.New())), r)
			if !errors.Is(err, cluster.ErrSilent) {
				t.Errorf("the dead one alone: %v", err)
			}
			c.Restart(t)
		})
	}
}

func TestRealCompareMembers(t *testing.T) {
	c := start(t, servers.Options{})
	servers.Fill(t, c.Client(t), 1, servers.FillOptions{})
	r, _ := request(t)
	r.CompareMembers = true
	leader := c.Leader(t)
	victim := (leader + 1) % 3

	l := &listener{}
	result := mustRun(t, reach(c), open(t, mem.New()), r, l)
	if result.Diverged != "" {
		t.Errorf("a healthy cluster has diverged: %s", result.Diverged)
	}
	l.wantWarnings(t)

	// A member that hangs in the middle: its connection stays and delivers nothing.
	l = &listener{}
	result, err := during(t, l, reach(c), r, func() { c.Pause(t, victim) })
	if err != nil || result.Diverged != "" {
		t.Errorf("a hanging member: %v, %s", err, result.Diverged)
	}
	l.wantWarnings(t, "not compared: hash the key space of "+c.Members[victim].ClientURL)
	// One that hangs from the start.
	l = &listener{}
	mustRun(t, reach(c), open(t, mem.New()), r, l)
	l.wantWarnings(t, c.Members[victim].ClientURL+" does not answer")
	c.Resume(t, victim)

	c.Stop(t, victim)
	err = testdb.ChangeLast(filepath.Join(c.Members[victim].DataDir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	c.Restart(t, victim)
	to := open(t, mem.New())
	result, err = backup.Run(t.Context(), reach(c), only(to), r)
	if !errors.Is(err, backup.ErrDiverged) || !slices.Equal(listed(t, to), append(listed(t, to)[:0:0], result.ID)) {
		t.Fatalf("error %v, listed %v", err, listed(t, to))
	}
	wantBothHashes(t, c, result)
}

// wantBothHashes fails unless the mark has the hash of each member.
func wantBothHashes(t *testing.T, c *servers.Cluster, result backup.Result) {
	t.Helper()
	client, different := c.Client(t), map[string]bool{}
	for _, m := range c.Members {
		live, err := client.HashKV(t.Context(), m.ClientURL, result.Revision)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%x has %08x", live.Header.MemberId, live.Hash)
		different[fmt.Sprint(live.Hash)] = true
		if !strings.Contains(result.Diverged, text) {
			t.Errorf("diverged %q, want %q in it", result.Diverged, text)
		}
	}
	if len(different) != 2 {
		t.Errorf("the members have %d hashes", len(different))
	}
}

// during runs a backup that pauses in the middle of the stream while act runs.
func during(
	t *testing.T, l *listener, cfg cluster.Config, r backup.Request, act func(),
) (result backup.Result, err error) {
	t.Helper()
	reached, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.hear = func(_ int, e storage.Event) {
		if e.Stage == "stream" && e.Done > 0 {
			once.Do(func() { close(reached); <-goOn })
		}
	}
	to := open(t, mem.New())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	go func() {
		defer close(ended)
		result, err = backup.Run(ctx, cfg, only(to), reporting(r, l.report))
	}()
	select {
	case <-reached:
		act()
	case <-ended:
		t.Fatalf("it ended before it was halfway: %v", err)
	}
	close(goOn)
	<-ended
	if err != nil {
		wantNothing(t, to)
	} else {
		wantNothing(t, to, result.ID)
	}
	return result, err
}

func TestRealServersThatChangeMeanwhile(t *testing.T) {
	c := start(t, servers.Options{})
	fillBig(t, c.Client(t), 64)
	r, _ := request(t)
	leader := c.Leader(t)

	result, err := during(t, &listener{}, reach(c), r, func() { c.MoveLeader(t, (leader+1)%3) })
	if err != nil || result.Member.Name != c.Members[leader].Name || result.Plain.Size < 64<<20 {
		t.Errorf("the leader moved away: %v, %+v, %+v", err, result.Member, result.Plain)
	}

	leader = c.Leader(t)
	l := &listener{}
	patient := reach(c)
	patient.CommandTimeout = time.Minute // a quorum answers only after the election
	result, err = during(t, l, patient, r, func() { c.Kill(t, leader) })
	if err != nil || result.Member.Name == c.Members[leader].Name || result.NoQuorum || result.Plain.Size < 64<<20 {
		t.Errorf("the member was killed: %v, %+v, no quorum %t, %+v", err, result.Member, result.NoQuorum, result.Plain)
	}
	said := strings.Join(l.warnings(), "\n")
	if !strings.Contains(said, "read the snapshot of "+c.Members[leader].ClientURL+" after ") {
		t.Errorf("warnings:\n%s", said)
	}
}

// fillBig writes count values of 1 MiB that do not compress.
func fillBig(t *testing.T, client *clientv3.Client, count int) {
	t.Helper()
	random, value := rand.NewChaCha8([32]byte{}), make([]byte, 1<<20)
	for i := range count {
		random.Read(value) // never fails
		put(t, client, fmt.Sprint("/big/", i), string(value))
	}
}
