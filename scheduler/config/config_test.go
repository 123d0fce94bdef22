package config_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// write puts a file into dir, in one step, and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func nothing(string) string { return "" }

// load loads text in a directory of its own. DIR in text means that directory.
func load(t testing.TB, text string, getenv func(string) string) (config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "password", "s3cret\n")
	write(t, dir, "recipients.txt", "# the vault's\n"+recipient+"\n")
	write(t, dir, "empty", "")
	return config.Load(write(t, dir, "dr.yaml", strings.ReplaceAll(text, "DIR", dir)), getenv)
}

const full = `
concurrency: 8
lease: 1m
repositories:
  main:
    url: s3://backups/etcd?region=eu-central-1
    lock: {for: 30d, mode: compliance}
    parallel: 8
  offsite:
    url: file:///srv/offsite
    lock: {for: 12h}
    limit: 20MiB/s
defaults:
  etcd: {user: root, passwordEnv: ETCD_PASSWORD, dialTimeout: 3s}
  repositories: [main]
  recipients: [` + recipient + `]
  schedule: {cron: "30 2 * * *", zone: Europe/Berlin, jitter: 10m}
  retention: {daily: 7, window: 2d}
  archive: {flush: 500ms, spool: /var/spool/dr/log}
  labels: {site: fra}
clusters:
  prod:
    etcd:
      endpoints: [https://10.0.0.1:2379, https://10.0.0.2:2379]
      passwordFile: DIR/password
      passwordEnv: ""
      insecureSkipTLSVerify: true
      commandTimeout: 7s
    repositories: [main, offsite]
    require: any
    recipients: []
    recipientsFile: DIR/recipients.txt
    schedule: {cron: "@every 6h"}
    triggers: {revisions: 100000, bytes: 1GiB, gap: true, every: 1m}
    retention:
      {last: 1, hourly: 2, daily: 3, weekly: 4, monthly: 5, yearly: 6, within: 1d12h, window: 14d, maxSize: 10GiB, minCopies: 2, zone: UTC}
    backup: {from: follower, noHash: true, compareMembers: true, maxStream: 10m, spool: /var/spool/dr, grace: 48h, timeout: 2h}
    archive: {flush: 1s, spool: /var/spool/dr/log, spoolMax: 1GiB}
    labels: {tier: gold}
    suspend: true
  test:
    etcd: {endpoints: [http://127.0.0.1:2379]}
  unarchived:
    etcd: {endpoints: [http://127.0.0.1:2379]}
    archive: {flush: 0s}
`

// described holds the parts of a Spec that can be compared.
type described struct {
	Cluster      string
	Etcd         spec.Etcd
	Repositories []spec.Repository
	Backup       spec.Backup
	Timeout      time.Duration
	Schedule     string
	Zone         string
	Triggers     spec.Triggers
	Retention    retention.Policy
	Archive      spec.Archive
	Suspend      bool
	Recipients   []string
}

func describe(s spec.Spec) described {
	d := described{
		s.Cluster, s.Etcd, s.Repositories, s.Backup, s.Timeout, s.Schedule.String(), s.Schedule.Zone().String(), s.Triggers, s.Retention,
		s.Archive, s.Suspend, s.Backup.To.Seal().Recipients,
	}
	d.Backup.To = spec.Backup{}.To
	return d
}

