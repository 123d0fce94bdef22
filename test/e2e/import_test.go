package e2e

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/lzw"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// signing returns j with variables that sign everything and trust only that signature.
func signing(t *testing.T, j job) job {
	t.Helper()
	key := filepath.Join(t.TempDir(), "sign.key")
	public := strings.TrimSpace(command.Must(t, nil, "keygen", "--signing", "--to", key))
	j.env = append(j.env, "DR_SIGN_KEY="+key, "DR_TRUST="+public)
	return j
}

// saved returns the file of etcdctl snapshot save.
func saved(t *testing.T, c *servers.Cluster) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	cmd := exec.Command(servers.Tool(t, c.Version, "etcdctl"), append(reachAt(c, c.Endpoints()[0]), "snapshot", "save", path)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("etcdctl snapshot save: %v\n%s", err, out)
	}
	return path
}

// putObject stores an object in a bucket.
func putObject(t *testing.T, store *objectstores.S3Server, bucket, key string, data []byte) {
	t.Helper()
	_, err := store.Client(t).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
}

// zipped returns the file, compressed with gzip.
func zipped(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(f)
	_, err = w.Write(data)
	err = errors.Join(err, w.Close(), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	return path + ".gz"
}

// shown returns the manifest that dr show prints.
func shown(t *testing.T, j job, id catalog.ID) catalog.Manifest {
	t.Helper()
	m := command.Result[catalog.Manifest](t, j.env, "show", string(id))
	if m.Origin == nil {
		t.Fatalf("no imported backup: %+v", m)
	}
	return m
}

// TestImportedSnapshotComesBackTheSame imports a snapshot of etcdctl of every version, with leases and users, into a signed and
// encrypted repository, and restores it by its id.
func TestImportedSnapshotComesBackTheSame(t *testing.T) {
	withServers(t)
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, TLS: true, Auth: true})
			revision := servers.Fill(t, source.Client(t), 1, servers.FillOptions{Keys: 1000})
			file := saved(t, source)
			j := signing(t, newJob(t))
			stored := command.Result[document.Backup](t, j.env, "import", zipped(t, file))
			m := shown(t, j, stored.ID)
			if m.Revision < revision || !m.Auth || m.Origin.Unhashed || !strings.HasPrefix(version, m.EtcdVersion) || m.EtcdVersion == "" {
				t.Errorf("revision %d (want %d), auth %v, etcd %q, %+v", m.Revision, revision, m.Auth, m.EtcdVersion, m.Origin)
			}
			command.Run(t, j.env, "restore", "latest", "--dry-run").Ended(t, 3, "only imported ones")
			booted, _ := restored(t, j, servers.Options{
				Version: version, TLS: true, Auth: true, Certificates: source.Certificates,
			}, string(stored.ID))
			checkSame(t, source, booted, m.Revision)
		})
	}
}

// TestDamagedImportStoresNothing refuses files that are damaged, and leaves the repository as it was.
func TestDamagedImportStoresNothing(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{TLS: true})
	servers.Fill(t, c.Client(t), 2, servers.FillOptions{Keys: 300})
	file := saved(t, c)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t)
	for name, data := range map[string][]byte{
		"cut off": whole[:len(whole)/2], "no digest": whole[:len(whole)-32], "empty": nil, "another file": []byte("not a database"),
	} {
		path := filepath.Join(t.TempDir(), "damaged.db")
		err := os.WriteFile(path, data, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		out := command.Run(t, j.env, "import", path)
		if out.Code != 3 || !strings.Contains(out.Stderr, path) {
			t.Errorf("%s: exit code %d\n%s", name, out.Code, out.Stderr)
		}
	}
	spoiled := filepath.Join(t.TempDir(), "spoiled.db")
	err = os.WriteFile(spoiled, whole[:len(whole)-32], 0o600)
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, spoiled, 0.1, 0.9)
	command.Run(t, j.env, "import", "--skip-hash-check", spoiled).Ended(t, 3)
	found, _ := filepath.Glob(filepath.Join(j.repo, "prod", "backups", "*"))
	if len(found) > 0 {
		t.Errorf("stored: %q", found)
	}
	command.Run(t, j.env, "import", filepath.Join(t.TempDir(), "none")).Ended(t, 3)
}

