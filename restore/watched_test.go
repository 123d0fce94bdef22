package restore_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// watchedLog stores two segments of a watch after the backup, with ten revisions each. change may alter their requests.
func watchedLog(t *testing.T, s fixture, d database, change func(seq uint64, r *pb.InternalRaftRequest)) {
	t.Helper()
	previous := ""
	for seq := range uint64(2) {
		first := uint64(d.revision) + seq*10 + 1
		records := watchedChanges(t, seq, first, change)
		last := records[len(records)-1]
		sum := sha256.Sum256(last.Data)
		asked := started.Add(time.Duration(seq+1) * time.Minute)
		h := segment.Header{
			Cluster: clusterName, Lineage: lineage, Seq: seq + 1, Previous: previous, First: first, Last: last.Position,
			End: segment.End{Position: last.Position, Digest: hex.EncodeToString(sum[:])}, GuessedLeases: int(seq),
			Source: segment.Watch, ClusterID: "cafe", Member: "a", ServerVersion: "3.7.3", Writer: "test", Written: asked, DRVersion: "test",
			Marks: []segment.Mark{{
				Position: last.Position, Revision: int64(last.Position), CompactRevision: int64(first),
				Interval: segment.Interval{NotBefore: asked, NotAfter: asked},
			}},
		}
		encoded, err := segment.Encode(h, records, s.to)
		if err != nil {
			t.Fatal(err)
		}
		err = s.cluster.Log().StoreSegment(t.Context(), encoded)
		if err != nil {
			t.Fatal(err)
		}
		previous = encoded.Digest
	}
}

// watchedChanges returns changes that begin with a put on a lease and end with a put on an unknown lease.
func watchedChanges(t *testing.T, seq, first uint64, change func(uint64, *pb.InternalRaftRequest)) (records []segment.Record) {
	t.Helper()
	id := int64(100 + seq)
	add := func(position uint64, r *pb.InternalRaftRequest) {
		change(position, r)
		data, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, segment.Record{Kind: segment.Change, Position: position, Data: data})
	}
	add(first, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 300}})
	for n := range uint64(10) {
		p := &pb.PutRequest{Key: fmt.Appendf(nil, "watched/%d/%d", seq, n), Value: []byte("value")}
		if n == 0 || n == 9 {
			p.Lease = id + 50*int64(n/9)
		}
		add(first+n, &pb.InternalRaftRequest{Put: p})
	}
	return records
}

func asItIs(uint64, *pb.InternalRaftRequest) {}

// A restored log of a watch boots with the backup, and the result names the data that a watch does not contain.
func TestRunOfAWatchedLog(t *testing.T) {
	t.Parallel()
	d := databaseWith(t, content{prefix: "key/", alarms: []pb.AlarmType{pb.AlarmType_NOSPACE}})
	keys, to := stored.Pair(t)
	s := sealed(t, d, fixture{keys: keys, to: to}, nil)
	watchedLog(t, s, d, asItIs)
	for _, test := range []struct {
		name     string
		target   plan.Target
		behind   int64
		segments int
		guessed  int
	}{
		{"its end", plan.Target{}, 20, 2, 1 + 2},
		{"a revision", plan.Target{Revision: d.revision + 4}, 4, 1, 0},
		{"a position", plan.Target{Position: uint64(d.revision + 13)}, 13, 2, 1 + 1},
		{"a time", plan.Target{Time: started.Add(90 * time.Second)}, 10, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := restore.Replayed{
				Lineage: lineage, Source: segment.Watch, Segments: test.segments, Requests: int(test.behind),
				Position: uint64(d.revision + test.behind), From: d.revision, To: d.revision + test.behind,
				Unseen: "users and roles, leases without keys, and alarms are as in the backup", GuessedLeases: test.guessed,
			}
			s.wantReplayed(t, test.target, want, d.keys+test.behind)
		})
	}
}

func (s fixture) wantReplayed(t *testing.T, target plan.Target, want restore.Replayed, keys int64) {
	t.Helper()
	url := servers.FreeURLs(t, 1)[0]
	l := plan.Layout{Token: "token", Members: []plan.Member{memberAt("m1", url)}, Into: all(t)}
	p, err := plan.New(s.catalog(t), target, l, started.Add(time.Hour))
	if err != nil || !hasNote(p, want.Unseen) {
		t.Fatalf("the notes are %q, %v", p.Notes, err)
	}
	r, _ := run(t, s, p)
	got := *r.Replayed
	got.Proven = ""
	if got != want || r.Revision != want.To || r.Keys != keys || fmt.Sprint(r.Cleared) != "[NOSPACE]" {
		t.Errorf("got %+v, %+v; want %+v", got, r, want)
	}
	e := start(t, "m1", r.Members[0].DataDir, p.InitialCluster(), url)
	now := e.Server.KV().Rev()
	if now != want.To {
		t.Errorf("it serves revision %d", now)
	}
	id := e.Server.Cluster().ID().String()
	if id != r.ClusterID {
		t.Errorf("the cluster's id is %s, the result says %s", id, r.ClusterID)
	}
}