func TestLoad(t *testing.T) {
	c, err := load(t, full, func(name string) string { return map[string]string{"ETCD_PASSWORD": "from the environment"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	main := spec.Repository{Name: "main", URL: "s3://backups/etcd?region=eu-central-1", Parallel: 8}
	main.Policy.Lock = records.Lock{For: 30 * 24 * time.Hour, Compliance: true}
	offsite := spec.Repository{Name: "offsite", URL: "file:///srv/offsite", Parallel: 4, Limit: 20 << 20}
	offsite.Policy.Lock = records.Lock{For: 12 * time.Hour}
	want := []described{{
		Cluster: "prod",
		Etcd: spec.Etcd{
			Endpoints: []string{"https://10.0.0.1:2379", "https://10.0.0.2:2379"}, InsecureSkipVerify: true, User: "root", Password: "s3cret",
			DialTimeout: 3 * time.Second, CommandTimeout: 7 * time.Second,
		},
		Repositories: []spec.Repository{main, offsite},
		Backup: spec.Backup{
			From: "follower", NoHash: true, CompareMembers: true, MaxStream: 10 * time.Minute, Spool: "/var/spool/dr", Require: spec.Any,
			Grace: 48 * time.Hour, Labels: catalog.Labels{"site": "fra", "tier": "gold"},
		},
		Timeout: 2 * time.Hour, Schedule: "@every 6h", Zone: "Europe/Berlin",
		Triggers: spec.Triggers{Revisions: 100000, Bytes: 1 << 30, Gap: true, Every: time.Minute},
		Retention: retention.Policy{
			Last: 1, Hourly: 2, Daily: 3, Weekly: 4, Monthly: 5, Yearly: 6, Within: 36 * time.Hour, Window: 14 * 24 * time.Hour,
			MaxSize: 10 << 30, MinCopies: 2, Zone: time.UTC,
		},
		Archive: spec.Archive{Flush: time.Second, Spool: "/var/spool/dr/log", SpoolMax: 1 << 30},
		Suspend: true, Recipients: []string{recipient[:16]},
	}, {
		Cluster: "test",
		Etcd: spec.Etcd{
			Endpoints: []string{"http://127.0.0.1:2379"}, User: "root", Password: "from the environment",
			DialTimeout: 3 * time.Second, CommandTimeout: 5 * time.Second,
		},
		Repositories: []spec.Repository{main},
		Backup: spec.Backup{
			From: "leader", MaxStream: 5 * time.Minute, Require: spec.Any, Grace: 24 * time.Hour, Labels: catalog.Labels{"site": "fra"},
		},
		Timeout: 6 * time.Hour, Schedule: "30 2 * * *", Zone: "Europe/Berlin", Triggers: spec.Triggers{Every: 5 * time.Minute},
		Retention: retention.Policy{Daily: 7, Window: 48 * time.Hour, Zone: berlin}, Recipients: []string{recipient[:16]},
		Archive: spec.Archive{Flush: 500 * time.Millisecond, Spool: "/var/spool/dr/log", SpoolMax: 2 << 30},
	}}
	got := []described{describe(c.Specs[0]), describe(c.Specs[1])}
	diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() }),
		cmp.Comparer(func(a, b sign.Key) bool { return true }), cmp.Comparer(func(a, b sign.Trust) bool { return a.None() == b.None() }),
		cmp.Comparer(func(a, b spec.Backup) bool {
			a.To, b.To = spec.Backup{}.To, spec.Backup{}.To
			return sameRequest(a, b)
		}))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	off := c.Specs[2].Archive
	if off != (spec.Archive{}) {
		t.Errorf("a flush of 0s archives: %+v", off)
	}
	if c.Concurrency != 8 || c.Lease != time.Minute || len(c.Specs) != 3 {
		t.Errorf("concurrency %d, lease %v, %d specs", c.Concurrency, c.Lease, len(c.Specs))
	}
}

// sameRequest compares all fields but the recipients, which are opaque.
func sameRequest(a, b spec.Backup) bool {
	return cmp.Equal(a.Labels, b.Labels) && a.From == b.From && a.NoHash == b.NoHash && a.CompareMembers == b.CompareMembers &&
		a.MaxStream == b.MaxStream && a.Spool == b.Spool && a.Require == b.Require && a.Grace == b.Grace
}

// minimal is the smallest valid configuration.
const minimal = `repositories:
  main: {url: "file:///srv/main"}
clusters:
  prod:
    etcd: {endpoints: [http://127.0.0.1:2379]}
    repositories: [main]
    schedule: {cron: "@daily"}
`

// with returns minimal with another line for the cluster, which is line 8 of the file.
func with(line string) string { return minimal + "    " + line + "\n" }