// TestSalvageIntoTheRepository loses two of three members for good, and stores the disk of the third as a backup. With the tail it has
// everything that was committed, key by key; without it, everything up to the revision that its manifest calls certain.
func TestSalvageIntoTheRepository(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			servers.Fill(t, c.Client(t), 3, servers.FillOptions{Keys: 500})
			waitForDatabase() // 3.4 writes only then how far its database is
			put(t, c.Client(t), "the last", "acknowledged")
			third := c.Client(t, servers.At(c.Members[2]))
			want, err := third.Get(t.Context(), "\x00", clientv3.WithFromKey()) // linearizable: the third has everything
			if err != nil {
				t.Fatal(err)
			}
			killAll(t, c, 0, 1, 2)

			j := signing(t, newJob(t))
			disk := dirs(c, 2)
			before := content(t, disk)
			plan := command.Must(t, j.env, "salvage", "--from-data-dir", disk)
			if !strings.Contains(plan, disk) || !strings.Contains(plan, "the logs of a majority are not here") {
				t.Errorf("the plan:\n%s", plan)
			}
			store := func(from string, args ...string) catalog.Manifest {
				args = append([]string{"salvage", "--from-data-dir", from, "--to-repository"}, args...)
				return shown(t, j, command.Result[document.Backup](t, j.env, args...).ID)
			}
			whole, certain := store(disk, "--salvage-tail", "all"), store(disk)
			most := store(dirs(c, 1, 2))
			s := most.Origin.Salvage
			if !s.Majority || len(s.Disks) != 2 || most.Revision != want.Header.Revision || s.LeftOut != 0 {
				t.Errorf("from two of three: revision %d, want %d, %+v", most.Revision, want.Header.Revision, s)
			}
			after := content(t, disk)
			if len(after) != len(before) {
				t.Errorf("the disk has %d files, had %d", len(after), len(before))
			} else {
				for path, digest := range before {
					if after[path] != digest {
						t.Errorf("%s was changed", path)
					}
				}
			}
			for name, m := range map[string]catalog.Manifest{"whole": whole, "certain": certain} {
				s := m.Origin.Salvage
				if m.ClusterID == "" || m.Member.Name != c.Members[2].Name || s.Voters != 3 || s.Majority || len(s.Disks) != 1 || !s.Disks[0].Used {
					t.Errorf("%s: cluster %q, member %q, %+v", name, m.ClusterID, m.Member.Name, s)
				}
				if s.Certain > m.Revision || s.Certain != whole.Origin.Salvage.Certain || s.Most < want.Header.Revision {
					t.Errorf("%s: revision %d, %+v", name, m.Revision, s)
				}
			}
			if certain.Revision != certain.Origin.Salvage.Certain || whole.Revision != want.Header.Revision {
				t.Errorf("revisions %d and %d, certain %d, want %d", certain.Revision, whole.Revision, certain.Origin.Salvage.Certain, want.Header.Revision)
			}

			booted, _ := restored(t, j, servers.Options{Version: version}, string(whole.ID))
			got, err := booted.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey())
			if err != nil || len(got.Kvs) != len(want.Kvs) {
				t.Fatalf("%d keys came back, want %d: %v", len(got.Kvs), len(want.Kvs), err)
			}
			for i, kv := range want.Kvs {
				g := got.Kvs[i]
				if string(g.Key) != string(kv.Key) || string(g.Value) != string(kv.Value) || g.ModRevision != kv.ModRevision ||
					g.Version != kv.Version || g.Lease != kv.Lease {
					t.Fatalf("key %d is %v, want %v", i, g, kv)
				}
			}
			less, _ := restored(t, j, servers.Options{Version: version}, string(certain.ID))
			at := clientv3.WithRev(certain.Revision)
			a, err := booted.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey(), at)
			if err != nil {
				t.Fatal(err)
			}
			b, err := less.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey(), at)
			if err != nil || len(a.Kvs) != len(b.Kvs) {
				t.Fatalf("at the certain revision: %d keys and %d, %v", len(a.Kvs), len(b.Kvs), err)
			}
			for i := range a.Kvs {
				if string(a.Kvs[i].Key) != string(b.Kvs[i].Key) || string(a.Kvs[i].Value) != string(b.Kvs[i].Value) {
					t.Fatalf("at the certain revision key %d is %v, want %v", i, b.Kvs[i], a.Kvs[i])
				}
			}
		})
	}
}

