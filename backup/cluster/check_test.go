package cluster_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// longAgo returns a time at which the tests' certificates, which last for a day, had more than a month left.
func longAgo() time.Time { return time.Now().Add(-40 * 24 * time.Hour) }

func checkCluster(t *testing.T, cfg cluster.Config, o cluster.CheckOptions) []check.Line {
	t.Helper()
	if o.Now.IsZero() {
		o.Now = longAgo()
	}
	lines := cluster.Check(t.Context(), cfg, o, nil)
	for _, l := range lines {
		if l.Seen == "" || l.Verdict == check.Wanting && l.Cure == "" || strings.Contains(l.Seen, "\n") {
			t.Errorf("not a good line: %+v", l)
		}
		if cfg.Password != "" && strings.Contains(l.Seen+l.Cure, cfg.Password) {
			t.Errorf("the password is in %+v", l)
		}
	}
	if len(lines) != 11 {
		t.Errorf("%d lines: %v", len(lines), lines)
	}
	return lines
}

// wantLines fails unless every line is ok except those in except.
func wantLines(t *testing.T, lines []check.Line, except map[string]check.Verdict) {
	t.Helper()
	for _, l := range lines {
		want := check.OK
		v, ok := except[l.Name]
		if ok {
			want = v
		}
		if l.Verdict != want {
			t.Errorf("%q is %s, want %s: %s", l.Name, l.Verdict, want, l.Seen)
		}
	}
}

func wantSaid(t *testing.T, lines []check.Line, name string, words ...string) {
	t.Helper()
	i := slices.IndexFunc(lines, func(l check.Line) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("no line %q", name)
	}
	for _, word := range words {
		if !strings.Contains(lines[i].Seen+" "+lines[i].Cure, word) {
			t.Errorf("%q says %q, cure %q; want %q", name, lines[i].Seen, lines[i].Cure, word)
		}
	}
}

type verdicts = map[string]check.Verdict

func TestCheckOverTLS(t *testing.T) {
	t.Parallel()
	files := servers.NewCertificates(t)
	url, _ := startEtcd(t, overTLS(t, files))
	cfg := at(url)
	cfg.CACert, cfg.Cert, cfg.Key = files.CA, files.Cert, files.Key
	lines := checkCluster(t, cfg, cluster.CheckOptions{})
	wantLines(t, lines, verdicts{"HashKV equal": check.NotRun})
	wantSaid(t, lines, "quorum and leader", url+" leads", "1 of 1", "0 more may fail")
	wantSaid(t, lines, "server certificates", "in 40 days")
	wantSaid(t, lines, "client certificate", files.Cert, "in 40 days")
	wantSaid(t, lines, "database size", "% of the quota")

	for now, words := range map[time.Time]string{
		time.Now(): "in 0 days", time.Now().Add(48 * time.Hour): "ran out on", time.Now().Add(-28 * 24 * time.Hour): "in 28 days",
	} {
		lines := checkCluster(t, cfg, cluster.CheckOptions{Now: now})
		wantLines(t, lines, verdicts{
			"HashKV equal": check.NotRun, "server certificates": check.Wanting, "client certificate": check.Wanting,
		})
		wantSaid(t, lines, "server certificates", words, "renew")
		wantSaid(t, lines, "client certificate", words)
	}

	// An untrusted certificate is read too: its expiry may be the reason why clients cannot connect.
	cfg.CACert = servers.NewCertificates(t).CA
	lines = checkCluster(t, cfg, cluster.CheckOptions{Now: time.Now()})
	wantSaid(t, lines, "endpoints answer", "unknown authority", "--cacert")
	wantSaid(t, lines, "server certificates", "runs out")
	wantSaid(t, lines, "alarms", `"endpoints answer" failed`)
}

func TestCheckPlain(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	lines := checkCluster(t, at(url), cluster.CheckOptions{})
	wantLines(t, lines, verdicts{
		"HashKV equal": check.NotRun, "server certificates": check.Note, "client certificate": check.NotRun, "users": check.Note,
	})
	wantSaid(t, lines, "server certificates", "no TLS")
}

