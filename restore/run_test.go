package restore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// run calls restore.Run, fails the test on an error, and returns the events too.
func run(t testing.TB, s fixture, p plan.Plan) (restore.Result, []storage.Event) {
	t.Helper()
	var events []storage.Event
	r, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, func(e storage.Event) { events = append(events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return r, events
}

// messages returns the notes and warnings.
func messages(events []storage.Event) string {
	var all []string
	for _, e := range events {
		if e.Level != storage.Progress {
			all = append(all, e.Message)
		}
	}
	return strings.Join(all, "\n")
}

// start boots a data dir as etcd would be started after the restore, and waits until it serves.
func start(t testing.TB, name, dataDir, initialCluster, peerURL string) *embed.Etcd {
	t.Helper()
	e := launch(t, name, dataDir, initialCluster, peerURL)
	wait(t, e)
	return e
}

func launch(t testing.TB, name, dataDir, initialCluster, peerURL string) *embed.Etcd {
	t.Helper()
	return launchWith(t, plan.Into{Name: name, DataDir: dataDir}, initialCluster, peerURL)
}

func launchWith(t testing.TB, into plan.Into, initialCluster, peerURL string) *embed.Etcd {
	t.Helper()
	peer, err := url.Parse(peerURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.WalDir = into.Name, into.DataDir, into.WALDir
	cfg.InitialCluster, cfg.UnsafeNoFsync = initialCluster, true
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anyPort, anyPort
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func wait(t testing.TB, e *embed.Etcd) {
	t.Helper()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("it does not serve")
	}
}

func TestRunOfAllMembersBootsAsACluster(t *testing.T) {
	t.Parallel()
	s := storeSealed(t, plainDatabase(t))
	urls := servers.FreeURLs(t, 3)
	p := s.plan(t, plan.Layout{
		Members: []plan.Member{memberAt("m1", urls[0]), memberAt("m2", urls[1]),
			memberAt("m3", urls[2])}, Into: all(t),
	})
	r, _ := run(t, s, p)
	d := plainDatabase(t)
	if r.Revision != d.revision || r.Keys != d.keys ||
		r.HashKV != fmt.Sprintf("key space proven at revision %d", d.revision) {
		t.Errorf("result %+v, want %d keys at revision %d, proven", r, d.keys, d.revision)
	}
	if r.PlanID != p.ID || r.Backup != string(s.backup.ID) || r.Token != "token" || r.BumpedTo != 0 || r.Key == "" {
		t.Errorf("result %+v does not say what was restored", r)
	}
	wantStages(t, r)
	wantDataDirs(t, r, p.Into.OutputDir)
	wantNoWork(t, filepath.Dir(p.Into.OutputDir))
	var members []*embed.Etcd
	for _, m := range r.Members {
		members = append(members, launch(t, m.Name, m.DataDir, p.InitialCluster(), urls[len(members)]))
	}
	for _, e := range members {
		wait(t, e)
		got := e.Server.Cluster().ID().String()
		if got != r.ClusterID {
			t.Errorf("the cluster's id is %s, the result says %s", got, r.ClusterID)
		}
	}
	wantServing(t, members, d)
}

func wantStages(t *testing.T, r restore.Result) {
	t.Helper()
	var stages []string
	for _, p := range r.Phases {
		stages = append(stages, p.Stage)
	}
	want := []string{"ask", "fetch", "check", "prove", "build", "rename"}
	if !slices.Equal(stages, want) {
		t.Errorf("phases %q, want %q", stages, want)
	}
}

// wantDataDirs checks names, modes, the commands, and that all members have the same database.
func wantDataDirs(t *testing.T, r restore.Result, dir string) {
	t.Helper()
	if len(r.Members) != 3 {
		t.Fatalf("members %+v", r.Members)
	}
	first := digestOf(t, filepath.Join(dir, "m1", "member", "snap", "db"))
	for i, m := range r.Members {
		name := fmt.Sprintf("m%d", i+1)
		if m.Name != name || m.DataDir != filepath.Join(dir, name) {
			t.Errorf("member %d is %+v", i, m)
		}
		if !strings.Contains(strings.Join(m.Command, " "), "etcd --name "+name+" --data-dir "+m.DataDir+" ") {
			t.Errorf("command %q", m.Command)
		}
		wantMode(t, m.DataDir)
		got := digestOf(t, filepath.Join(m.DataDir, "member", "snap", "db"))
		if got != first {
			t.Errorf("%s has another database than m1", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("in %s are %v, %v", dir, entries, err)
	}
}

// wantMode checks that only the owner can enter the data dir, as etcd requires.
func wantMode(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if filepath.Ext(path) != ".snap" && info.Mode().Perm() != want { // etcd leaves that one to the umask
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// wantServing writes through one member and reads through the others.
func wantServing(t *testing.T, members []*embed.Etcd, d database) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := v3client.New(members[0].Server)
	defer first.Close()
	_, err := first.Put(ctx, "new", "value")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range members[1:] {
		c := v3client.New(e.Server)
		defer c.Close()
		got, err := c.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithCountOnly())
		if err != nil || got.Count != d.keys+1 || got.Header.Revision != d.revision+1 {
			t.Errorf("%d keys at revision %d, %v; want %d at %d", got.Count, got.Header.Revision, err, d.keys+1,
				d.revision+1)
		}
	}
}

// TestOldMembersAreRemoved checks that a restored database names the members of the plan and none of the old ones, with which the new members would
// form one cluster.
func TestOldMembersAreRemoved(t *testing.T) {
	t.Parallel()
	s := store(t, databaseWith(t, content{prefix: "k", member: "old"}), nil)
	p := s.plan(t, plan.Layout{Into: one(t, "m1")})
	run(t, s, p)
	disks, err := salvage.Survey(t.Context(), catalog.Catalog{}, []string{p.Into.DataDir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range disks[0].Databases[0].Members {
		if !slices.ContainsFunc(p.Members, func(of plan.Member) bool { return of.Name == m.Name }) {
			t.Errorf("the database names member %q", m.Name)
		}
	}
	if len(disks[0].Databases[0].Members) != len(p.Members) {
		t.Errorf("the database names %d members, want %d", len(disks[0].Databases[0].Members), len(p.Members))
	}
}

// A host that restores its own member gets the same data as a host that restores all members.
func TestRunOfOneMemberGivesTheSameAsOfAll(t *testing.T) {
	t.Parallel()
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Into: all(t)})
	together, _ := run(t, s, p)
	for _, m := range together.Members {
		alone, err := p.Place(one(t, m.Name))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := run(t, s, alone)
		if len(r.Members) != 1 || r.Members[0].Name != m.Name || r.Members[0].DataDir != alone.Into.DataDir ||
			r.ClusterID != together.ClusterID {
			t.Errorf("result %+v", r)
		}
		wantMode(t, alone.Into.DataDir)
		for _, file := range treeOf(t, m.DataDir) {
			if filepath.Ext(file) == ".snap" { // etcd numbers the members in it by chance: TestSameAsEtcdutl reads it
				continue
			}
			a, b := digestOf(t, filepath.Join(m.DataDir, file)), digestOf(t,
				filepath.Join(alone.Into.DataDir, file))
			if a != b {
				t.Errorf("%s of %s differs", file, m.Name)
			}
		}
		a, b := treeOf(t, m.DataDir), treeOf(t, alone.Into.DataDir)
		if !slices.Equal(a, b) {
			t.Errorf("files %q and %q", a, b)
		}
	}
}

func treeOf(t testing.TB, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The scratch server has another copy of the same name and URL, and must find the restored data.
func TestScratchBootsARestoredMember(t *testing.T) {
	t.Parallel()
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Members: []plan.Member{memberAt(scratch.Member, scratch.PeerURL)},
		Into: one(t, scratch.Member)})
	run(t, s, p)
	server, err := scratch.Boot(t.Context(), p.Into.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	d := plainDatabase(t)
	revision, keys, err := server.Count(t.Context())
	if err != nil || revision != d.revision || keys != d.keys {
		t.Errorf("%d keys at revision %d, %v; want %d at %d", keys, revision, err, d.keys, d.revision)
	}
	got, err := server.HashKV(d.revision)
	if err != nil || got != d.hash {
		t.Errorf("HashKV %+v, %v, want %+v", got, err, d.hash)
	}
}

// Clients that cache by revision must see that theirs is void: new revisions are far above, old ones are compacted.
func TestRunBumps(t *testing.T) {
	t.Parallel()
	kubernetes := databaseWith(t, content{prefix: "/registry/pods/"})
	isKubernetes := func(m *catalog.Manifest) { m.Kubernetes = true }
	file := filepath.Join(t.TempDir(), "snapshot.db")
	err := os.WriteFile(file, kubernetes.snapshot(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	plainFile := filepath.Join(t.TempDir(), "snapshot.db")
	err = os.WriteFile(plainFile, plainDatabase(t).snapshot(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		database database
		change   func(*catalog.Manifest)
		file     string
		bump     string
		by       int64
	}{
		"a number":              {database: plainDatabase(t), bump: "1000", by: 1000},
		"auto, Kubernetes":      {database: kubernetes, change: isKubernetes, bump: "auto", by: 1_000_000_000},
		"auto, others":          {database: plainDatabase(t), bump: "auto"},
		"none, Kubernetes":      {database: kubernetes, change: isKubernetes, bump: "0"},
		"auto, Kubernetes file": {database: kubernetes, file: file, bump: "auto", by: 1_000_000_000},
		"auto, another file":    {database: plainDatabase(t), file: plainFile, bump: "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && test.by == 0 && test.file == "" {
				t.Skip("one without a bump is enough")
			}
			peer := servers.FreeURLs(t, 1)[0]
			s := store(t, test.database, test.change)
			p, err := plan.New(s.catalog(t), plan.Target{File: test.file},
				plan.Layout{Members: []plan.Member{memberAt("m1", peer)}, Token: "t", Bump: test.bump,
					Into: one(t, "m1")}, now)
			if err != nil {
				t.Fatal(err)
			}
			r, events := run(t, s, p)
			wantBumped(t, r, messages(events), test.database, test.by)
			wantCompacted(t, start(t, "m1", p.Into.DataDir, p.InitialCluster(), peer), test.database, test.by)
		})
	}
}

func wantBumped(t *testing.T, r restore.Result, said string, d database, by int64) {
	t.Helper()
	if by == 0 {
		if r.BumpedTo != 0 || r.Revision != d.revision || strings.Contains(said, "revisions continue") {
			t.Errorf("revision %d, bumped to %d, said %q", r.Revision, r.BumpedTo, said)
		}
		return
	}
	if r.Revision != d.revision || r.BumpedTo != d.revision+by ||
		!strings.Contains(said, fmt.Sprintf("revisions continue from %d", d.revision+by)) {
		t.Errorf("revision %d, bumped to %d, said %q", r.Revision, r.BumpedTo, said)
	}
}

func wantCompacted(t *testing.T, e *embed.Etcd, d database, by int64) {
	t.Helper()
	c := v3client.New(e.Server)
	defer c.Close()
	put, err := c.Put(t.Context(), "new", "value")
	if err != nil || put.Header.Revision != d.revision+by+1 {
		t.Fatalf("a new write has revision %d, %v, want %d", put.Header.Revision, err, d.revision+by+1)
	}
	_, err = c.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithRev(d.revision))
	compacted := errors.Is(err, rpctypes.ErrCompacted)
	if compacted != (by > 0) {
		t.Errorf("at the old revision %d: %v", d.revision, err)
	}
	if by == 0 {
		return
	}
	watch := <-c.Watch(t.Context(), "", clientv3.WithFromKey(), clientv3.WithRev(d.revision))
	if watch.CompactRevision != d.revision+by {
		t.Errorf("a watch from the old revision is told %+v, want compacted at %d", watch, d.revision+by)
	}
}

func TestRunRefusesABumpPastTheEnd(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Into: one(t, "m1")})
	p.Bump = plan.Bump{By: 1<<63 - 10}
	_, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, plan.ErrLayout) {
		t.Errorf("error %v", err)
	}
	wantNothing(t, p.Into)
}

func alarmsIn(t *testing.T, db string) []string {
	t.Helper()
	b, err := bolt.Open(db, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var found []string
	_ = b.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("alarm")).ForEach(func(k, _ []byte) error {
			found = append(found, fmt.Sprintf("%x", k))
			return nil
		})
	})
	return found
}

