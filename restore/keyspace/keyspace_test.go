package keyspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// withStore opens a database, or a new one, with etcd's store.
func withStore(t testing.TB, path string, do func(mvcc.KV)) {
	t.Helper()
	withBackend(t, path, func(_ backend.Backend, store mvcc.KV) { do(store) })
}

// withBackend is withStore for tests that need the backend too.
func withBackend(t testing.TB, path string, do func(backend.Backend, mvcc.KV)) {
	t.Helper()
	be := backend.New(backend.BackendConfig{Path: path, UnsafeNoFsync: true, BatchLimit: 1000, BatchInterval: time.Hour, Logger: zap.NewNop()})
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	do(be, store)
	err := errors.Join(store.Close(), be.Close())
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string, at int64) (k keyspace.Summary, err error) {
	t.Helper()
	db, openErr := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if openErr != nil {
		t.Fatal(openErr)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		k, err = keyspace.Read(t.Context(), tx, at)
		return err
	})
	return k, err
}

// wantAsEtcd compares what Read finds in a database with what etcd's store does, with the hash of each revision that has one.
func wantAsEtcd(t *testing.T, path string) {
	t.Helper()
	type loaded struct {
		space  keyspace.Summary
		hashes []mvcc.KeyValueHash
	}
	var want loaded
	withStore(t, path, func(store mvcc.KV) {
		var err error
		want.space.Revision = store.Rev()
		want.space.Keys, want.space.Kubernetes, err = replay.CountKeys(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for at := store.Rev(); at > 0; at-- {
			h, _, err := store.HashStorage().HashByRev(at)
			if err != nil {
				break // compacted
			}
			want.hashes = append(want.hashes, h)
		}
	})
	for _, h := range want.hashes {
		got, err := read(t, path, h.Revision)
		if err != nil {
			t.Fatal(err)
		}
		want.space.Compacted, want.space.Hash = h.CompactRevision, h.Hash
		if got != want.space {
			t.Fatalf("at revision %d: %+v, etcd has %+v", h.Revision, got, want.space)
		}
	}
}

// TestReadAsEtcd reads random histories of etcd's store, with compactions, and a raised revision in some.
func TestReadAsEtcd(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			path := filepath.Join(t.TempDir(), "db")
			for range 1 + random.IntN(3) {
				withStore(t, path, func(store mvcc.KV) { live(t, store, random, 1+random.IntN(150)) })
				wantAsEtcd(t, path)
			}
		})
	}
}

// live makes random changes of a few keys. Some keep one key alone, or none.
func live(t *testing.T, store mvcc.KV, random *rand.Rand, steps int) {
	t.Helper()
	key := func() []byte {
		return fmt.Appendf(nil, "%s%d", []string{"/registry/pods/", "own/"}[random.IntN(2)], random.IntN(8))
	}
	for range steps {
		switch random.IntN(12) {
		case 0:
			tx := store.Write(traceutil.Get(t.Context()))
			for range random.IntN(4) {
				tx.Put(key(), []byte("of a transaction"), lease.NoLease)
				tx.DeleteRange(key(), nil)
			}
			tx.End()
		case 1, 2, 3:
			store.DeleteRange(key(), nil)
		case 4:
			store.DeleteRange([]byte{0}, []byte{})
		case 5:
			done, err := store.Compact(traceutil.Get(t.Context()), max(1, store.Rev()-random.Int64N(20)))
			if err == nil {
				<-done
			}
		default:
			store.Put(key(), []byte(strings.Repeat("x", random.IntN(300))), lease.NoLease)
		}
	}
	store.Commit()
}

// TestReadAsServers reads snapshots of servers of each version, and compares with the servers' own hashes too.
func TestReadAsServers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cluster := servers.Start(t, servers.Options{Version: version})
			w := history.New(t, cluster, 3, history.Options{Auth: true})
			for range 12 {
				w.Write(80)
				path := w.Snapshot()
				newest, err := read(t, path, 0)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := w.Client().HashKV(t.Context(), cluster.Members[0].ClientURL, newest.Revision)
				if err != nil {
					t.Fatal(err)
				}
				got, err := read(t, path, newest.Revision)
				if err != nil || got.Hash != answer.Hash || got.Compacted != answer.CompactRevision {
					t.Errorf("%+v, %v; the server's hash is %d, compacted at %d", got, err, answer.Hash, answer.CompactRevision)
				}
				wantAsEtcd(t, path)
			}
		})
	}
}

