package restore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// loggedAt is the position of the backup in the log of storeAlarmed.
const loggedAt = 2000

// storeAlarmed stores d, and a log of ten requests after it: five puts, the alarm, and four puts.
func storeAlarmed(t *testing.T, d database, alarm pb.AlarmType) fixture {
	t.Helper()
	s := store(t, d, func(m *catalog.Manifest) { m.RaftIndex, m.RaftIndexMax, m.RaftTerm = loggedAt, loggedAt, 2 })
	var records []segment.Record
	for n := range uint64(10) {
		r := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "logged/%d", n), Value: []byte("value")}}
		if n == 5 {
			r = &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 7, Alarm: alarm}}
		}
		data, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, segment.Record{Kind: segment.Request, Position: loggedAt + 1 + n, Term: 2, Data: data})
	}
	last := records[len(records)-1]
	sum := sha256.Sum256(last.Data)
	asked := started.Add(time.Minute)
	encoded, err := segment.Encode(segment.Header{
		Cluster: clusterName, Lineage: lineage, Seq: 1, First: loggedAt + 1, Last: last.Position,
		End:    segment.End{Position: last.Position, Term: 2, Digest: hex.EncodeToString(sum[:])},
		Source: segment.WAL, ClusterID: "cafe", Member: "a", ServerVersion: "3.7.3", Writer: "test", Written: asked, DRVersion: "test",
		Marks: []segment.Mark{{
			Position: last.Position, Revision: d.revision + 5,
			Interval: segment.Interval{NotBefore: asked, NotAfter: asked},
		}},
	}, records, s.to)
	if err != nil {
		t.Fatal(err)
	}
	err = s.cluster.Log().StoreSegment(t.Context(), encoded)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnAlarmInTheLogIsAnObstacle checks that a restore refuses to replay past the request that raises the alarm CORRUPT. No other backup
// avoids that, so the error names the last state before it, and --best restores that state.
func TestAnAlarmInTheLogIsAnObstacle(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	s := storeAlarmed(t, d, pb.AlarmType_CORRUPT)
	before := fmt.Sprintf("revision %d", d.revision+5)
	_, err := s.runTarget(t, plan.Target{})
	unreachable, ok := errors.AsType[*plan.UnreachableError](err)
	if !ok || !errors.Is(err, fault.Refused) || !strings.Contains(unreachable.Nearest, before) {
		t.Errorf("error %v", err)
	}
	for _, words := range []string{"the log raises the alarm CORRUPT at position 2006", "--allow-corrupt"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want one with %q", err, words)
		}
	}
	if strings.Contains(err.Error(), "older backup") {
		t.Errorf("error %v", err)
	}
	r, err := s.runTarget(t, plan.Target{Best: true})
	if err != nil || r.Revision != d.revision+5 || len(r.Cleared) > 0 {
		t.Errorf("the best is %+v, %v", r, err)
	}
	r, err = s.runTarget(t, plan.Target{Revision: d.revision + 5})
	if err != nil || r.Revision != d.revision+5 || len(r.Cleared) > 0 {
		t.Errorf("before the alarm: %+v, %v", r, err)
	}
	p := s.plan(t, plan.Layout{AllowCorrupt: true, Into: one(t, "m1")})
	r, _ = run(t, s, p)
	if fmt.Sprint(r.Cleared) != "[CORRUPT]" {
		t.Errorf("cleared %q", r.Cleared)
	}
}