// Each fault is named, with its line and its remedy.
func TestLoadRefuses(t *testing.T) {
	_, signer, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		"":                              "the file is empty",
		"# nothing":                     "the file is empty",
		"a: [":                          ":1: ",
		"- prod":                        ":1: expected a mapping, got a list",
		minimal + "---\nconcurrency: 2": "more than one YAML document",
		"concurrency: 0\n" + minimal:    ":1: concurrency must be at least 1",
		"concurrency: x\n" + minimal:    ":1: expected a whole number, got a string",
		"lease: 1ms\n" + minimal:        ":1: lease must be from 1s to 10m0s",
		"lease: 1h\n" + minimal:         ":1: lease must be from 1s to 10m0s",
		"lease: [1s]\n" + minimal:       ":1: use a form like 90s",
		"leese: 1m\n" + minimal:         `:1: unknown key "leese"`,
		"repositories: {}":              "no clusters",
		strings.Replace(minimal, "file:///srv/main", "ftp://x", 1):                                                  ":2: bad repository URL",
		strings.Replace(minimal, "file:///srv/main", "file://u:p4ss@h/d", 1):                                        ":2: bad repository URL",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///srv/main}\nclusters:", 1):                     ":3: the URL is that of repository main",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///srv/x/../main/}\nclusters:", 1):               ":3: the URL is that of repository main",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, parallel: 65}\nclusters:", 1):              ":3: parallel must be from 1 to 64",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, limit: 1KiB}\nclusters:", 1):               ":3: limit must be at least",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, lock: {mode: compliance}}\nclusters:", 1):  ":3: a lock needs a time",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, lock: {for: 1d, mode: x}}\nclusters:", 1):  ":3: a lock needs a time",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, signKeyFile: DIR/none}\nclusters:", 1):     "no such file",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, signKeyFile: DIR/password}\nclusters:", 1): "not a minisign secret key",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, trust: [x]}\nclusters:", 1):                ":3: ",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, trust: ["+signer+"]}\nclusters:", 1):       ":3: trust must include the public key of the signing key",
		strings.Replace(minimal, "clusters:", "  other: {url: file:///o, signKey: x}\nclusters:", 1):                "use signKeyFile",
		strings.Replace(minimal, "[main]", "[main, other]", 1):                                                      ":6: repository \"other\" is not among the repositories",
		strings.Replace(minimal, "[main]", "[main, main]", 1):                                                       ":6: repository \"main\" is listed twice",
		strings.Replace(minimal, "[main]", "[]", 1):                                                                 ":6: no repositories",
		strings.Replace(minimal, "[main]", "main", 1):                                                               ":6: expected a list, got a string",
		strings.Replace(minimal, "prod:", "a/b:", 1):                                                                ":4: malformed name",
		strings.Replace(minimal, "@daily", "61 * * * *", 1):                                                         ":7: bad schedule",
		strings.Replace(minimal, `"@daily"`, `"@daily", zone: Mars`, 1):                                             `:7: unknown time zone "Mars"`,
		strings.Replace(minimal, `"@daily"`, `"@daily", zone: Local`, 1):                                            `:7: unknown time zone "Local"`,
		strings.Replace(minimal, `"@daily"`, `"@daily", jitter: -1s`, 1):                                            ":7: use a form like",
		strings.Replace(minimal, "schedule:", "labels:", 1):                                                         ":4: no schedule: set schedule",
		strings.Replace(minimal, "[http://127.0.0.1:2379]", "[]", 1):                                                ":5: no endpoints",
		strings.Replace(minimal, "[http", "[htp", 1):                                                                ":5: bad etcd client configuration",
		strings.Replace(minimal, "2379]", "2379], user: root", 1):                                                   ":5: user without a password",
		strings.Replace(minimal, "2379]", "2379], user: 'root:pw'", 1):                                              ":5: user must not contain a colon",
		strings.Replace(minimal, "2379]", "2379], password: hunter2", 1):                                            `:5: unknown key "password": secrets are not allowed in this file: use passwordFile`,
		strings.Replace(minimal, "2379]", "2379], user: u, passwordEnv: NONE", 1):                                   "the variable NONE is not set",
		strings.Replace(minimal, "2379]", "2379], user: u, passwordFile: DIR/none", 1):                              "no such file",
		strings.Replace(minimal, "2379]", "2379], user: u, passwordFile: DIR/empty", 1):                             "empty is empty",
		strings.Replace(minimal, "2379]", "2379], user: u, passwordEnv: X, passwordFile: DIR/password", 1):          "exclude each other: use one",
		strings.Replace(minimal, "2379]", "2379], cert: /none, key: /none", 1):                                      ":5: ",
		strings.Replace(minimal, "2379]", "2379], dialTimeout: 0s", 1):                                              ":5: dialTimeout",
		minimal + "  prod: {}\n":                                         `:8: mapping key "prod" already defined at line 4`,
		with("require: some"):                                            ":8: require must be all or any",
		with("recipients: [age1x]"):                                      ":8: ",
		with("recipientsFile: DIR/none"):                                 ":8: ",
		with("passphraseFile: DIR/none"):                                 ":8: ",
		with("passphrase: x"):                                            "use passphraseFile or passphraseEnv",
		with("triggers: {revisions: -1}"):                                ":8: revisions must not be negative",
		with("triggers: {every: 10ms}"):                                  ":8: revisions must not be negative, and every",
		with("triggers: {bytes: many}"):                                  ":8: use a form like 20MiB",
		with("retention: {daily: -1}"):                                   ":8: bad retention policy",
		with("retention: {minCopies: 1}"):                                ":8: bad retention policy",
		with("retention: {daily: 1, zone: Mars}"):                        ":8: unknown time zone",
		with("backup: {from: nobody}"):                                   ":8: from must be leader",
		with("backup: {maxStream: 0s}"):                                  ":8: maxStream, grace and timeout",
		with("backup: {timeout: 0s}"):                                    ":8: maxStream, grace and timeout",
		with("archive: {flush: 50ms}"):                                   ":8: flush must be at least 100ms",
		with("archive: {flush: 1s, spoolMax: 1GiB}"):                     ":8: spoolMax without a spool",
		with("archive: {flush: 1s, spool: /s, spoolMax: 1MiB}"):          ":8: spoolMax must be at least 64 MiB",
		with("archive: {flush: 1s}\n    passphraseEnv: PASS"):            ":8: the log cannot be encrypted with a passphrase",
		with("archive: {flash: 1s}"):                                     `:8: unknown key "flash"`,
		with("labels: {archive: x}"):                                     ":8: label archive is reserved",
		with("drill: {assert: [x]}"):                                     ":8: \"x\": use key=",
		with("drill: {repository: other}"):                               ":8: repository \"other\" is not in the cluster's repositories",
		with("drill: {schedule: {cron: x}}"):                             ":8: bad schedule",
		with("drill: {schedule: {cron: '@daily', zone: Mars}}"):          ":8: unknown time zone",
		with("drill: {memoryLimit: 1MiB}"):                               ":8: memoryLimit must be at least 64MiB",
		with("drill: {nice: 20}"):                                        ":8: nice must be from 0 to 19",
		with("drill: {identityFiles: [DIR/none]}"):                       ":8: open ",
		with("drill: {identityFiles: [DIR/password]}"):                   "not an age identity",
		with("drill: {identity: AGE-SECRET-KEY-1}"):                      "use identityFiles",
		with("drill: {passphraseEnv: NONE}"):                             "the variable NONE is not set",
		with("drill: [x]"):                                               ":8: expected a mapping, got a list",
		with("labels: {schedule: x}"):                                    ":8: label schedule is reserved",
		with("labels: [x]"):                                              ":8: expected a mapping, got a list",
		with("suspend: perhaps"):                                         ":8: expected true or false, got a string",
		with("recipients: [" + recipient + "]\n    passphraseEnv: PASS"): "no other recipient",
		strings.Replace(minimal, "main\"}", "main\", limit: 1MiB}", 1):   "backup.spool",
		strings.Replace(minimal, "clusters:", "defaults:\n  retention: {daily: -1}\nclusters:", 1): ":4: bad retention policy",
		strings.Replace(minimal, "2379]", "2379], cacert: DIR/password", 1):                        ":5: ",
	} {
		_, err := load(t, text, func(name string) string { return map[string]string{"PASS": "p4ssphrase", "X": "x"}[name] })
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\nis %v,\nwant an error with %q", text, err, says)
			continue
		}
		for _, secret := range []string{"hunter2", "s3cret", "p4ss", "root:pw"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds a secret: %v", err)
			}
		}
	}
}

func TestLoadOfNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := config.Load(path, nothing)
	if !errors.Is(err, config.ErrConfig) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Load reports all faults together, in the file's order.
func TestLoadReportsEveryFault(t *testing.T) {
	text := "lease: 1h\n" + strings.Replace(with("require: some"), "@daily", "@never", 1)
	_, err := load(t, text, nothing)
	if err == nil {
		t.Fatal("no error")
	}
	var lines []string
	for _, found := range regexp.MustCompile(`dr\.yaml:([0-9]+): `).FindAllStringSubmatch(err.Error(), -1) {
		lines = append(lines, found[1])
	}
	want := []string{"1", "8", "9"}
	if !slices.Equal(lines, want) {
		t.Errorf("the lines %q, want %q: %v", lines, want, err)
	}
}

// The digest of a Spec changes exactly when its sources change.
func TestDigest(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "password", "s3cret")
	write(t, dir, "recipients.txt", recipient)
	text := strings.ReplaceAll(full, "DIR", dir)
	digests := func(text, password string) (prod, test string) {
		t.Helper()
		c, err := config.Load(write(t, dir, "dr.yaml", text), func(string) string { return password })
		if err != nil {
			t.Fatal(err)
		}
		return c.Specs[0].Digest, c.Specs[1].Digest
	}
	prod, test := digests(text, "x")
	p, q := digests("# a remark\n"+text, "x")
	if p != prod || q != test {
		t.Error("a remark changes something")
	}
	p, q = digests(text, "y")
	if p != prod || q == test {
		t.Error("another password changes nothing, or what does not use it")
	}
	p, q = digests(strings.Replace(text, "for: 12h", "for: 13h", 1), "x")
	if p == prod || q != test {
		t.Error("another repository changes nothing, or what does not use it")
	}
	p, q = digests(strings.Replace(text, "flush: 1s", "flush: 3s", 1), "x")
	if p == prod || q != test {
		t.Error("another flush changes nothing, or what does not use it")
	}
	p, q = digests(strings.Replace(text, "dialTimeout: 3s", "dialTimeout: 4s", 1), "x")
	if p == prod || q == test {
		t.Error("another default changes nothing")
	}
	write(t, dir, "password", "s3cret too")
	p, q = digests(text, "x")
	if p == prod || q != test {
		t.Error("another password in a file changes nothing, or what does not use it")
	}
}