// TestReadAfterARaise reads a database whose revision a restore has raised, before and after a server has compacted it.
func TestReadAfterARaise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	withStore(t, path, func(store mvcc.KV) { live(t, store, rand.New(rand.NewPCG(1, 1)), 100) })
	be := backend.New(backend.BackendConfig{Path: path, UnsafeNoFsync: true, BatchLimit: 1, BatchInterval: time.Hour, Logger: zap.NewNop()})
	tx := be.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafePut(schema.Key, mvcc.RevToBytes(mvcc.Revision{Main: 1e9}, mvcc.NewRevBytes()), []byte{})
	mvcc.UnsafeSetScheduledCompact(tx, 1e9)
	tx.Unlock()
	err := be.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, err = read(t, path, 1e9)
	if !errors.Is(err, keyspace.ErrUnfinished) {
		t.Errorf("before the compaction: %v, want ErrUnfinished", err)
	}
	withStore(t, path, func(store mvcc.KV) {
		done, _ := store.Compact(traceutil.Get(t.Context()), 1e9) // it has begun already
		<-done
	})
	wantAsEtcd(t, path)
}

// keyAt returns the key of an entry at a revision.
func keyAt(revision int64, mark string) []byte {
	return append(mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes()), mark...)
}

// valueOf returns the value of an entry.
func valueOf(t *testing.T, kv *mvccpb.KeyValue) []byte {
	t.Helper()
	data, err := proto.Marshal(kv)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// compactedAt has the keys a and b at the revisions 2 and 3, and later ones to revision 10, and is compacted at revision 6.
func compactedAt(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "db")
	withStore(t, path, func(store mvcc.KV) {
		for _, key := range []string{"a", "/registry/b", "c", "c", "c", "c", "c", "c", "c"} {
			store.Put([]byte(key), []byte("value"), lease.NoLease)
		}
		done, err := store.Compact(traceutil.Get(t.Context()), 6)
		if err != nil {
			t.Fatal(err)
		}
		<-done
	})
	return path
}

