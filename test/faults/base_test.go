package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const clusterName = "prod"

// repo is a repository in a directory.
type repo string

func (r repo) flags(verb string, more ...string) []string {
	return append([]string{verb, "--repo", "file://" + string(r), "--cluster", clusterName}, more...)
}

// list returns the output of dr list, which must succeed or find nothing.
func (r repo) list(t testing.TB) document.List {
	t.Helper()
	var l document.List
	o := run(t, r.flags("list")...)
	if o.Code == 3 && strings.Contains(o.Stderr, catalog.ErrNotFound.Error()) {
		return l
	}
	o.Succeeded(t, &l)
	return l
}

// leftovers returns the keys in the output of dr list --leftovers, sorted.
func (r repo) leftovers(t testing.TB) []string {
	t.Helper()
	var l document.Leftovers
	run(t, r.flags("list", "--leftovers")...).Succeeded(t, &l)
	var keys []string
	for _, left := range l.Leftovers {
		keys = append(keys, left.Key)
	}
	slices.Sort(keys)
	return keys
}

// keyPair is an age key: the file with the identity, and its recipient.
type keyPair struct{ file, recipient string }

func newKey(t testing.TB, path string) keyPair {
	t.Helper()
	identity, recipient, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(path, []byte(identity+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{path, recipient}
}

func (k keyPair) keys(t testing.TB) seal.Keys {
	t.Helper()
	f, err := os.Open(k.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	keys, err := seal.ParseKeys(f)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// backUp takes one backup of the members at the endpoints.
func backUp(t testing.TB, to repo, key keyPair, endpoints []string, more ...string) document.Backup {
	t.Helper()
	var b document.Backup
	run(t, backupArgs(to, key, endpoints, more...)...).Succeeded(t, &b)
	return b
}

func backupArgs(to repo, key keyPair, endpoints []string, more ...string) []string {
	return to.flags("backup", append([]string{"--recipient", key.recipient, "--endpoints", strings.Join(endpoints, ",")}, more...)...)
}

// base is a small backup of a server that no longer runs.
type base struct {
	repo     repo
	key      keyPair
	other    keyPair // opens nothing
	backup   document.Backup
	snapshot string // the plain file

	manifestKey, objectKey string
}

var (
	theBase *base
	baseMu  sync.Mutex
)

// needBase returns the small backup, which it takes once for all tests.
func needBase(t *testing.T) *base {
	t.Helper()
	baseMu.Lock()
	defer baseMu.Unlock()
	if theBase == nil {
		theBase = newBase(t)
	}
	return theBase
}

func newBase(t *testing.T) *base {
	t.Helper()
	b := &base{
		repo:     repo(filepath.Join(shared, "base")),
		key:      newKey(t, filepath.Join(shared, "base-key.txt")),
		other:    newKey(t, filepath.Join(shared, "other-key.txt")),
		snapshot: filepath.Join(shared, "base.db"),
	}
	source := servers.Start(t, servers.Options{})
	client := source.Client(t)
	servers.Fill(t, client, 1, servers.FillOptions{})
	fillRandom(t, client, 2, 300<<10, 9000) // values that span several pages
	b.backup = backUp(t, b.repo, b.key, source.Endpoints())
	run(t, b.repo.flags("fetch", "--identity", b.key.file, "--to", b.snapshot)...).Succeeded(t, nil)
	source.Stop(t, 0)
	folder := clusterName + "/backups/" + string(b.backup.ID) + "/"
	b.manifestKey, b.objectKey = folder+"manifest.json", folder+b.backup.Stored.Name
	return b
}

// fillRandom writes about so many bytes that do not compress, in values of one size.
func fillRandom(t testing.TB, client *clientv3.Client, seed uint64, bytes, valueSize int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	var ops []clientv3.Op
	for i := range bytes / valueSize {
		value := make([]byte, valueSize)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("random/%d/%08d", seed, i), string(value)))
		if len(ops) == 100 || len(ops)*valueSize > 500<<10 { // etcd accepts at most 128 operations or 1.5 MiB at once
			commit(t, client, ops)
			ops = nil
		}
	}
	commit(t, client, ops)
}

func commit(t testing.TB, client *clientv3.Client, ops []clientv3.Op) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	_, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns one object of the small backup.
func (b *base) read(t testing.TB, key string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(b.repo), key))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// with returns a copy of the small backup's repository in which content replaces one object; nil removes it.
func (b *base) with(t testing.TB, dir, key string, content []byte) repo {
	t.Helper()
	for _, k := range []string{b.manifestKey, b.objectKey} {
		data := content
		if k != key {
			data = b.read(t, k)
		}
		if data == nil {
			continue
		}
		path := filepath.Join(dir, k)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(path, data, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	return repo(dir)
}