// For any file, Load returns a configuration with usable Specs, or an error that names the file.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{minimal, full, "a: &a [*a]", "clusters: {a: null}", "clusters: {<<: {a: {}}}", "defaults: &d {labels: {a: b}}\nclusters: {x: *d}",
		"? [a]\n: b", "clusters: {a: {labels: {<<: 1}}}", "lease: 99999d", with("backup: {timeout: 106752d}"),
		with("drill: {schedule: {cron: '@daily'}, assert: ['key=a']}"), with("archive: {flush: 1s, spool: /s, spoolMax: 99TiB}")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, text, nothing)
		if err != nil {
			if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "dr.yaml") {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, s := range c.Specs {
			if catalog.ValidCluster(s.Cluster) != nil || len(s.Repositories) == 0 || scheduler.ClusterConfig(s.Etcd).Validate() != nil || s.Timeout <= 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// docs/serve.md shows the example, which is valid.
func TestExample(t *testing.T) {
	example, err := os.ReadFile("../../deploy/dr.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(example)+"```\n") {
		t.Error("docs/serve.md shows another deploy/dr.yaml")
	}
	dir := t.TempDir()
	certificates := servers.NewCertificates(t, net.IPv4(10, 0, 0, 1))
	text := strings.NewReplacer("/etc/etcd-dr/", dir+"/", "/etc/etcd/ca.crt", certificates.CA, "/etc/etcd/client.crt", certificates.Cert,
		"/etc/etcd/client.key", certificates.Key).Replace(string(example))
	write(t, dir, "recipients.txt", recipient)
	write(t, dir, "test.password", "s3cret")
	c, err := config.Load(write(t, dir, "dr.yaml", text), nothing)
	if err != nil {
		t.Fatal(err)
	}
	prod, test := c.Specs[0], c.Specs[1]
	if prod.Schedule.String() != "15 * * * *" || prod.Schedule.Zone().String() != "Europe/Berlin" || len(prod.Repositories) != 2 ||
		prod.Etcd.CACert != certificates.CA || prod.Backup.Labels["site"] != "fra" || prod.Backup.Labels["tier"] != "gold" {
		t.Errorf("prod: %+v", prod)
	}
	if test.Etcd.Password != "s3cret" || test.Retention.Daily != 7 || len(test.Backup.To.Seal().Recipients) != 1 {
		t.Errorf("test: %+v", test)
	}
}

// A service must trust its own signatures.
func TestLoadOfASigner(t *testing.T) {
	secret, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key := write(t, t.TempDir(), "sign.key", string(secret))
	c, err := load(t, strings.Replace(minimal, "main\"}", "main\", signKeyFile: "+key+", trust: ["+public+"]}", 1), nothing)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Specs[0].Repositories[0].Policy
	if p.Key.None() || p.Trust.None() {
		t.Errorf("policy %+v", p)
	}
}