// TestSalvageNotesThatTheRepositoryReachesFurther salvages the disk of a member that stopped before the newest backup was taken.
func TestSalvageNotesThatTheRepositoryReachesFurther(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{Members: 3})
	client := c.Client(t, servers.At(c.Members[0]))
	servers.Fill(t, client, 3, servers.FillOptions{})
	c.Stop(t, 2)
	last := written(t, client, "after the stop", "")
	j := newJob(t)
	salvage := func() string {
		return command.Run(t, j.env, "salvage", "--from-data-dir", c.Members[2].DataDir, "--to-repository").Stderr
	}
	notes := salvage()
	if strings.Contains(notes, "reaches revision") {
		t.Errorf("without a backup:\n%s", notes)
	}
	command.Must(t, j.env, "backup", "--endpoints", c.Members[0].ClientURL)
	notes = salvage()
	if !strings.Contains(notes, fmt.Sprintf("reaches revision %d of this cluster, the disks ", last)) {
		t.Errorf("the repository reaches revision %d:\n%s", last, notes)
	}
}

// TestImportedBackupIsRemovedByItsID checks that no rule removes an imported backup, and that its id does. It also checks that the
// database of a running member is refused: a copy of it can mix two states.
func TestImportedBackupIsRemovedByItsID(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{TLS: true})
	servers.Fill(t, c.Client(t), 4, servers.FillOptions{})
	j := newJob(t)
	imported := command.Result[document.Backup](t, j.env, "import", "--time", "1000d ago", saved(t, c))
	own := j.backUp(t, c)
	time.Sleep(time.Second) // the next backup has another name
	j.backUp(t, c)
	for _, live := range [][]string{
		{"import", "--skip-hash-check", filepath.Join(c.Members[0].DataDir, "member", "snap", "db")},
		{"salvage", "--to-repository", "--from-data-dir", c.Members[0].DataDir},
	} {
		command.Run(t, j.env, live...).Ended(t, 4, "a process has")
	}
	command.Must(t, j.env, "prune", "--keep-last", "1")
	out := command.Must(t, j.env, "list")
	if !strings.Contains(out, string(imported.ID)) {
		t.Errorf("a rule has removed the import:\n%s", out)
	}
	refused := command.Run(t, j.env, "prune", "--imported", string(own.ID))
	if refused.Code == 0 {
		t.Errorf("a backup of the live cluster is removed by its id:\n%s", refused.Stdout)
	}
	command.Must(t, j.env, "prune", "--imported", string(imported.ID))
	out = command.Must(t, j.env, "list")
	if strings.Contains(out, string(imported.ID)) {
		t.Errorf("the import is still listed:\n%s", out)
	}
	_, err := os.Stat(filepath.Join(j.repo, "prod", "backups", string(imported.ID)))
	if err != nil {
		t.Errorf("its data went before the grace: %v", err)
	}
}

// TestImportFromABucket imports a bucket with snapshots as several tools store them. It kills the import in the middle, and runs it again: each
// snapshot is stored once, with the same bytes, and one is restored.
func TestImportFromABucket(t *testing.T) {
	withServers(t)
	t.Run("versitygw", func(t *testing.T) { importFromABucket(t, objectstores.S3(t), 10) })
	t.Run("MinIO", func(t *testing.T) { importFromABucket(t, objectstores.Minio(t), 0) }) // its listings have other times than its objects
}

// TestSoakImport imports a bucket with years of snapshots.
func TestSoakImport(t *testing.T) {
	soak.Only(t, "needs some minutes")
	importFromABucket(t, objectstores.S3(t), 500)
}

