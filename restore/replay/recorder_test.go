package replay_test

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// recorder watches a server and records the log of an archiver that has only a client.
type recorder struct {
	testing.TB
	member  *servers.Member
	next    int64
	leases  map[int64]bool
	unknown int // leases that ended before the recorder asked for them
	changes []segment.Record
	marks   []segment.Record
}

// record returns a recorder that begins after the newest revision.
func record(t testing.TB, c *servers.Cluster, client *clientv3.Client) *recorder {
	t.Helper()
	r := &recorder{TB: t, member: c.Members[0], leases: map[int64]bool{}, marks: serverVersion(t, client, c)}
	r.next = r.revision(client) + 1
	return r
}

func (r *recorder) revision(client *clientv3.Client) int64 {
	r.Helper()
	response, err := client.Get(r.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		r.Fatal(err)
	}
	return response.Header.Revision
}

// catchUp records the changes since the last call, before they are compacted.
func (r *recorder) catchUp(client *clientv3.Client) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	now := r.revision(client)
	if now < r.next {
		return
	}
	watch := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(r.next))
	for response := range watch {
		err := response.Err()
		if err != nil {
			r.Fatalf("watch from revision %d: %v", r.next, err)
		}
		for events := range byRevision(response.Events) {
			r.take(ctx, client, events)
		}
		if r.next > now {
			return
		}
	}
	r.Fatalf("the watch ended at revision %d, before %d", r.next, now)
}

func byRevision(events []*clientv3.Event) iter.Seq[[]*clientv3.Event] {
	return func(yield func([]*clientv3.Event) bool) {
		for len(events) > 0 {
			end := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != events[0].Kv.ModRevision })
			if end < 0 {
				end = len(events)
			}
			if !yield(events[:end]) {
				return
			}
			events = events[end:]
		}
	}
}

// take records one revision.
func (r *recorder) take(ctx context.Context, client *clientv3.Client, events []*clientv3.Event) {
	r.Helper()
	revision := events[0].Kv.ModRevision
	if revision != r.next {
		r.Fatalf("the watch goes on with revision %d, not %d", revision, r.next)
	}
	var ops []*pb.RequestOp
	for _, e := range events {
		r.grant(ctx, client, e.Kv.Lease)
		ops = append(ops, opOf(e))
	}
	r.changes = append(r.changes, change(r.TB, r.next, changeOf(ops)))
	r.next++
}

func (r *recorder) grant(ctx context.Context, client *clientv3.Client, id int64) {
	r.Helper()
	if id == 0 || r.leases[id] {
		return
	}
	r.leases[id] = true
	lease, err := client.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		r.Fatal(err)
	}
	if lease.TTL < 0 {
		r.unknown++
		return
	}
	r.changes = append(r.changes, change(r.TB, r.next, grantOf(id, lease.GrantedTTL)))
}

// mark records the hash of the newest revision.
func (r *recorder) mark(client *clientv3.Client) {
	r.Helper()
	hash, err := client.HashKV(r.Context(), r.member.ClientURL, 0)
	if err != nil {
		r.Fatal(err)
	}
	position := uint64(hash.Header.Revision)
	if hash.CompactRevision > 0 {
		r.marks = append(r.marks, segment.Record{
			Kind: segment.CompactionMark, Position: position, CompactRevision: hash.CompactRevision,
		})
	}
	r.marks = append(r.marks,
		segment.Record{Kind: segment.RevisionMark, Position: position, Revision: hash.Header.Revision},
		segment.Record{Kind: segment.HashMark, Position: position, Revision: hash.Header.Revision,
			CompactRevision: hash.CompactRevision, Hash: hash.Hash})
}

// log returns the recorded log, with the marks in the order of segments.
func (r *recorder) log() replay.Log {
	slices.SortStableFunc(r.marks, func(a, b segment.Record) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.CompactRevision, b.CompactRevision))
	})
	return fromWatch(r.marks, r.changes)
}

func fromWatch(parts ...[]segment.Record) replay.Log {
	return replay.Log{Source: segment.Watch, Records: inSegments(parts...)}
}

func change(t testing.TB, revision int64, r *pb.InternalRaftRequest) segment.Record {
	t.Helper()
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return segment.Record{Kind: segment.Change, Position: uint64(revision), Data: data}
}

func opOf(e *clientv3.Event) *pb.RequestOp {
	if e.Type == clientv3.EventTypeDelete {
		return deleteOf(string(e.Kv.Key))
	}
	return putOf(string(e.Kv.Key), string(e.Kv.Value), e.Kv.Lease)
}

func putOf(key, value string, lease int64) *pb.RequestOp {
	p := &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
}

func deleteOf(key string) *pb.RequestOp {
	d := &pb.DeleteRangeRequest{Key: []byte(key)}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}}
}

func grantOf(id, ttl int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}}
}

// changeOf returns one put or delete, or a transaction of several.
func changeOf(ops []*pb.RequestOp) *pb.InternalRaftRequest {
	if len(ops) > 1 {
		return &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: ops}}
	}
	return &pb.InternalRaftRequest{Put: ops[0].GetRequestPut(), DeleteRange: ops[0].GetRequestDeleteRange()}
}

// keyBucket returns the contents of the key space's bucket: every revision that still exists.
func keyBucket(t testing.TB, path string) map[string]string {
	t.Helper()
	return bucket(t, path, schema.Key.Name())
}

func bucket(t testing.TB, path string, name []byte) map[string]string {
	t.Helper()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string]string{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(name).ForEach(func(k, v []byte) error {
			all[string(k)] = string(v)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
