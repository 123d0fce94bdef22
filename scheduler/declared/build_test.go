package declared_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// valid returns a declaration without a fault, and its repositories.
func valid() (declared.Cluster, map[string]declared.Repository) {
	return declared.Cluster{
		Etcd:         spec.Etcd{Endpoints: []string{"http://127.0.0.1:2379"}, DialTimeout: time.Second, CommandTimeout: time.Second},
		Repositories: []string{"main"}, Require: spec.Any, Schedule: declared.Schedule{Cron: "@daily", Zone: "UTC"},
		Triggers: spec.Triggers{Every: time.Minute},
		Backup:   declared.Backup{From: "leader", MaxStream: time.Minute, Grace: time.Hour, Timeout: time.Hour},
	}, map[string]declared.Repository{"main": {URL: "s3://backups/{{cluster}}"}, "other": {URL: "s3://backups/other"}}
}

// build returns the Spec of cluster prod, and the paths of all faults with their errors.
func build(c declared.Cluster, repositories map[string]declared.Repository) (spec.Spec, []string) {
	all, faults := declared.BuildRepositories(repositories)
	s, more := declared.Build("prod", c, all)
	var texts []string
	for _, f := range append(faults, more...) {
		texts = append(texts, strings.Join(f.Path, ".")+": "+f.Err.Error())
	}
	return s, texts
}

func TestBuild(t *testing.T) {
	c, repositories := valid()
	s, faults := build(c, repositories)
	if len(faults) > 0 {
		t.Fatalf("faults %q", faults)
	}
	r := s.Repositories[0]
	if r.URL != "s3://backups/prod" || r.Pattern != "s3://backups/{{cluster}}" || r.Parallel != 4 || s.Schedule.String() != "@daily" || !s.Drill.None() {
		t.Errorf("%+v", s)
	}
}

func TestBuildNamesTheField(t *testing.T) {
	type repositories = map[string]declared.Repository
	for want, change := range map[string]func(*declared.Cluster, repositories){
		"etcd.endpoints: no endpoints":              func(c *declared.Cluster, _ repositories) { c.Etcd.Endpoints = nil },
		"etcd.user: user without a password":        func(c *declared.Cluster, _ repositories) { c.Etcd.User = "root" },
		"backup.from: from must be":                 func(c *declared.Cluster, _ repositories) { c.Backup.From = "prod" },
		"schedule.cron: bad schedule":               func(c *declared.Cluster, _ repositories) { c.Schedule.Cron = "61" },
		"schedule.zone: unknown time zone":          func(c *declared.Cluster, _ repositories) { c.Schedule.Zone = "Mars" },
		"repositories: repository \"gone\" is not":  func(c *declared.Cluster, _ repositories) { c.Repositories = []string{"gone"} },
		"labels.trigger: label trigger is reserved": func(c *declared.Cluster, _ repositories) { c.Labels = map[string]string{"trigger": "x"} },
		"drill.assert: \"x\": use":                  func(c *declared.Cluster, _ repositories) { c.Drill.Assert = []string{"x"} },
		"drill.identities: ":                        func(c *declared.Cluster, _ repositories) { c.Drill.Identities = []string{"x"} },
		"main.limit: limit must be":                 func(_ *declared.Cluster, r repositories) { r["main"] = declared.Repository{URL: "file:///a", Limit: 1} },
		"main.signKey: ": func(_ *declared.Cluster, r repositories) {
			r["main"] = declared.Repository{URL: "file:///a", SignKey: "x"}
		},
		"repositories.main.credentials: repository main: bad credentials: no set of names": func(_ *declared.Cluster, r repositories) {
			r["main"] = declared.Repository{URL: "s3://a-bucket", Credentials: map[string][]byte{}}
		},
		"repositories.main.credentials: repository main: bad credentials: these are for gs://": func(_ *declared.Cluster, r repositories) {
			r["main"] = declared.Repository{URL: "s3://backups/{{cluster}}", Credentials: map[string][]byte{"access-token": []byte("x")}}
		},
		"repositories.main.credentials: repository main: bad credentials: a directory needs none": func(_ *declared.Cluster, r repositories) {
			r["main"] = declared.Repository{URL: "file:///a", Credentials: map[string][]byte{"access-token": []byte("x")}}
		},
		"main.url: bad repository URL":               func(_ *declared.Cluster, r repositories) { r["main"] = declared.Repository{URL: "ftp://a"} },
		"other.url: the URL is that of repository m": func(_ *declared.Cluster, r repositories) { r["main"] = r["other"] },
		"repositories: repository main has the same URL for this cluster as repository other": func(_ *declared.Cluster, r repositories) {
			r["other"] = declared.Repository{URL: "s3://backups/prod"}
		},
	} {
		c, r := valid()
		change(&c, r)
		_, faults := build(c, r)
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, want) }) {
			t.Errorf("faults %q, want one that begins with %q", faults, want)
		}
	}
}