func TestCheckAlarmAndQuota(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = 1 << 20 })
	client := clientOf(t, url, nil)
	// The member refuses first, and raises the alarm a little later. Directly after its start it may refuse for other
	// reasons.
	for end := time.Now().Add(30 * time.Second); ; {
		_, _ = client.Put(t.Context(), "key", strings.Repeat("x", 40_000))
		alarms, err := client.AlarmList(t.Context())
		if err == nil && len(alarms.Alarms) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the quota raises no alarm: %v", err)
		}
	}
	lines := checkCluster(t, at(url), cluster.CheckOptions{})
	wantLines(t, lines, verdicts{
		"HashKV equal": check.NotRun, "server certificates": check.Note, "client certificate": check.NotRun, "users": check.Note,
		"alarms": check.Wanting, "database size": check.Wanting,
	})
	wantSaid(t, lines, "alarms", "NOSPACE", "disarm")
	wantSaid(t, lines, "database size", "accepts no more writes")
}

func TestCheckUsers(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	enableUsers(t, clientOf(t, url, nil))
	as := func(user string) cluster.Config {
		cfg := at(url)
		cfg.User, cfg.Password = user, rootPassword
		return cfg
	}
	base := verdicts{"HashKV equal": check.NotRun, "server certificates": check.Note, "client certificate": check.NotRun}
	lines := checkCluster(t, as("root"), cluster.CheckOptions{})
	wantLines(t, lines, base)
	wantSaid(t, lines, "users", "authentication is enabled")
	lines = checkCluster(t, as("alice"), cluster.CheckOptions{})
	wantSaid(t, lines, "can take snapshots", "permission denied", "role root")
	if !slices.ContainsFunc(lines, func(l check.Line) bool { return l.Verdict == check.Wanting }) {
		t.Error("nothing is wanting for alice")
	}
}

func TestCheckInterrupted(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	lines := cluster.Check(ctx, at(url), cluster.CheckOptions{}, func(e storage.Event) {
		if e.Object == "alarms" {
			cancel()
		}
	})
	wantSaid(t, lines, "database size", "interrupted")
}

func TestCheckWithoutAnswers(t *testing.T) {
	t.Parallel()
	dead := servers.FreeURLs(t, 1)[0]
	lines := checkCluster(t, at(dead), cluster.CheckOptions{})
	wantSaid(t, lines, "endpoints answer", "connection refused")
	wantSaid(t, lines, "HashKV equal", `"endpoints answer" failed`)
}

func TestCheckClientCertificateFile(t *testing.T) {
	t.Parallel()
	files := servers.NewCertificates(t)
	cfg := at(servers.FreeTLSURLs(t, 1)[0])
	cfg.CACert, cfg.Cert, cfg.Key = files.CA, files.Cert, files.Key
	err := cfg.Validate()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cert = files.Key
	for _, l := range checkCluster(t, cfg, cluster.CheckOptions{}) {
		if l.Name == "client certificate" && l.Verdict != check.Unknown {
			t.Errorf("a key for a certificate: %+v", l)
		}
		if l.Name == "server certificates" && l.Verdict != check.Unknown {
			t.Errorf("a dead server's certificate: %+v", l)
		}
	}
	_, err = os.Stat(files.Key)
	if err != nil {
		t.Error(err)
	}
}

// TestCheckFakeMembers checks a cluster with two versions, a learner, and a member that was never started.
func TestCheckFakeMembers(t *testing.T) {
	t.Parallel()
	first, second := twoMembers()
	first.version, second.version, second.learner = "3.7.3", "3.6.1", true
	urls := serveBoth(t, first, second)
	first.members[1].IsLearner = true
	first.members = append(first.members, &pb.Member{ID: 3})
	lines := checkCluster(t, at(urls...), cluster.CheckOptions{NoHash: true})
	wantSaid(t, lines, "endpoints answer", "member 3 has never been started")
	wantSaid(t, lines, "one version", "3.6.1 and 3.7.3")
	wantSaid(t, lines, "members in step", "learners: "+urls[1])
	wantSaid(t, lines, "database size", "do not report")
	wantSaid(t, lines, "HashKV equal", "--no-hash")
	wantSaid(t, lines, "quorum and leader", "1 of 2 voting members answer")
}

