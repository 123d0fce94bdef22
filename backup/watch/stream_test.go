package watch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// rig is a server, a client that writes, and the member as dr accesses it.
type rig struct {
	t      *testing.T
	client *clientv3.Client
	server *cluster.Server
	leases *watch.Leases
}

func newRig(t *testing.T) rig {
	t.Helper()
	s := embedded.Start(t, nil)
	c, err := cluster.Connect(t.Context(), cluster.Config{
		Endpoints: []string{s.URL}, DialTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return rig{t, s.Client(t), c.Servers[0], watch.NewLeases(c.Servers[0])}
}

func (r rig) put(key, value string, o ...clientv3.OpOption) int64 {
	r.t.Helper()
	answer, err := r.client.Put(r.t.Context(), key, value, o...)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.Header.Revision
}

func (r rig) from(revision int64) *watch.Stream {
	r.t.Helper()
	s, err := watch.From(r.t.Context(), r.server, r.leases, revision)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

func (r rig) follow(end segment.End) (*watch.Stream, error) {
	r.t.Helper()
	s, err := watch.Follow(r.t.Context(), r.server, r.leases, end)
	if err == nil {
		r.t.Cleanup(s.Close)
	}
	return s, err
}

// until takes everything up to a revision; each batch must continue where the one before ended.
func (r rig) until(s *watch.Stream, revision int64, maxBytes int) (all segment.Batch) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); all.Last < uint64(revision); {
		b, err := s.Take(r.t.Context(), maxBytes)
		if err != nil || time.Now().After(deadline) {
			r.t.Fatalf("at revision %d of %d: %v", all.Last, revision, err)
		}
		if b.Last == 0 {
			s.Reached(r.t.Context(), revision, 10*time.Millisecond)
			continue
		}
		if all.First == 0 {
			all.First = b.First
		} else if b.First != all.Last+1 {
			r.t.Fatalf("a batch begins at %d, the one before ended at %d", b.First, all.Last)
		}
		all.Last, all.End, all.GuessedLeases = b.Last, b.End, all.GuessedLeases+b.GuessedLeases
		all.Requests = append(all.Requests, b.Requests...)
	}
	return all
}

// fails returns the error with which the stream ends.
func (r rig) fails(s *watch.Stream) error {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		_, err := s.Take(r.t.Context(), 1<<20)
		if err != nil {
			return err
		}
	}
	r.t.Fatal("it goes on")
	return nil
}

// words returns requests as text: "2 put a", "3 txn 10000".
func words(t *testing.T, requests []segment.Record) (all []string) {
	t.Helper()
	for _, record := range requests {
		var r pb.InternalRaftRequest
		err := proto.Unmarshal(record.Data, &r)
		if err != nil || record.Kind != segment.Change || record.Term != 0 {
			t.Fatalf("%+v, %v", record, err)
		}
		what := "?"
		switch {
		case r.Put != nil:
			what = "put " + string(r.Put.Key)
		case r.DeleteRange != nil:
			what = "delete " + string(r.DeleteRange.Key)
		case r.Txn != nil:
			what = fmt.Sprint("txn ", len(r.Txn.Success))
		case r.LeaseGrant != nil:
			what = fmt.Sprintf("grant %d for %d", r.LeaseGrant.ID, r.LeaseGrant.TTL)
		}
		all = append(all, fmt.Sprint(record.Position, " ", what))
	}
	return all
}