func TestRunAlarms(t *testing.T) {
	t.Parallel()
	noSpace := databaseWith(t, content{prefix: "k", alarms: []pb.AlarmType{pb.AlarmType_NOSPACE}})
	both := databaseWith(t, content{prefix: "k", alarms: []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT}})
	for name, test := range map[string]struct {
		database database
		layout   plan.Layout
		cleared  []string
		left     int
		refused  bool
	}{
		"cleared":         {database: noSpace, cleared: []string{"NOSPACE"}},
		"kept":            {database: noSpace, layout: plan.Layout{KeepAlarms: true}, left: 1},
		"corrupt refused": {database: both, refused: true},
		"corrupt allowed": {database: both, layout: plan.Layout{AllowCorrupt: true},
			cleared: []string{"CORRUPT", "NOSPACE"}},
		"corrupt kept": {database: both, layout: plan.Layout{AllowCorrupt: true, KeepAlarms: true}, left: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, test.database, nil) // the manifest does not know of the alarms
			test.layout.Into = one(t, "m1")
			p := s.plan(t, test.layout)
			r, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
			if test.refused {
				if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "--allow-corrupt") {
					t.Errorf("error %v", err)
				}
				wantNothing(t, p.Into)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Cleared, test.cleared) {
				t.Errorf("cleared %q, want %q", r.Cleared, test.cleared)
			}
			left := alarmsIn(t, filepath.Join(p.Into.DataDir, "member", "snap", "db"))
			if len(left) != test.left {
				t.Errorf("alarms left: %q, want %d", left, test.left)
			}
		})
	}
}

