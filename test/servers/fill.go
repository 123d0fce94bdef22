package servers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3"
)

const (
	fillTimeout = 10 * time.Minute
	// batchKeys are written by one transaction, which etcd limits to 128 operations by default.
	batchKeys = 100
	// leaseTTL is long enough that no lease ends by itself while a test runs.
	leaseTTL = 24 * 60 * 60
)

// FillOptions configure how much Fill writes. The zero value is 300 keys of 64 bytes.
type FillOptions struct {
	Keys       int
	ValueSize  int
	Kubernetes bool // keys below /registry/, as a kube-apiserver names them
}

// Fill writes the same history for the same seed and options: puts, overwrites, deletions of one key and of a range,
// transactions with compares, leases with keys, a lease that is revoked, and a compaction halfway. It returns the
// revision of its last write. Another seed continues in the same cluster; the same seed cannot be used twice there,
// since its leases exist.
func Fill(t testing.TB, client *clientv3.Client, seed uint64, o FillOptions) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fillTimeout)
	defer cancel()
	f := newFiller(client, seed, o)
	err := f.run(ctx)
	if err != nil {
		t.Fatalf("fill with seed %d: %v", seed, err)
	}
	return f.revision
}

type filler struct {
	client   *clientv3.Client
	random   *rand.Rand
	bytes    *rand.ChaCha8
	seed     uint64
	options  FillOptions
	leases   int
	first    int64 // the revision of the first write
	revision int64 // of the last
}

func newFiller(client *clientv3.Client, seed uint64, o FillOptions) *filler {
	if o.Keys == 0 {
		o.Keys = 300
	}
	if o.ValueSize == 0 {
		o.ValueSize = 64
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	source := rand.NewChaCha8(key)
	return &filler{client: client, random: rand.New(source), bytes: source, seed: seed, options: o}
}

func (f *filler) run(ctx context.Context) error {
	half := f.options.Keys / 2
	err := f.write(ctx, 0, half)
	if err != nil {
		return err
	}
	if half > 0 {
		_, err := f.client.Compact(ctx, (f.first+f.revision)/2)
		if err != nil {
			return err
		}
	}
	return f.write(ctx, half, f.options.Keys)
}

// write puts the keys with the numbers from to before end, and changes some of them again.
func (f *filler) write(ctx context.Context, from, end int) error {
	for ; from < end; from += batchKeys {
		next := min(from+batchKeys, end)
		steps := []func(ctx context.Context, from, end int) error{f.putAll, f.overwrite, f.compare, f.lease, f.remove}
		for _, step := range steps {
			err := step(ctx, from, next)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// putAll writes the first keys one by one and the rest in one transaction, so that revisions have sub revisions too.
func (f *filler) putAll(ctx context.Context, from, end int) error {
	alone := min(from+10, end)
	for i := from; i < alone; i++ {
		err := f.do(ctx, f.put(i))
		if err != nil {
			return err
		}
	}
	var ops []clientv3.Op
	for i := alone; i < end; i++ {
		ops = append(ops, f.put(i))
	}
	return f.do(ctx, clientv3.OpTxn(nil, ops, nil))
}

func (f *filler) overwrite(ctx context.Context, from, end int) error {
	for range 3 {
		err := f.do(ctx, f.put(f.pick(from, end)))
		if err != nil {
			return err
		}
	}
	return nil
}

// compare runs one transaction whose compare succeeds and one whose compare fails.
func (f *filler) compare(ctx context.Context, from, end int) error {
	key := f.key(f.pick(from, end))
	exists := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	for _, cmp := range []clientv3.Cmp{exists, absent} {
		then := []clientv3.Op{f.put(f.pick(from, end)), clientv3.OpGet(key)}
		otherwise := []clientv3.Op{clientv3.OpPut(key, f.value())}
		err := f.do(ctx, clientv3.OpTxn([]clientv3.Cmp{cmp}, then, otherwise))
		if err != nil {
			return err
		}
	}
	return nil
}

// lease attaches keys to a lease that stays, and a key to one that is revoked at once.
func (f *filler) lease(ctx context.Context, from, end int) error {
	kept, err := f.grant(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		err := f.do(ctx, f.put(f.pick(from, end), clientv3.WithLease(kept)))
		if err != nil {
			return err
		}
	}
	revoked, err := f.grant(ctx)
	if err != nil {
		return err
	}
	err = f.do(ctx, f.put(f.pick(from, end), clientv3.WithLease(revoked)))
	if err != nil {
		return err
	}
	_, err = f.client.Revoke(ctx, revoked)
	return err
}

// grant chooses the lease's id; the server's would differ from run to run.
func (f *filler) grant(ctx context.Context) (clientv3.LeaseID, error) {
	f.leases++
	id := int64(f.seed&0xffffffff)<<24 + int64(f.leases)
	_, err := clientv3.RetryLeaseClient(f.client).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: leaseTTL})
	return clientv3.LeaseID(id), err
}

func (f *filler) remove(ctx context.Context, from, end int) error {
	err := f.do(ctx, clientv3.OpDelete(f.key(f.pick(from, end))))
	if err != nil {
		return err
	}
	first, last := f.key(f.pick(from, end)), f.key(f.pick(from, end))
	if first > last {
		first, last = last, first
	}
	// A few keys at most: the numbers in a key's name need not be neighbours.
	keys, err := f.client.Get(ctx, first, clientv3.WithRange(last), clientv3.WithKeysOnly(), clientv3.WithLimit(4))
	if err != nil || len(keys.Kvs) == 0 {
		return err
	}
	last = string(keys.Kvs[len(keys.Kvs)-1].Key)
	return f.do(ctx, clientv3.OpDelete(first, clientv3.WithRange(last)))
}

func (f *filler) do(ctx context.Context, op clientv3.Op) error {
	response, err := f.client.Do(ctx, op)
	if err != nil {
		return err
	}
	f.revision = responseRevision(response)
	if f.first == 0 {
		f.first = f.revision
	}
	return nil
}

func responseRevision(r clientv3.OpResponse) int64 {
	switch {
	case r.Put() != nil:
		return r.Put().Header.Revision
	case r.Del() != nil:
		return r.Del().Header.Revision
	default:
		return r.Txn().Header.Revision
	}
}

func (f *filler) put(i int, options ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpPut(f.key(i), f.value(), options...)
}

// pick returns a number of a key from from to before end.
func (f *filler) pick(from, end int) int {
	return from + f.random.IntN(end-from)
}

func (f *filler) key(i int) string {
	if f.options.Kubernetes {
		kinds := []string{"configmaps", "events", "leases", "pods", "secrets"}
		return fmt.Sprintf("/registry/%s/ns-%d/s%d-%06d", kinds[i%len(kinds)], i%7, f.seed, i)
	}
	return fmt.Sprintf("key/%d/%06d", f.seed, i)
}

func (f *filler) value() string {
	value := make([]byte, f.options.ValueSize)
	_, _ = f.bytes.Read(value) // never fails
	return string(value)
}
