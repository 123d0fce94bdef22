package restore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// A restore makes the same changes as etcdutl, in another order and once for all members. The result must be equal, for the
// snapshots of every version of etcd.
func TestSameAsEtcdutl(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs real servers")
	}
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := servers.Start(t, servers.Options{Version: version, Auth: true})
			client := c.Client(t)
			servers.Fill(t, client, 1, servers.FillOptions{Kubernetes: true})
			file := saveSnapshot(t, client)
			for _, test := range []struct {
				members int
				bump    uint64
			}{{1, 0}, {3, 0}, {1, 1_000_000_000}, {3, 12345}} {
				t.Run(fmt.Sprintf("%d members, bump %d", test.members, test.bump), func(t *testing.T) {
					compareWithEtcdutl(t, file, test.members, test.bump)
				})
			}
		})
	}
}

func saveSnapshot(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	stream, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = io.Copy(f, stream)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func compareWithEtcdutl(t *testing.T, file string, count int, bump uint64) {
	t.Helper()
	var members []plan.Member
	for i := range count {
		members = append(members, memberAt(fmt.Sprintf("m%d", i+1), fmt.Sprintf("https://10.0.0.%d:2380", i+1),
			fmt.Sprintf("https://10.1.0.%d:2380", i+1)))
	}
	p, err := plan.New(catalog.Catalog{}, plan.Target{File: file}, plan.Layout{
		Members: members, Token: "fresh", Bump: fmt.Sprint(bump), KeepAlarms: true, OldIsDead: true, Into: all(t),
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := restore.Run(t.Context(), p, child.Opened{Keys: fixture{}.keys}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range members {
		theirs := filepath.Join(t.TempDir(), m.Name)
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, Name: m.Name, OutputDataDir: theirs, PeerURLs: m.PeerURLs, InitialCluster: p.InitialCluster(),
			InitialClusterToken: p.Token, RevisionBump: bump, MarkCompacted: bump > 0,
		})
		if err != nil {
			t.Fatal(err)
		}
		wantSameDataDir(t, theirs, ours.Members[i].DataDir)
	}
}

func wantSameDataDir(t *testing.T, theirs, ours string) {
	t.Helper()
	a, b := treeOf(t, theirs), treeOf(t, ours)
	if !slices.Equal(a, b) {
		t.Fatalf("files %q, etcdutl has %q", b, a)
	}
	wantSameDatabase(t, filepath.Join(theirs, "member", "snap", "db"), filepath.Join(ours, "member", "snap", "db"))
	diff := cmp.Diff(readSnap(t, theirs), readSnap(t, ours), protocmp.Transform())
	if diff != "" {
		t.Errorf(".snap (-etcdutl +ours):\n%s", diff)
	}
	diff = cmp.Diff(readWAL(t, theirs), readWAL(t, ours), protocmp.Transform())
	if diff != "" {
		t.Errorf("WAL (-etcdutl +ours):\n%s", diff)
	}
}

func wantSameDatabase(t *testing.T, theirs, ours string) {
	t.Helper()
	a, b := readBuckets(t, theirs), readBuckets(t, ours)
	x, y := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	if !slices.Equal(x, y) {
		t.Errorf("buckets %q, etcdutl has %q", y, x)
	}
	for name, bucket := range a {
		for k, v := range bucket {
			w, ok := b[name][k]
			if !ok || v != w {
				t.Errorf("bucket %s, key %q: %q (there: %v), etcdutl has %q", name, k, w, ok, v)
			}
		}
		for k := range b[name] {
			_, ok := bucket[k]
			if !ok {
				t.Errorf("bucket %s: key %q is not in etcdutl's", name, k)
			}
		}
	}
	if len(a["key"]) < 300 || len(a["authUsers"]) < 2 || len(a["lease"]) == 0 || len(a["members"]) == 0 {
		t.Errorf("the snapshot has too little in it: %d keys, %d users, %d leases, %d members",
			len(a["key"]), len(a["authUsers"]), len(a["lease"]), len(a["members"]))
	}
}

func readBuckets(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	buckets := map[string]map[string]string{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			content := map[string]string{}
			buckets[string(name)] = content
			return b.ForEach(func(k, v []byte) error {
				content[string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return buckets
}

// snapContent is a .snap file, its membership as a map of paths to values: etcd numbers the nodes in it by chance.
type snapContent struct {
	Metadata proto.Message
	Values   map[string]string
}

func readSnap(t *testing.T, dataDir string) snapContent {
	t.Helper()
	s, err := snap.New(zap.NewNop(), filepath.Join(dataDir, "member", "snap")).Load()
	if err != nil {
		t.Fatal(err)
	}
	var store struct{ Root any }
	err = json.Unmarshal(s.Data, &store)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	flatten(store.Root, values)
	if !strings.Contains(fmt.Sprint(values), "https://10.0.0.1:2380") {
		t.Errorf("no member in the snapshot: %q", values)
	}
	return snapContent{s.Metadata, values}
}

func flatten(node any, into map[string]string) {
	fields, ok := node.(map[string]any)
	if !ok {
		return
	}
	path, ok := fields["Path"].(string)
	if ok {
		into[path] = fmt.Sprint(fields["Value"])
	}
	children, _ := fields["Children"].(map[string]any)
	for _, child := range children {
		flatten(child, into)
	}
}

type walContent struct {
	Metadata  []byte
	HardState proto.Message
	Entries   []proto.Message
	Snapshots []proto.Message
}

func readWAL(t *testing.T, dataDir string) walContent {
	t.Helper()
	dir := filepath.Join(dataDir, "member", "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	metadata, state, entries, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	c := walContent{Metadata: bytes.Clone(metadata), HardState: state}
	for _, e := range entries {
		c.Entries = append(c.Entries, e)
	}
	for _, s := range snapshots {
		c.Snapshots = append(c.Snapshots, s)
	}
	if len(c.Metadata) == 0 || len(c.Entries) == 0 || len(c.Snapshots) != 2 {
		t.Errorf("WAL %+v", c)
	}
	return c
}