// TestCheckFakeDivergence checks two members with different hashes, one of which lags.
func TestCheckFakeDivergence(t *testing.T) {
	t.Parallel()
	if testing.Short() { // the member that lags is given ten seconds
		return
	}
	first, second := twoMembers()
	first.hash, second.hash, first.applied, second.applied = 0xaa, 0xbb, 90, 70
	urls := serveBoth(t, first, second)
	lines := checkCluster(t, at(urls...), cluster.CheckOptions{})
	wantSaid(t, lines, "HashKV equal", "1 has 000000aa", "2 has 000000bb")
	wantSaid(t, lines, "members in step", urls[1]+" lags by 20 entries")
}

// TestCheckMixedVersions checks that different hashes of different versions are no difference of the data.
func TestCheckMixedVersions(t *testing.T) {
	t.Parallel()
	first, second := twoMembers()
	first.hash, second.hash, first.version, second.version = 0xaa, 0xbb, "3.5.16", "3.5.15"
	urls := serveBoth(t, first, second)
	lines := checkCluster(t, at(urls...), cluster.CheckOptions{})
	i := slices.IndexFunc(lines, func(l check.Line) bool { return l.Name == "HashKV equal" })
	if lines[i].Verdict != check.NotRun {
		t.Errorf("got %+v", lines[i])
	}
	wantSaid(t, lines, "HashKV equal", "3.5.15 and 3.5.16")
}

// TestCheckFakeQuota checks that the size is that of the member with the largest share of its quota.
func TestCheckFakeQuota(t *testing.T) {
	t.Parallel()
	first, second := twoMembers()
	first.size, first.quota, second.size, second.quota = 950, 1000, 2000, 4000
	urls := serveBoth(t, first, second)
	lines := checkCluster(t, at(urls...), cluster.CheckOptions{NoHash: true})
	wantSaid(t, lines, "database size", "950 bytes", "95%")
}

// TestCheckFakeRevisions checks that members with different revisions at one position of the log count as diverged,
// without a hash.
func TestCheckFakeRevisions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		applied, revision [2]uint64
		words             string // "": they fit
	}{
		"equal":                   {[2]uint64{90, 90}, [2]uint64{50, 50}, ""},
		"one is behind":           {[2]uint64{90, 70}, [2]uint64{50, 40}, ""},
		"unequal":                 {[2]uint64{90, 90}, [2]uint64{50, 47}, "1 is at revision 50 at position 90 of the log, 2 at revision 47 at position 90"},
		"more than requests":      {[2]uint64{70, 90}, [2]uint64{29, 50}, "1 is at revision 29 at position 70 of the log, 2 at revision 50 at position 90"},
		"the one behind has more": {[2]uint64{70, 90}, [2]uint64{51, 50}, "2 at revision 50 at position 90"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := twoMembers()
			first.applied, second.applied = test.applied[0], test.applied[1]
			first.revision, second.revision = int64(test.revision[0]), int64(test.revision[1])
			urls := serveBoth(t, first, second)
			lines := checkCluster(t, at(urls...), cluster.CheckOptions{NoHash: true})
			i := slices.IndexFunc(lines, func(l check.Line) bool { return l.Name == "HashKV equal" })
			want := check.NotRun
			if test.words != "" {
				want = check.Wanting
			}
			l := lines[i]
			if l.Verdict != want || !strings.Contains(l.Seen, test.words) {
				t.Errorf("got %+v, want %s, %q", l, want, test.words)
			}
		})
	}
}