// The digest covers the declaration with its secrets, and the repositories that the cluster uses.
func TestBuildDigest(t *testing.T) {
	c, repositories := valid()
	first, _ := build(c, repositories)
	repositories["other"] = declared.Repository{URL: "s3://backups/another"}
	same, _ := build(c, repositories)
	if same.Digest != first.Digest {
		t.Error("a repository that the cluster does not use changes its digest")
	}
	c.Passphrase = "p4ssphrase"
	other, _ := build(c, repositories)
	c.Passphrase = ""
	repositories["main"] = declared.Repository{URL: "s3://backups/{{cluster}}", Parallel: 8}
	third, _ := build(c, repositories)
	if other.Digest == first.Digest || third.Digest == first.Digest || third.Digest == other.Digest {
		t.Error("a changed declaration has the same digest")
	}
}

// Each cluster can have a bucket of its own, whose name contains the cluster's.
func TestBuildBucketOfEachCluster(t *testing.T) {
	for _, url := range []string{"s3://{{cluster}}", "s3://etcd-{{cluster}}", "gs://{{cluster}}-etcd/p", "file:///srv/{{cluster}}"} {
		c, repositories := valid()
		repositories["main"] = declared.Repository{URL: url}
		s, faults := build(c, repositories)
		if len(faults) > 0 || s.Repositories[0].URL != strings.ReplaceAll(url, declared.Placeholder, "prod") {
			t.Errorf("%s: %q", url, faults)
		}
	}
}

// Unusable credentials refuse the clusters that use the repository, and no other.
func TestBuildCredentials(t *testing.T) {
	c, repositories := valid()
	first, _ := build(c, repositories)
	secret := map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("id"), "AWS_SECRET_ACCESS_KEY": []byte("secret")}
	repositories["main"] = declared.Repository{URL: "s3://backups/{{cluster}}", Credentials: secret}
	repositories["other"] = declared.Repository{URL: "s3://backups/other", Credentials: map[string][]byte{"x": nil}}
	s, faults := build(c, repositories)
	got, ok := s.Repositories[0].Credentials.AWS()
	if len(faults) > 0 || !ok || got.SecretAccessKey != "secret" || s.Digest == first.Digest {
		t.Errorf("%+v, digest %s, faults %q", got, s.Digest, faults)
	}
	secret["AWS_SECRET_ACCESS_KEY"] = []byte("renewed")
	renewed, _ := build(c, repositories)
	if renewed.Digest == s.Digest {
		t.Error("renewed credentials have the same digest")
	}
	c.Repositories = []string{"main", "other"}
	_, faults = build(c, repositories)
	if len(faults) != 1 {
		t.Errorf("faults %q, want one", faults)
	}
}

// The limits that Build checks equal those of the agent, whose package Build does not import because it links etcd.
func TestArchiveLimits(t *testing.T) {
	for _, test := range []struct {
		a  spec.Archive
		ok bool
	}{
		{spec.Archive{Flush: archive.MinFlush}, true},
		{spec.Archive{Flush: archive.MinFlush - 1}, false},
		{spec.Archive{Flush: time.Second, Spool: "/s", SpoolMax: archive.MinSpool * spec.SegmentSize}, true},
		{spec.Archive{Flush: time.Second, Spool: "/s", SpoolMax: archive.MinSpool*spec.SegmentSize - 1}, false},
	} {
		c, repositories := valid()
		c.Archive = test.a
		_, faults := build(c, repositories)
		if (len(faults) == 0) != test.ok {
			t.Errorf("%+v: faults %q", test.a, faults)
		}
	}
}
