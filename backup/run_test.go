package backup_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	testdatabase "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/embedded"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// listener collects the events of a Run.
type listener struct {
	mu     sync.Mutex
	events []storage.Event
	hear   func(n int, e storage.Event) // called with each event and its number, from 0 on
}

// reporting returns r with a receiver of its events.
func reporting(r backup.Request, report storage.Report) backup.Request {
	r.Report = report
	return r
}

func (l *listener) report(e storage.Event) {
	l.mu.Lock()
	l.events = append(l.events, e)
	n := len(l.events) - 1
	l.mu.Unlock()
	if l.hear != nil {
		l.hear(n, e)
	}
}

func (l *listener) warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, e := range l.events {
		if e.Level == storage.Warning {
			texts = append(texts, e.Message)
		}
	}
	return texts
}

// wantWarnings fails unless there are exactly as many warnings as words, each with its word.
func (l *listener) wantWarnings(t *testing.T, words ...string) {
	t.Helper()
	got := l.warnings()
	ok := len(got) == len(words)
	for i := range min(len(got), len(words)) {
		ok = ok && strings.Contains(got[i], words[i])
	}
	if !ok {
		t.Errorf("warnings:\n  %s\nwant them to say:\n  %s", strings.Join(got, "\n  "), strings.Join(words, "\n  "))
	}
}

// request returns the usual request and the keys that open its backups.
func request(t *testing.T) (backup.Request, seal.Keys) {
	t.Helper()
	keys, to := stored.Pair(t)
	return backup.Request{From: "leader", To: to, MaxStream: time.Minute, Version: "test", Grace: time.Hour}, keys
}