// TestAgreementOfRevisions checks that members agree only if all of them answer and were seen at one position; a
// missing member may differ.
func TestAgreementOfRevisions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		applied [2]uint64
		third   bool // a member that does not answer
		equal   bool
	}{
		"equal":              {[2]uint64{90, 90}, false, true},
		"never side by side": {[2]uint64{90, 89}, false, false},
		"one is silent":      {[2]uint64{90, 90}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := twoMembers()
			first.applied, second.applied = test.applied[0], test.applied[1]
			urls := serveBoth(t, first, second)
			if test.third {
				first.members = append(first.members, &pb.Member{ID: 3, ClientURLs: servers.FreeURLs(t, 1)})
			}
			c, err := cluster.Connect(t.Context(), at(urls[0]))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got := c.CompareRevisions(t.Context())
			if got.Difference != "" || got.Equal != test.equal {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestHashesAreComparedWithinTheLimit checks that members whose writes would stall for too long are not asked for a hash, nor are
// members whose versions hash equal key spaces differently.
func TestHashesAreComparedWithinTheLimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hash    uint32 // of the second
		inUse   int64  // of the second
		version string // of the second
		want    cluster.Agreement
		words   string // of the error; "": none
	}{
		"equal":           {0xaa, 10_000, "3.7.3", cluster.Agreement{Equal: true}, ""},
		"unequal":         {0xbb, 10_000, "3.7.3", cluster.Agreement{Difference: "HashKV at revision 7: 1 has 000000aa, 2 has 000000bb"}, ""},
		"too large":       {0xbb, 20_000, "3.7.3", cluster.Agreement{}, cluster.ErrTooLarge.Error()},
		"another version": {0xaa, 10_000, "3.7.1", cluster.Agreement{Equal: true}, ""},
		"an old version":  {0xbb, 10_000, "3.5.15", cluster.Agreement{}, "3.5.15 and 3.7.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := twoMembers()
			first.hash, second.hash, second.inUse, second.version = 0xaa, test.hash, test.inUse, test.version
			urls := serveBoth(t, first, second)
			c, err := cluster.Connect(t.Context(), at(urls...))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := c.CompareHashes(t.Context(), cluster.HashLimit{Density: catalog.Density{Entries: 20, Bytes: 100}, Stall: 2 * time.Millisecond})
			if got != test.want || (err == nil) != (test.words == "") || err != nil && !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestCheckThree checks a real cluster with all members, with one dead, and with two dead.
func TestCheckThree(t *testing.T) {
	if testing.Short() {
		t.Skip("real servers do not run with -short")
	}
	t.Parallel()
	c := servers.Start(t, servers.Options{Members: 3, TLS: true})
	cfg := at(c.Endpoints()...)
	cfg.CACert, cfg.Cert, cfg.Key = c.Certificates.CA, c.Certificates.Cert, c.Certificates.Key
	client := c.Client(t)
	for range 20 {
		_, err := client.Put(t.Context(), "key", "value")
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.Compact(t.Context(), 5, clientv3.WithCompactPhysical())
	if err != nil {
		t.Fatal(err)
	}
	lines := checkCluster(t, cfg, cluster.CheckOptions{})
	wantLines(t, lines, nil)
	wantSaid(t, lines, "HashKV equal", "3 members")
	wantSaid(t, lines, "quorum and leader", "3 of 3", "1 more may fail")

	c.Kill(t, 0)
	wantQuorum(t, c, cfg)
	lines = checkCluster(t, cfg, cluster.CheckOptions{})
	wantLines(t, lines, verdicts{"endpoints answer": check.Wanting, "server certificates": check.Unknown})
	wantSaid(t, lines, "endpoints answer", c.Members[0].ClientURL, "connection refused")
	wantSaid(t, lines, "quorum and leader", "2 of 3", "0 more may fail")
	wantSaid(t, lines, "HashKV equal", "2 members")

	c.Kill(t, 1)
	cfg.CommandTimeout = time.Second
	lines = checkCluster(t, cfg, cluster.CheckOptions{NoHash: true})
	wantSaid(t, lines, "quorum and leader", "no quorum", "no-quorum")
	wantSaid(t, lines, "can take snapshots", "has begun to send one")
}

// wantQuorum waits until the other members have found a leader.
func wantQuorum(t *testing.T, c *servers.Cluster, cfg cluster.Config) {
	t.Helper()
	cfg.Endpoints = []string{c.Members[1].ClientURL}
	for range 100 {
		found, err := cluster.Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		led := found.Quorum && found.Leader() != nil
		found.Close()
		if led {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("no leader")
}