// importFromABucket carries out TestImportFromABucket with a number of snapshots of k3s.
func importFromABucket(t *testing.T, old *objectstores.S3Server, ofK3s int) {
	t.Helper()
	source := servers.Start(t, servers.Options{TLS: true})
	servers.Fill(t, source.Client(t), 3, servers.FillOptions{Keys: 300})
	whole, err := os.ReadFile(saved(t, source))
	if err != nil {
		t.Fatal(err)
	}
	bucket := old.Bucket(t)
	objects := 0
	put := func(key string, data []byte) {
		t.Helper()
		putObject(t, old, bucket, key, data)
		objects++
	}
	put("prod/coreos/etcd.backup_v98_2026-03-04-05:06:07", whole)
	put("prod/coreos/3.2.13_00000000000003e8_etcd.backup", whole)
	put("prod/garden/v2/Full-00000000-00000098-1772600767", whole)
	put("prod/garden/v2/Full-00000000-00000098-1772600768.gz", compressed(t, whole, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }))
	put("prod/garden/v2/Full-00000000-00000099-1772600768.zlib", compressed(t, whole, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }))
	put("prod/garden/v2/Full-00000000-00000100-1772600769.Z", compressed(t, whole, func(w io.Writer) io.WriteCloser { return lzw.NewWriter(w, lzw.LSB, 8) }))
	put("prod/k3s/etcd-snapshot-n2-1772600767.zip", archived(t, "etcd-snapshot-n2-1772600767", whole))
	put("prod/rke/2026-03-04T05:06:07Z_etcd.zip", archived(t, "backup/2026-03-04T05:06:07Z_etcd", whole))
	put("prod/bitnami/db-2026-03-04_05-06", whole)
	put("prod/by-hand/snapshot.db", whole)
	for i := range ofK3s {
		put(fmt.Sprintf("prod/k3s/etcd-snapshot-n1-%d", 1772600767+i), whole)
	}

	j := signing(t, newJob(t))
	args := []string{"import", old.URL(bucket, "prod"), "--from-credentials", objectstores.Mount(t, old.Secret()), "-o", "json"}
	first := command.Start(t, j.env, args...)
	if !first.Until(3, "commit") {
		t.Fatal("no third backup was stored")
	}
	first.Signal(t, syscall.SIGKILL)
	first.Wait(t)
	done := command.Result[document.Import](t, j.env, args[:len(args)-2]...)
	states := map[document.ImportState]int{}
	for _, s := range done.Sources {
		states[s.State]++
		file := filepath.Join(t.TempDir(), "fetched.db")
		command.Must(t, j.env, "fetch", s.Backup, "--to", file)
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%s: %d bytes, %v, want the snapshot", s.Source, len(got), err)
		}
	}
	backups, _ := filepath.Glob(filepath.Join(j.repo, "prod", "backups", "*", "manifest.json"))
	if len(done.Sources) != objects || states[document.ImportStored]+states[document.ImportPresent] != objects || states[document.ImportPresent] < 2 || len(backups) != objects {
		t.Errorf("%d objects: %v, and %d backups", objects, states, len(backups))
	}
	one := command.Result[document.Import](t, j.env, "import", old.URL(bucket, "prod/by-hand/snapshot.db"),
		"--from-credentials", args[3], "--time", "2026-03-04T05:06:07Z", "--dry-run")
	if len(one.Sources) != 1 || one.Sources[0].State != document.ImportPresent || !strings.HasSuffix(one.Sources[0].Source, "/prod/by-hand/snapshot.db") {
		t.Errorf("the URL of one object stands for %+v", one.Sources)
	}
	command.Run(t, j.env, append(args, "--time", "2026-03-04T05:06:07Z")...).Ended(t, 2, "--time is for one file")
	booted, _ := restored(t, j, servers.Options{TLS: true, Certificates: source.Certificates}, done.Sources[1].Backup)
	checkSame(t, source, booted, done.Sources[1].Revision)
}

// archived returns a zip archive with one file.
func archived(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(data)
	}
	err = errors.Join(err, z.Close())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compressed returns data after a writer that make makes has compressed it.
func compressed(t *testing.T, data []byte, make func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