func TestRunHashKV(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	for name, test := range map[string]struct {
		hash *catalog.HashKV
		says string // of the result
		is   error
		with string // of the error
	}{
		"equal":        {hash: &d.hash, says: fmt.Sprintf("proven at revision %d", d.revision)},
		"not recorded": {says: "no HashKV was recorded"},
		"another": {hash: &catalog.HashKV{Revision: d.revision, CompactRevision: compactsAt,
			Hash: ^d.hash.Hash}, is: catalog.ErrDamaged, with: "the member reported"},
		"of the future": {hash: &catalog.HashKV{Revision: d.revision + 1, CompactRevision: compactsAt},
			is: catalog.ErrDamaged, with: "ends at revision"},
		"compacted since": {hash: &catalog.HashKV{Revision: compactsAt - 1, CompactRevision: -1},
			says: "not compared: the cluster compacted"},
		"compacted other": {hash: &catalog.HashKV{Revision: d.revision, CompactRevision: 3},
			says: "not compared: the cluster compacted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, d, func(m *catalog.Manifest) { m.HashKV = test.hash })
			p := s.plan(t, plan.Layout{Into: one(t, "m1")})
			var events []storage.Event
			r, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, func(e storage.Event) { events = append(events, e) })
			if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.with) ||
				!strings.Contains(r.HashKV, test.says) {
				t.Errorf("result %q, error %v", r.HashKV, err)
			}
			warned := strings.Contains(messages(events),
				"not compared: the cluster")
			if warned != strings.Contains(test.says, "the cluster") {
				t.Errorf("said %q", messages(events))
			}
			if err != nil {
				wantNothing(t, p.Into)
			}
		})
	}
}