// change changes a database without etcd.
func change(t *testing.T, path string, do func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(do), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefused reads databases that a server would not load, or not as they look.
func TestRefused(t *testing.T) {
	a := &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 5}
	for name, test := range map[string]struct {
		bucket, key, value []byte
		says               string
	}{
		"a key that is too short":        {schema.Key.Name(), []byte("short"), nil, "is not a revision"},
		"a key without separator":        {schema.Key.Name(), make([]byte, 17), nil, "is not a revision"},
		"a mark of no tombstone":         {schema.Key.Name(), keyAt(20, "x"), valueOf(t, a), "is not a revision"},
		"a negative revision":            {schema.Key.Name(), append([]byte{255, 0, 0, 0, 0, 0, 0, 0, '_'}, make([]byte, 8)...), nil, "is not a revision"},
		"revision 0":                     {schema.Key.Name(), keyAt(0, ""), valueOf(t, a), "not a revision that a server loads"},
		"the highest revision":           {schema.Key.Name(), keyAt(math.MaxInt64, ""), valueOf(t, a), "not a revision that a server loads"},
		"a value that is cut":            {schema.Key.Name(), keyAt(20, ""), []byte{0x0a, 9, 'x'}, "malformed"},
		"a value that is not a field":    {schema.Key.Name(), keyAt(20, ""), []byte{0xff}, "malformed"},
		"a field that cannot be":         {schema.Key.Name(), keyAt(20, ""), protowire.AppendVarint(protowire.AppendVarint(nil, 1<<32), 1), "no field"},
		"a compaction at no revision":    {schema.Meta.Name(), schema.FinishedCompactKeyName, []byte("x"), "is not a revision"},
		"a revision twice":               {schema.Key.Name(), keyAt(10, "t"), valueOf(t, a), "occurs twice"},
		"a deletion before a compaction": {schema.Key.Name(), keyAt(5, "t"), valueOf(t, a), "a deletion before the compaction"},
	} {
		t.Run(name, func(t *testing.T) {
			path := compactedAt(t)
			change(t, path, func(tx *bolt.Tx) error { return tx.Bucket(test.bucket).Put(test.key, test.value) })
			_, err := read(t, path, 10)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

// TestForged reads databases whose entries contradict each other. etcd loads them, and counts and hashes as Read does.
func TestForged(t *testing.T) {
	for name, do := range map[string]func(keys *bolt.Bucket) error{
		"nothing": func(*bolt.Bucket) error { return nil },
		"a first version that is no 1": func(keys *bolt.Bucket) error {
			return keys.Put(keyAt(20, ""), valueOf(t, &mvccpb.KeyValue{Key: []byte("/registry/d"), Version: 2}))
		},
		"deletions of keys that never were": func(keys *bolt.Bucket) error {
			return errors.Join(keys.Put(keyAt(20, "t"), valueOf(t, &mvccpb.KeyValue{Key: []byte("/registry/d")})),
				keys.Put(keyAt(21, "t"), valueOf(t, &mvccpb.KeyValue{Key: []byte("/registry/e")})))
		},
		"a lost entry of a key that was changed later": func(keys *bolt.Bucket) error { return keys.Delete(keyAt(6, "")) },
		"an entry that the compaction should have removed": func(keys *bolt.Bucket) error {
			return keys.Put(keyAt(4, ""), valueOf(t, &mvccpb.KeyValue{Key: []byte("c"), Version: 1}))
		},
		"a deletion by the compacted revision": func(keys *bolt.Bucket) error {
			return errors.Join(keys.Delete(keyAt(6, "")), keys.Put(keyAt(6, "t"), valueOf(t, &mvccpb.KeyValue{Key: []byte("a")})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := compactedAt(t)
			change(t, path, func(tx *bolt.Tx) error { return do(tx.Bucket(schema.Key.Name())) })
			wantCounts(t, path)
		})
	}
}

// wantCounts compares the numbers that Read finds with those of etcd's store. Where the hash of the newest revision differs, a caller asks
// the store.
func wantCounts(t *testing.T, path string) {
	t.Helper()
	var want keyspace.Summary
	var hash uint32
	withStore(t, path, func(store mvcc.KV) {
		h, _, err := store.HashStorage().HashByRev(0)
		if err != nil {
			t.Fatal(err)
		}
		want.Revision, want.Compacted, hash = store.Rev(), h.CompactRevision, h.Hash
		want.Keys, want.Kubernetes, err = replay.CountKeys(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
	})
	got, err := read(t, path, want.Revision)
	if got.Hash != hash {
		t.Logf("the hashes differ")
	}
	got.Hash = 0
	if err != nil || got != want {
		t.Errorf("%+v, %v, etcd has %+v", got, err, want)
	}
}

// TestEntries encodes random entries as etcd's store does, and parses them.
func TestEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 8))
	number := func() int64 { return random.Int64() >> random.IntN(64) }
	bytesOf := func(longest int) []byte { return []byte(strings.Repeat("x", random.IntN(longest+1))) }
	for range 1000 {
		kv := &mvccpb.KeyValue{
			Key: bytesOf(300), CreateRevision: number(), ModRevision: number() | 1, Version: number(), Value: bytesOf(300), Lease: number(),
		}
		if random.IntN(2) == 0 {
			kv.Lease = -kv.Lease
		}
		e := keyspace.Entry{Key: kv.Key, Created: kv.CreateRevision, Version: kv.Version, Lease: kv.Lease}
		e.Main, e.Sub = kv.ModRevision, number()
		key := mvcc.RevToBytes(e.Revision, mvcc.NewRevBytes())
		if random.IntN(4) == 0 {
			key, kv, e = append(key, 't'), &mvccpb.KeyValue{Key: kv.Key}, keyspace.Entry{BucketKey: keyspace.BucketKey{Revision: e.Revision, Tombstone: true}, Key: kv.Key}
		}
		want, err := proto.Marshal(kv)
		if err != nil {
			t.Fatal(err)
		}
		got := e.AppendValue(nil, kv.Value)
		if !bytes.Equal(e.Append(nil), key) || !bytes.Equal(got, want) {
			t.Fatalf("%+v: %x and %x, want %x and %x", e, e.Append(nil), got, key, want)
		}
		parsed, err := keyspace.Parse(key, got)
		if err != nil || !bytes.Equal(parsed.Key, e.Key) || parsed.BucketKey != e.BucketKey || parsed.Created != e.Created || parsed.Version != e.Version || parsed.Lease != e.Lease {
			t.Fatalf("parsed %+v, want %+v: %v", parsed, e, err)
		}
	}
}

// TestReadOpen reads a database of several batches, some of it not committed, and compares with what Read finds later.
func TestReadOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	const puts, compacted = 25_000, 4000
	var newest int64
	open := map[int64]keyspace.Summary{}
	withBackend(t, path, func(be backend.Backend, store mvcc.KV) {
		for i := range puts {
			store.Put(fmt.Append(nil, i%12_000), nil, lease.NoLease)
			if i%7 == 0 {
				store.DeleteRange(fmt.Append(nil, i%500), nil)
			}
		}
		done, err := store.Compact(traceutil.Get(t.Context()), compacted)
		if err != nil {
			t.Fatal(err)
		}
		<-done
		store.Put([]byte("not committed"), nil, lease.NoLease)
		newest = store.Rev()
		tx := be.BatchTx()
		tx.LockOutsideApply()
		defer tx.Unlock()
		for _, at := range []int64{compacted, 11_000, newest} {
			open[at], err = keyspace.ReadOpen(tx, compacted, at)
			if err != nil {
				t.Error(err)
			}
		}
	})
	for at, got := range open {
		want, err := read(t, path, at)
		if err != nil || got != want || got.Revision != newest || got.Hash == 0 {
			t.Errorf("at %d: open %+v, later %+v, %v", at, got, want, err)
		}
	}
}

// BenchmarkRead compares Read with loading the store.
func BenchmarkRead(b *testing.B) {
	const keys = 200_000
	path := filepath.Join(b.TempDir(), "db")
	withStore(b, path, func(store mvcc.KV) {
		for i := range keys {
			store.Put(fmt.Appendf(nil, "/registry/pods/%08d", i), make([]byte, 100), lease.NoLease)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, err := read(b, path, keys)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			withStore(b, path, func(store mvcc.KV) {
				_, _, err := store.HashStorage().HashByRev(keys)
				_, _, countErr := replay.CountKeys(context.Background(), store)
				err = errors.Join(err, countErr)
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}