// TestStream checks that every revision arrives complete and in order, after the grants that it needs, and that a
// stream which follows another begins directly after it.
func TestStream(t *testing.T) {
	r := newRig(t)
	for id, ttl := range map[clientv3.LeaseID]int64{7: 100, 8: 200, 9: 300} {
		err := grant(r, id, ttl)
		if err != nil {
			t.Fatal(err)
		}
	}
	r.put("a", "1")
	first := r.from(2)
	r.put("b", "1", clientv3.WithLease(7))
	txn := r.client.Txn(t.Context()).Then(clientv3.OpPut("c", "1", clientv3.WithLease(7)), clientv3.OpPut("d", "1", clientv3.WithLease(8)), clientv3.OpDelete("a"))
	_, err := txn.Commit()
	if err != nil {
		t.Fatal(err)
	}
	got := r.until(first, 4, 1<<20)
	want := "2 put a|3 grant 7 for 100|3 put b|4 grant 8 for 200|4 txn 3"
	text := strings.Join(words(t, got.Requests), "|")
	if text != want && text != strings.Replace(want, "|4 grant 8", "|4 grant 7 for 100|4 grant 8", 1) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	second, err := r.follow(got.End)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.client.Delete(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	last := r.put("b", "2", clientv3.WithLease(7))
	text = strings.Join(words(t, r.until(second, last, 1<<20).Requests), "|")
	if text != "5 delete b|6 grant 7 for 100|6 put b" &&
		text != "5 delete b|6 put b" {
		t.Errorf("behind revision 4: %s", text)
	}
}

func grant(r rig, id clientv3.LeaseID, ttl int64) error {
	_, err := pb.NewLeaseClient(r.client.ActiveConnection()).LeaseGrant(r.t.Context(), &pb.LeaseGrantRequest{ID: int64(id), TTL: ttl})
	return err
}

// TestStreamGuessesLeases checks that a lease which ended before its TTL could be requested is granted with a guessed
// TTL, and counted.
func TestStreamGuessesLeases(t *testing.T) {
	r := newRig(t)
	err := grant(r, 7, 500)
	if err != nil {
		t.Fatal(err)
	}
	r.put("leased", "1", clientv3.WithLease(7))
	_, err = r.client.Revoke(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	b := r.until(r.from(2), 3, 1<<20)
	text := strings.Join(words(t, b.Requests), "|")
	if text != "2 grant 7 for 60|2 put leased|3 delete leased" || b.GuessedLeases != 1 {
		t.Errorf("%s; %d guessed", text, b.GuessedLeases)
	}
}

// TestStreamWaitsToBeTaken checks that changes that are not taken stay with the member, and all arrive later.
func TestStreamWaitsToBeTaken(t *testing.T) {
	r := newRig(t)
	large := strings.Repeat("x", 1<<20)
	var last int64
	for i := range 60 {
		last = r.put(fmt.Sprint("key", i%3), large)
	}
	s := r.from(2)
	select {
	case <-s.Full():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not say that it is full")
	}
	b := r.until(s, last, 3<<20)
	if b.First != 2 || len(b.Requests) != 60 {
		t.Errorf("from revision %d on, %d requests", b.First, len(b.Requests))
	}
}

// TestFollowRefuses tries another history with the same revision, a shorter one, and a compacted one.
func TestFollowRefuses(t *testing.T) {
	r := newRig(t)
	for i := range 9 {
		r.put(fmt.Sprint(i), "x")
	}
	end := r.until(r.from(2), 10, 1<<20).End
	other := end
	other.Position = 9
	s, err := r.follow(other)
	if err != nil {
		t.Fatal(err)
	}
	err = r.fails(s)
	if !errors.Is(err, watch.ErrForked) {
		t.Errorf("another digest: %v", err)
	}
	ahead := end
	ahead.Position = 11
	_, err = r.follow(ahead)
	if !errors.Is(err, watch.ErrForked) {
		t.Errorf("a revision that is to come: %v", err)
	}
	r.put("more", "x")
	_, err = r.client.Compact(t.Context(), 11)
	if err != nil {
		t.Fatal(err)
	}
	s, err = r.follow(end)
	if err != nil {
		t.Fatal(err)
	}
	gap, ok := errors.AsType[*watch.GapError](r.fails(s))
	if !ok || gap.From != 11 || gap.To != 11 {
		t.Errorf("the last revision that was stored is compacted: %+v", gap)
	}
	gap, ok = errors.AsType[*watch.GapError](r.fails(r.from(5)))
	if !ok || gap.From != 5 || gap.To != 11 {
		t.Errorf("revisions are compacted: %+v", gap)
	}
}

// TestStreamEnds checks that revisions that arrived before the stream broke can still be taken.
func TestStreamEnds(t *testing.T) {
	r := newRig(t)
	s := r.from(2)
	last := r.put("key", "x")
	s.Reached(t.Context(), last, 30*time.Second)
	s.Close()
	b, err := s.Take(t.Context(), 1<<20)
	if err != nil || b.Last != uint64(last) {
		t.Errorf("%+v, %v", b, err)
	}
	_, err = s.Take(t.Context(), 1<<20)
	if err == nil {
		t.Error("it is closed, and there may be more")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = watch.Follow(ctx, r.server, r.leases, segment.End{Position: 1})
	if err == nil {
		t.Error("nobody waits any more, and it follows")
	}
}