func TestRunWithoutAPlace(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	_, err := restore.Run(t.Context(), s.plan(t, plan.Layout{}), child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, plan.ErrLayout) || !strings.Contains(err.Error(), "--output-dir") {
		t.Errorf("error %v", err)
	}
}

func TestWrongKey(t *testing.T) {
	s := storeSealed(t, plainDatabase(t))
	other, _ := stored.Pair(t)
	p := s.plan(t, plan.Layout{Into: one(t, "m1")})
	for name, keys := range map[string]seal.Keys{"another key": other, "no key": {}} {
		_, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: keys}, nil)
		if !errors.Is(err, seal.ErrWrongKey) || !strings.Contains(err.Error(), s.backup.Seal.Recipients[0]) {
			t.Errorf("%s: error %v", name, err)
		}
		s.keys = keys
		_, err = restore.Spawn(t.Context(), p, s.source(), nil)
		if !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("%s, in a child: error %v", name, err)
		}
		wantNothing(t, p.Into)
	}
}

func TestDamagedObject(t *testing.T) {
	s := storeSealed(t, plainDatabase(t))
	data, err := os.ReadFile(s.object())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, len(data) / 2, len(data) - 1} {
		data[at] ^= 1
		err := os.WriteFile(s.object(), data, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		data[at] ^= 1
		p := s.plan(t, plan.Layout{Into: one(t, "m1")})
		_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
		if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), s.backup.Stored.Name) {
			t.Errorf("byte %d: error %v", at, err)
		}
		wantNothing(t, p.Into)
	}
}