func open(t *testing.T, b storage.Bucket) *repository.Cluster {
	t.Helper()
	c, err := repository.Open(b, "prod")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fileBucket(t *testing.T) storage.Bucket {
	t.Helper()
	b, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mustRun takes a backup that has to succeed.
func mustRun(t *testing.T, cfg cluster.Config, to *repository.Cluster, r backup.Request, l *listener) backup.Result {
	t.Helper()
	result, err := backup.Run(t.Context(), cfg, only(to), reporting(r, l.report))
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	got := listed(t, to)
	if !slices.Contains(got, result.ID) {
		t.Fatalf("backup %s is not among the listed: %v", result.ID, got)
	}
	return result
}

func listed(t *testing.T, c *repository.Cluster) []catalog.ID {
	t.Helper()
	cat, err := c.Load(context.WithoutCancel(t.Context()), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range cat.Damaged {
		t.Errorf("damaged: %v", d.Err)
	}
	var ids []catalog.ID
	for _, b := range cat.Backups {
		ids = append(ids, b.ID)
	}
	return ids
}

// wantNothing fails if to lists more than before or contains anything incomplete.
func wantNothing(t *testing.T, to *repository.Cluster, before ...catalog.ID) {
	t.Helper()
	got := listed(t, to)
	if !slices.Equal(got, before) {
		t.Errorf("listed: %v, before: %v", got, before)
	}
	leftovers, err := to.Leftovers(t.Context())
	if err != nil || len(leftovers) > 0 {
		t.Errorf("leftovers: %+v, %v", leftovers, err)
	}
}

// fetched returns the snapshot of b as a restore would read it.
func fetched(t *testing.T, c *repository.Cluster, b catalog.Backup, keys seal.Keys) []byte {
	t.Helper()
	snapshot, err := c.Fetch(t.Context(), b, keys)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	data, err := io.ReadAll(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// facts are read from a snapshot's database.
type facts struct {
	revision    int64
	index, term uint64
}

func factsOf(t *testing.T, snapshot []byte) facts {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	err := os.WriteFile(path, snapshot, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var f facts
	err = db.View(func(tx *bbolt.Tx) error {
		last, _ := tx.Bucket([]byte("key")).Cursor().Last()
		f.revision = int64(binary.BigEndian.Uint64(last))
		f.index = binary.BigEndian.Uint64(tx.Bucket([]byte("meta")).Get([]byte("consistent_index")))
		term := tx.Bucket([]byte("meta")).Get([]byte("term"))
		if term != nil { // 3.4 writes none
			f.term = binary.BigEndian.Uint64(term)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRun(t *testing.T) {
	t.Parallel()
	etcd := embedded.Start(t, nil)
	client := etcd.Client(t)
	put(t, client, "/registry/pods/default/a", "pod")
	put(t, client, "/registry/secrets/default/a", "k8s:enc:aescbc:v1:key1:secret")
	defer writeAlways(t, client)()
	for name, bucket := range map[string]storage.Bucket{"mem": mem.New(), "file": fileBucket(t)} {
		t.Run(name, func(t *testing.T) {
			to := open(t, bucket)
			r, keys := request(t)
			r.Labels = catalog.Labels{"why": "before the upgrade"}
			began, l := time.Now().UTC(), &listener{}
			result := mustRun(t, at(etcd.URL), to, r, l)
			l.wantWarnings(t, "EncryptionConfiguration")
			m, snapshot := result.Manifest, fetched(t, to, result.Backup, keys)
			wantTrue(t, client, etcd.URL, m, factsOf(t, snapshot))

			if m.Started.Before(began) || m.Finished.Before(m.Started) || m.Finished.After(time.Now()) {
				t.Errorf("started %s, finished %s", m.Started, m.Finished)
			}
			id := fmt.Sprintf("%x", uint64(etcd.Server.MemberID()))
			self := catalog.Member{
				ID: id, Name: "m1", ClientURLs: []string{etcd.URL}, PeerURLs: []string{etcd.Config().AdvertisePeerUrls[0].String()},
			}
			want := catalog.Manifest{
				Format: catalog.Manifests.Format, Cluster: "prod", DRVersion: "test", EtcdVersion: "3.7.3",
				ClusterID: fmt.Sprintf("%x", uint64(etcd.Server.Cluster().ID())), Member: self, Members: []catalog.Member{self},
				Seal: r.To.Seal(), Kubernetes: true, KubernetesEncrypted: true, Labels: r.Labels,

				ID: m.ID, Started: m.Started, Finished: m.Finished, Revision: m.Revision, RevisionMax: m.RevisionMax,
				RaftIndex: m.RaftIndex, RaftIndexMax: m.RaftIndexMax, RaftTerm: m.RaftTerm, HashKV: m.HashKV, Entries: m.Entries,
				InUse: m.InUse, Plain: m.Plain, Stored: m.Stored,
			}
			if m.Entries < 2 || m.InUse < 4096 || m.InUse > m.Plain.Size {
				t.Errorf("%d entries in %d bytes, there are two keys at least", m.Entries, m.InUse)
			}
			diff := cmp.Diff(want, m)
			if diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if m.Plain.Size != int64(len(snapshot)) || m.Plain.Name != "snapshot.db" {
				t.Errorf("plain %+v of %d bytes", m.Plain, len(snapshot))
			}
			wantSealed(t, to, result.Backup)
			wantProgress(t, l, m.Plain.Size)
		})
	}
}

// writeAlways writes until the caller calls stop.
func writeAlways(t *testing.T, client *clientv3.Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, err := client.Put(ctx, fmt.Sprint("/key/", i%100), "value")
			if err != nil && ctx.Err() == nil {
				t.Errorf("put: %v", err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); done.Wait() }
}

// wantTrue compares the manifest with the database and the live server.
func wantTrue(t *testing.T, client *clientv3.Client, url string, m catalog.Manifest, f facts) {
	t.Helper()
	if m.Revision > f.revision || m.Revision < 3 || m.RevisionMax < f.revision {
		t.Errorf("revision %d to %d, the snapshot is at %d", m.Revision, m.RevisionMax, f.revision)
	}
	if m.RaftIndexMax < f.index {
		t.Errorf("index up to %d, the snapshot is at %d", m.RaftIndexMax, f.index)
	}
	if m.RaftIndex > f.index || m.RaftIndex == 0 || m.RaftTerm > f.term || m.RaftTerm == 0 {
		t.Errorf("index %d, term %d; the snapshot is at %d, %d", m.RaftIndex, m.RaftTerm, f.index, f.term)
	}
	if m.HashKV == nil {
		t.Fatal("there is no HashKV")
	}
	live, err := client.HashKV(t.Context(), url, m.HashKV.Revision)
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.HashKV{Revision: m.HashKV.Revision, CompactRevision: live.CompactRevision, Hash: live.Hash}
	if *m.HashKV != want {
		t.Errorf("HashKV %+v, the server says %+v", *m.HashKV, want)
	}
}

func wantSealed(t *testing.T, to *repository.Cluster, b catalog.Backup) {
	t.Helper()
	sealed, err := to.FetchSealed(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	data, err := io.ReadAll(sealed)
	if err != nil || !strings.HasPrefix(string(data), ageHeader) {
		t.Errorf("what is stored is not encrypted: %q, %v", data[:min(40, len(data))], err)
	}
}

const ageHeader = "age-encryption.org/v1\n"

func wantProgress(t *testing.T, l *listener, size int64) {
	t.Helper()
	var stages []string
	for _, e := range l.events {
		if len(stages) == 0 || stages[len(stages)-1] != e.Stage {
			stages = append(stages, e.Stage)
		}
		if e.Time.IsZero() || e.Done > size || e.Stage == "stream" && e.Total != size {
			t.Errorf("event %+v of a database of %d bytes", e, size)
		}
	}
	if !slices.Equal(stages, []string{"connect", "stream", "commit"}) {
		t.Errorf("stages %v", stages)
	}
	last := l.events[len(l.events)-1]
	if last.Done != size {
		t.Errorf("the last event is %+v", last)
	}
}

func TestRunWithoutHashAndSeal(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	to := open(t, mem.New())
	r := backup.Request{From: "any", NoHash: true, MaxStream: time.Minute, Grace: time.Hour}
	l := &listener{}
	result := mustRun(t, at(fake.serve(t)), to, r, l)
	if result.HashKV != nil || fake.hashes.Load() != 0 {
		t.Errorf("the member was asked for %d hashes: %+v", fake.hashes.Load(), result.HashKV)
	}
	l.wantWarnings(t)
	if result.Seal.Encryption != "" || string(fetched(t, to, result.Backup, seal.Keys{})) != string(database(4096)) {
		t.Errorf("seal %+v", result.Seal)
	}
	// A nil report is valid.
	_, err := backup.Run(t.Context(), at(fake.serve(t)), only(to), r)
	if err != nil {
		t.Error(err)
	}
}

// TestRunWarnsOfAMissingHash checks that a failing HashKV does not prevent the backup.
func TestRunWarnsOfAMissingHash(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, hashKV: failingHash("etcdserver: mvcc: database is busy")}
	r, _ := request(t)
	l := &listener{}
	result := mustRun(t, at(fake.serve(t)), open(t, mem.New()), r, l)
	if result.HashKV != nil {
		t.Errorf("HashKV %+v", result.HashKV)
	}
	l.wantWarnings(t, "no HashKV")
}

// TestRunDoesNotHashALargeKeySpace checks that by default a key space is not hashed if that would stall the member's writes for long, and
// that the manifest has the reason.
func TestRunDoesNotHashALargeKeySpace(t *testing.T) {
	t.Parallel()
	for most, hashes := range map[time.Duration]int64{0: 0, cluster.HashStall: 0, 2 * time.Second: 1} {
		fake := &fakeMember{clusterID: 9, memberID: 1, inUse: 64 << 20} // of keys of unknown size
		r, _ := request(t)
		r.HashMax = most
		l := &listener{}
		result := mustRun(t, at(fake.serve(t)), open(t, mem.New()), r, l)
		taken := result.HashKV != nil
		if fake.hashes.Load() != hashes || taken != (hashes == 1) || taken != (result.HashSkipped == "") {
			t.Errorf("at most %s: %d hashes, HashKV %+v, skipped: %q", most, fake.hashes.Load(), result.HashKV, result.HashSkipped)
		}
		l.wantWarnings(t)
	}
}

// TestRunLearnsFromTheLastBackup checks that a key space of large values is hashed as soon as a backup has shown that they are large.
func TestRunLearnsFromTheLastBackup(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	err := testdatabase.Generate(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(content)
	fake := &fakeMember{clusterID: 9, memberID: 1, inUse: int64(len(content)), database: append(content, digest[:]...)}
	url, to := fake.serve(t), open(t, mem.New())
	r, _ := request(t)
	r.HashMax = 2 * time.Millisecond
	first := mustRun(t, at(url), to, r, &listener{})
	second := mustRun(t, at(url), to, r, &listener{})
	if first.HashKV != nil || first.Entries < 300 || second.HashKV == nil {
		t.Errorf("the first has HashKV %+v and %d entries, the second HashKV %+v, skipped: %q", first.HashKV, first.Entries, second.HashKV, second.HashSkipped)
	}
	fake.clusterID = 10 // of which no backup is known
	third := mustRun(t, at(url), to, r, &listener{})
	if third.HashKV != nil {
		t.Errorf("another cluster was asked for HashKV %+v", third.HashKV)
	}
}

func TestRunWithoutQuorum(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, cutOff: true}
	cfg := at(fake.serve(t))
	cfg.CommandTimeout = time.Second
	r, _ := request(t)
	l := &listener{}
	result := mustRun(t, cfg, open(t, mem.New()), r, l)
	if !result.NoQuorum {
		t.Errorf("not marked: %+v", result.Manifest)
	}
	l.wantWarnings(t, "no quorum")
}

func TestRunMarksAlarms(t *testing.T) {
	t.Parallel()
	etcd := embedded.Start(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = 64 << 10 })
	client := etcd.Client(t)
	for { // until the quota is used up and the alarm raised
		_, err := client.Put(t.Context(), "key", strings.Repeat("x", 20_000))
		if err != nil {
			break
		}
	}
	r, _ := request(t)
	l := &listener{}
	result := mustRun(t, at(etcd.URL), open(t, mem.New()), r, l)
	if !slices.Equal(result.Alarms, []string{"NOSPACE"}) {
		t.Errorf("alarms %v", result.Alarms)
	}
	l.wantWarnings(t, "NOSPACE")
}

func TestRunWithUsers(t *testing.T) {
	t.Parallel()
	etcd := embedded.Start(t, nil)
	client := etcd.Client(t)
	const password = "s3cret-root"
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(t.Context(), "root", password); return err },
		func() error { _, err := client.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := client.AuthEnable(t.Context()); return err },
	} {
		err := step()
		if err != nil {
			t.Fatal(err)
		}
	}
	r, _ := request(t)
	to, l := open(t, mem.New()), &listener{}
	cfg := at(etcd.URL)
	_, err := backup.Run(t.Context(), cfg, only(to), reporting(r, l.report))
	if err == nil || !strings.Contains(err.Error(), "--user") {
		t.Errorf("nobody may take a backup: %v", err)
	}
	cfg.User, cfg.Password = "root", "wrong-"+password
	_, err = backup.Run(t.Context(), cfg, only(to), reporting(r, l.report))
	if err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("a wrong password: %v", err)
	}
	wantNothing(t, to)
	cfg.Password = password
	result := mustRun(t, cfg, to, r, l)
	if !result.Auth || result.HashKV == nil {
		t.Errorf("auth %t, HashKV %v", result.Auth, result.HashKV)
	}
	l.wantWarnings(t)
}

func TestRunWithALearner(t *testing.T) {
	t.Parallel()
	etcd := embedded.Start(t, nil)
	urls := servers.FreeURLs(t, 2)
	_, err := etcd.Client(t).MemberAddAsLearner(t.Context(), urls[1:])
	if err != nil {
		t.Fatal(err)
	}
	learner := embedded.Start(t, func(cfg *embed.Config) {
		cfg.Name = "m2"
		embedded.Listen(t, cfg, urls)
		cfg.InitialCluster = "m1=" + etcd.Config().AdvertisePeerUrls[0].String() + ",m2=" + urls[1]
		cfg.ClusterState = embed.ClusterStateFlagExisting
	})
	to, l := open(t, mem.New()), &listener{}
	r, _ := request(t)
	r.From = learner.URL
	for _, cfg := range []cluster.Config{at(learner.URL), at(etcd.URL), at(etcd.URL, learner.URL)} {
		_, err := backup.Run(t.Context(), cfg, only(to), reporting(r, l.report))
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), learner.URL+" is a learner") {
			t.Errorf("a learner by name: %v", err)
		}
	}
	r.From = "any"
	// A learner does not return the list of members.
	_, err = backup.Run(t.Context(), at(learner.URL), only(to), reporting(r, l.report))
	if !errors.Is(err, fault.Refused) {
		t.Errorf("a learner alone: %v", err)
	}
	wantNothing(t, to)
	for _, from := range []string{"any", "leader", etcd.URL} {
		r.From = from
		result := mustRun(t, at(learner.URL, etcd.URL), to, r, l)
		isLearner := func(m catalog.Member) bool { return m.Name == "m2" && m.Learner }
		if result.Member.Name != "m1" || len(result.Members) != 2 || !slices.ContainsFunc(result.Members, isLearner) {
			t.Errorf("--from %s: read from %+v of %+v", from, result.Member, result.Members)
		}
	}
	r.From = "follower"
	_, err = backup.Run(t.Context(), at(etcd.URL), only(to), reporting(r, l.report))
	if !errors.Is(err, fault.Refused) {
		t.Errorf("a learner as follower: %v", err)
	}
	l.wantWarnings(t)
}

// TestRunWarnsOfAnotherCluster checks the warning about another cluster id. Right after a restore that is normal;
// otherwise the operator is backing up the wrong cluster.
func TestRunWarnsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	first, second := &fakeMember{clusterID: 0x9a, memberID: 1}, &fakeMember{clusterID: 0xbc, memberID: 1}
	urls := []string{first.serve(t), second.serve(t)}
	to := open(t, mem.New())
	r, _ := request(t)
	for _, step := range []struct {
		url      string
		warnings []string
	}{
		{urls[0], nil}, {urls[0], nil}, {urls[1], []string{"is of cluster 9a, but this is cluster bc"}}, {urls[1], nil},
		{urls[0], []string{"is of cluster bc, but this is cluster 9a"}},
	} {
		l := &listener{}
		mustRun(t, at(step.url), to, r, l)
		l.wantWarnings(t, step.warnings...)
	}
}

// TestRunRefusesPlainNextToEncrypted checks that a missing recipient, by a typing error or an unset variable, does not
// store every secret next to encrypted backups.
func TestRunRefusesPlainNextToEncrypted(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url, bucket := fake.serve(t), mem.New()
	to := open(t, bucket)
	sealed, _ := request(t)
	plain := sealed
	plain.To = seal.Recipients{}
	mustRun(t, at(url), to, plain, &listener{}) // the first of all may be plain
	mustRun(t, at(url), to, sealed, &listener{})
	_, err := backup.Run(t.Context(), at(url), only(to), plain)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "--plain") {
		t.Errorf("plain after encrypted: error %v, want a refusal that names --plain", err)
	}
	catalog, err := to.Load(t.Context(), backups.LoadOptions{})
	if err != nil || len(catalog.Backups) != 2 {
		t.Errorf("%d backups, %v, want 2", len(catalog.Backups), err)
	}
	plain.Plain = true
	mustRun(t, at(url), to, plain, &listener{})
}

func TestRunNamesEveryBackupAnew(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url, bucket := fake.serve(t), mem.New()
	to := open(t, bucket)
	r, _ := request(t)
	// The names of this second and of the next few are taken.
	now := time.Now()
	for i := range 10 {
		key := "prod/backups/" + string(catalog.NewID(now.Add(time.Duration(i)*time.Second), 7)) + "/snapshot.db.zst"
		_, err := bucket.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := mustRun(t, at(url), to, r, &listener{})
	if first.ID.Started().Before(now.Add(9 * time.Second).Truncate(time.Second)) {
		t.Errorf("began at %s, named %s", now, first.ID)
	}
	// Of several concurrent runs each succeeds with a complete backup, or fails without affecting the others.
	var runs sync.WaitGroup
	results, errs := make([]backup.Result, 4), make([]error, 4)
	for i := range results {
		runs.Go(func() { results[i], errs[i] = backup.Run(t.Context(), at(url), only(to), r) })
	}
	runs.Wait()
	want := []catalog.ID{first.ID}
	for i, err := range errs {
		if err != nil && !errors.Is(err, storage.ErrExist) {
			t.Error(err)
		}
		if err == nil {
			want = append(want, results[i].ID)
		}
	}
	slices.Sort(want)
	got := listed(t, to)
	if len(want) < 2 || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

func TestRunSweeps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bucket, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	to := open(t, bucket)
	yesterday := time.Now().Add(-25 * time.Hour)
	lie := func(id catalog.ID, name string, at time.Time) string {
		path := filepath.Join(dir, "prod", "backups", string(id), name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(path, []byte("left"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		err = os.Chtimes(path, at, at)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, young := catalog.NewID(yesterday, 1), catalog.NewID(time.Now(), 1)
	gone := []string{
		lie(old, "snapshot.db.zst", yesterday), lie(old, ".dr-tmp-0123456789abcdef-snapshot.db.zst", yesterday),
	}
	kept := []string{
		lie(young, "snapshot.db.zst", time.Now()), lie(young, ".dr-tmp-0123456789abcdef-snapshot.db.zst", time.Now()),
		lie(catalog.NewID(yesterday, 2), "snapshot.db.zst", time.Now()), // began long ago and still writes
	}
	r, _ := request(t)
	r.Grace = 24 * time.Hour
	fake := &fakeMember{clusterID: 9, memberID: 1}
	l := &listener{}
	result := mustRun(t, at(fake.serve(t)), to, r, l)
	for _, path := range gone {
		_, err := os.Stat(path)
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
	for _, path := range kept {
		_, err := os.Stat(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	notes := 0
	for _, e := range l.events {
		if e.Level == storage.Note && e.Object != "" {
			notes++
		}
	}
	if len(result.Swept) != len(gone) || notes != len(gone) {
		t.Errorf("swept %+v, noted %d", result.Swept, notes)
	}
}