// runTarget restores a target from the repository as dr restore does, but without a child.
func (s fixture) runTarget(t *testing.T, target plan.Target) (restore.Result, error) {
	t.Helper()
	a := attempt(s.catalog(t), target, func(ctx context.Context, p plan.Plan) (restore.Result, error) {
		return restore.Run(ctx, p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	})
	a.Layout, a.Now, a.Unfold = plan.Layout{Token: "token", Into: all(t)}, started.Add(time.Hour), s.cluster.Log().Unfold
	_, r, err := restore.RunTarget(t.Context(), a)
	return r, err
}

// A log that goes wrong is an obstacle: the way ends at the last mark that held.
func TestWatchedLogThatGoesWrong(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	s := store(t, d, nil)
	watchedLog(t, s, d, func(position uint64, r *pb.InternalRaftRequest) {
		if position == uint64(d.revision+14) {
			r.Put, r.DeleteRange = nil, &pb.DeleteRangeRequest{Key: []byte("nothing")}
		}
	})
	_, err := s.runTarget(t, plan.Target{})
	unreachable, ok := errors.AsType[*plan.UnreachableError](err)
	if !ok || !strings.Contains(unreachable.Nearest, fmt.Sprintf("revision %d ", d.revision+10)) {
		t.Errorf("got %v", err)
	}
	r, err := s.runTarget(t, plan.Target{Best: true})
	if err != nil || r.Revision != d.revision+10 {
		t.Errorf("the best is %+v, %v", r, err)
	}
}

// A change that this version cannot apply is an obstacle too: the plan ends immediately before it.
func TestWatchedLogThatIsUnknown(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	s := store(t, d, nil)
	watchedLog(t, s, d, func(position uint64, r *pb.InternalRaftRequest) {
		if position == uint64(d.revision+14) {
			r.Put, r.Compaction = nil, &pb.CompactionRequest{Revision: 1}
		}
	})
	for _, target := range []plan.Target{{}, {Revision: d.revision + 20}, {Position: uint64(d.revision + 14), Lineage: lineage}} {
		_, err := s.runTarget(t, target)
		unreachable, ok := errors.AsType[*plan.UnreachableError](err)
		if !ok || !strings.Contains(unreachable.Nearest, fmt.Sprintf("revision %d ", d.revision+13)) || !strings.Contains(err.Error(), "does not know the request") {
			t.Errorf("%+v: got %v", target, err)
		}
		target.Best = true
		r, err := s.runTarget(t, target)
		if err != nil || r.Revision != d.revision+13 {
			t.Errorf("%+v: got %+v, %v", target, r, err)
		}
	}
	for _, target := range []plan.Target{{Revision: d.revision + 13}, {Position: uint64(d.revision + 13), Lineage: lineage}} {
		r, err := s.runTarget(t, target)
		if err != nil || r.Revision != d.revision+13 {
			t.Errorf("%+v: got %+v, %v", target, r, err)
		}
	}
}

// Verify finds a log that a restore cannot replay before the restore is needed.
func TestVerifyFindsUnreplayableRequests(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	for name, test := range map[string]struct {
		change func(*pb.InternalRaftRequest)
		fault  bool
	}{
		"whole":           {func(*pb.InternalRaftRequest) {}, false},
		"a newer request": {func(r *pb.InternalRaftRequest) { r.Put, r.Compaction = nil, &pb.CompactionRequest{Revision: 1} }, true},
		"a lease alone":   {func(r *pb.InternalRaftRequest) { r.Put, r.LeaseGrant = nil, &pb.LeaseGrantRequest{ID: 1, TTL: 60} }, true},
	} {
		s := store(t, d, nil)
		watchedLog(t, s, d, func(position uint64, r *pb.InternalRaftRequest) {
			if position == uint64(d.revision+14) {
				test.change(r)
			}
		})
		l, err := s.cluster.Log().Verify(t.Context(), s.catalog(t).Lineages[0], log.VerifyOptions{Keys: s.keys, Check: restore.CheckSegment})
		if err != nil || (len(l.Faults) > 0) != test.fault {
			t.Fatalf("%s: %+v, %v", name, l.Faults, err)
		}
		if !test.fault {
			continue
		}
		words := fmt.Sprintf("the log can be replayed only up to position %d", d.revision+13)
		f := l.Faults[0]
		if f.Seq != 2 || !errors.Is(f.Err, catalog.ErrDamaged) || !strings.Contains(f.Err.Error(), words) || !strings.HasPrefix(f.Err.Error(), f.Key) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