// A server does not start on a lease, a user or a role that it cannot decode.
func TestUndecodable(t *testing.T) {
	for _, bucket := range []backend.Bucket{schema.Lease, schema.AuthUsers, schema.AuthRoles} {
		t.Run(string(bucket.Name()), func(t *testing.T) {
			d := plainDatabase(t)
			var err error
			d.bytes, err = testdb.Edited(d.bytes, func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists(bucket.Name())
				if err != nil {
					return err
				}
				return b.Put([]byte("12345678"), []byte{0xff})
			})
			if err != nil {
				t.Fatal(err)
			}
			s := store(t, d, nil)
			p := s.plan(t, plan.Layout{Into: one(t, "m1")})
			_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
			if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), "cannot be decoded") {
				t.Errorf("error %v", err)
			}
			wantNothing(t, p.Into)
		})
	}
}

// etcd refuses to listen on a host name.
func TestCommandListensOnAddresses(t *testing.T) {
	s := store(t, plainDatabase(t), func(m *catalog.Manifest) {
		m.Members[0].PeerURLs, m.Members[0].ClientURLs = []string{"https://etcd-0.etcd.ns.svc:2380"}, []string{"https://etcd-0.local:2379"}
	})
	p := s.plan(t, plan.Layout{
		Members: []plan.Member{memberAt("m1", "https://etcd-0.etcd.ns.svc:2380", "https://10.0.0.1:2380",
			"http://localhost:2382")},
		OldIsDead: true, Into: one(t, "m1"),
	})
	r, _ := run(t, s, p)
	command := strings.Join(r.Members[0].Command, " ") + " "
	for _, want := range []string{
		"--listen-peer-urls https://0.0.0.0:2380,https://10.0.0.1:2380,http://localhost:2382 ",
		"--initial-advertise-peer-urls https://etcd-0.etcd.ns.svc:2380,https://10.0.0.1:2380,http://localhost:2382 ",
		"--listen-client-urls https://0.0.0.0:2379 --advertise-client-urls https://etcd-0.local:2379 ",
		"--initial-cluster-token token ", "--initial-cluster-state existing ",
	} {
		if !strings.Contains(command, want) {
			t.Errorf("command %s\nwant %s", command, want)
		}
	}
}

// Where the old client URLs are not known, or are of another host, they are on the host of the peers; never all the same.
func TestCommandOfNewMembers(t *testing.T) {
	for name, test := range map[string]struct {
		members []plan.Member
		want    string // of the first
	}{
		"https on a host of its own": {[]plan.Member{memberAt("a", "https://10.0.0.1:2380"), memberAt("b", "https://10.0.0.2:2380")}, "https://10.0.0.1:2379"},
		"IPv6":                       {[]plan.Member{memberAt("a", "http://[fd00::2]:2380")}, "http://[fd00::2]:2379"},
		"two on one host":            {[]plan.Member{memberAt("a", "http://127.0.0.1:2380"), memberAt("b", "http://127.0.0.1:2381")}, "http://127.0.0.1:CLIENT_PORT"},
		"a known name, another host": {[]plan.Member{memberAt("m1", "https://10.0.0.1:2380")}, "https://10.0.0.1:2379"},
		"a known name and host":      {[]plan.Member{memberAt("m1", "http://127.0.0.1:9380")}, stored.DeadURL},
	} {
		s := store(t, plainDatabase(t), nil)
		r, _ := run(t, s, s.plan(t, plan.Layout{Members: test.members, OldIsDead: true, Into: one(t, test.members[0].Name)}))
		command := strings.Join(r.Members[0].Command, " ")
		if !strings.Contains(command, "--advertise-client-urls "+test.want+" ") || strings.Contains(command, "localhost") {
			t.Errorf("%s: command %s, want client URL %s", name, command, test.want)
		}
	}
}
