package verify_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const (
	lineage   = "000000000000000000000000000000a0"
	logged    = 10 // revisions in a segment, each with a new key
	logEndsAt = 2 * logged
)

// log stores two segments of a watch after the backup. change may alter their requests.
func (f fixture) log(t testing.TB, change func(position uint64, r *pb.InternalRaftRequest)) {
	t.Helper()
	previous := ""
	for seq := range uint64(2) {
		first := uint64(f.backup.Revision) + seq*logged + 1
		records := puts(t, seq, first, change)
		last := records[len(records)-1]
		sum := sha256.Sum256(last.Data)
		asked := f.backup.Started.Add(time.Duration(seq+1) * time.Minute)
		m := segment.Mark{Position: last.Position, Revision: int64(last.Position), Interval: segment.Interval{NotBefore: asked, NotAfter: asked}}
		h := segment.Header{
			Cluster: clusterName, Lineage: lineage, Seq: seq + 1, Previous: previous, First: first, Last: last.Position,
			End:    segment.End{Position: last.Position, Digest: hex.EncodeToString(sum[:])},
			Source: segment.Watch, ClusterID: "cafe", Member: "a", ServerVersion: "3.7.3", Writer: "test", Written: asked, DRVersion: "test",
			Marks: []segment.Mark{m},
		}
		encoded, err := segment.Encode(h, records, f.to)
		if err != nil {
			t.Fatal(err)
		}
		err = f.cluster.Log().StoreSegment(t.Context(), encoded)
		if err != nil {
			t.Fatal(err)
		}
		previous = encoded.Digest
	}
}

func puts(t testing.TB, seq, first uint64, change func(uint64, *pb.InternalRaftRequest)) (records []segment.Record) {
	t.Helper()
	for n := range uint64(logged) {
		request := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "logged/%d/%d", seq, n), Value: []byte("value")}}
		change(first+n, request)
		data, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, segment.Record{Kind: segment.Change, Position: first + n, Data: data})
	}
	return records
}

func asItIs(uint64, *pb.InternalRaftRequest) {}

// drill runs a drill and checks that the returned proofs are stored and that no scratch copy remains.
func (f fixture) drill(t testing.TB, aim verify.Aim, assertions ...string) ([]catalog.Proof, error) {
	t.Helper()
	r := verify.DrillRequest{Aim: aim, Source: f.request(catalog.Booted).Source, Dir: f.scratch, By: "host, dr test", Now: time.Now()}
	for _, text := range assertions {
		a, err := assertion.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Assertions = append(r.Assertions, a)
	}
	before := f.proofs(t)
	proofs, err := verify.Drill(t.Context(), f.cluster, r, nil)
	diff := cmp.Diff(append(before, proofs...), f.proofs(t))
	if diff != "" {
		t.Errorf("stored is, against what was returned: %s", diff)
	}
	f.wantNoScratch(t)
	return proofs, err
}

// one drills a single point.
func (f fixture) one(t testing.TB, target plan.Target, assertions ...string) (catalog.Proof, error) {
	t.Helper()
	proofs, err := f.drill(t, verify.Aim{Targets: []plan.Target{target}}, assertions...)
	if len(proofs) != 1 {
		t.Fatalf("proofs %+v, error %v", proofs, err)
	}
	return proofs[0], err
}

func TestDrillOfABackup(t *testing.T) {
	d := good(t)
	f := store(t, d)
	proofs, err := f.drill(t, verify.Aim{}, "key=key-0000", fmt.Sprintf("prefix=key-:%d", keyCount), "prefix=:1")
	if err != nil || len(proofs) != 1 { // there is no log
		t.Fatalf("proofs %+v, error %v", proofs, err)
	}
	p := proofs[0]
	want := fmt.Sprintf("key space proven at revision %d, on a booted server", d.hash.Revision)
	if p.Verdict != catalog.Passed || p.Level != catalog.Booted || p.HashKV != want || p.Keys != keyCount || p.Drill.RTO <= 0 ||
		p.Drill.RTO > p.Seconds || p.Drill.Blames != "" {
		t.Errorf("proof %+v, %+v", p, p.Drill)
	}
	found := []catalog.Assertion{
		{Text: "key=key-0000", Held: true, Found: 1}, {Text: "prefix=key-:200", Held: true, Found: keyCount}, {Text: "prefix=:1", Held: true, Found: keyCount},
	}
	diff := cmp.Diff(found, p.Drill.Assertions)
	if diff != "" {
		t.Error(diff)
	}
}

// The ends of the window and of its segments, and the positions after them.
func TestDrillOfALog(t *testing.T) {
	f := store(t, good(t))
	f.log(t, asItIs)
	for _, behind := range []int64{0, 1, logged, logged + 1, logEndsAt} {
		at := f.backup.Revision + behind
		p, err := f.one(t, plan.Target{Lineage: lineage, Position: uint64(at)}, fmt.Sprintf("prefix=key-:%d", keyCount))
		if err != nil || p.Revision != at || p.Keys != keyCount+behind || p.Drill.Requests != int(behind) || p.Drill.Position != uint64(at) ||
			p.Drill.Lineage != lineage || !strings.HasSuffix(p.HashKV, "on a booted server") {
			t.Errorf("%d behind: proof %+v, %+v, error %v", behind, p, p.Drill, err)
		}
	}
	proofs, err := f.drill(t, verify.Aim{Seed: 3})
	if err != nil || len(proofs) != 2 || proofs[0].Drill.Seed != 0 || proofs[1].Drill.Seed != 3 || proofs[1].Revision != int64(proofs[1].Drill.Position) ||
		catalog.DrillEnded(proofs[:1]) || !catalog.DrillEnded(proofs) || proofs[0].Drill.Part != 1 {
		t.Errorf("proofs %+v, error %v", proofs, err)
	}
	proofs, err = f.drill(t, verify.Aim{BackupOnly: true})
	if err != nil || len(proofs) != 1 || proofs[0].Drill.Lineage != "" {
		t.Errorf("alone: proofs %+v, error %v", proofs, err)
	}
}

// A log that differs from the member's history is to blame itself; the backup stays good.
func TestDrillFindsAWrongLog(t *testing.T) {
	f := store(t, good(t))
	f.log(t, func(position uint64, r *pb.InternalRaftRequest) {
		if position == uint64(f.backup.Revision)+logged+4 {
			r.Put, r.DeleteRange = nil, &pb.DeleteRangeRequest{Key: []byte("nothing")}
		}
	})
	p, err := f.one(t, plan.Target{})
	if !errors.Is(err, catalog.ErrDamaged) || p.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameLog {
		t.Errorf("proof %+v, %+v, error %v", p, p.Drill, err)
	}
	f.wantBlamed(t, false)
}

func (f fixture) wantBlamed(t testing.TB, want bool) {
	t.Helper()
	b := f.backup
	b.Proofs = f.proofs(t)
	_, failed := b.Failed()
	if failed != want {
		t.Errorf("the backup counts as failed: %v; proofs %+v", failed, b.Proofs)
	}
}

func TestDrillFindsABadBackup(t *testing.T) {
	d := good(t)
	d.hash.Hash++
	for what, target := range map[string]plan.Target{"alone": {}, "below a log": {Lineage: lineage}} {
		f := store(t, d)
		if target.Lineage != "" {
			f.log(t, asItIs)
		}
		p, err := f.one(t, target)
		if !errors.Is(err, catalog.ErrDamaged) || p.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameBackup {
			t.Errorf("%s: proof %+v, %+v, error %v", what, p, p.Drill, err)
		}
		f.wantBlamed(t, true)
	}
}

// The backup restores without a fault, but the cluster's members had diverged.
func TestDrillFindsADivergedMember(t *testing.T) {
	for what, mark := range map[string]func(*catalog.Manifest){
		"members had diverged": func(m *catalog.Manifest) { m.Diverged = "two hold another hash" },
		"alarm CORRUPT":        func(m *catalog.Manifest) { m.Alarms = []string{"CORRUPT"} },
	} {
		f := store(t, good(t), mark)
		p, err := f.one(t, plan.Target{Backup: f.backup.ID})
		if !errors.Is(err, catalog.ErrDamaged) || p.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameBackup ||
			!strings.Contains(p.Finding, what) {
			t.Errorf("%s: proof %+v, %+v, error %v", what, p, p.Drill, err)
		}
	}
}

func TestDrillOfAnAssertionThatDoesNotHold(t *testing.T) {
	f := store(t, good(t))
	p, err := f.one(t, plan.Target{}, "key=absent", "key=key-0000", "prefix=key-:201")
	if !errors.Is(err, verify.ErrAssertion) || p.Verdict != catalog.Failed || p.Drill.Blames != catalog.BlameAssertion || p.Drill.RTO <= 0 ||
		p.Finding != "an assertion does not hold: key=absent, found 0; prefix=key-:201, found 200" {
		t.Errorf("proof %+v, %+v, error %v", p, p.Drill, err)
	}
	f.wantBlamed(t, false)
}

func TestDrillWithoutAKey(t *testing.T) {
	f := store(t, good(t))
	f.keys, _ = stored.Pair(t)
	p, err := f.one(t, plan.Target{})
	if err == nil || p.Verdict != catalog.NotRun || p.Drill.Blames != "" {
		t.Errorf("proof %+v, %+v, error %v", p, p.Drill, err)
	}
}

// As in Run, a killed child leads to no verdict, and one that dies by itself does.
func TestDrillOfADeadChild(t *testing.T) {
	f := store(t, good(t))
	f.log(t, asItIs)
	for what, want := range map[string]catalog.Blame{
		"kill prove": "", "kill replay": "", "kill boot": "", "panic fetch": "",
		"panic check": catalog.BlameBackup, "panic replay": catalog.BlameLog, "panic boot": catalog.BlameLog,
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv(accident, what)
			p, err := f.one(t, plan.Target{})
			verdict := catalog.Failed
			if want == "" {
				verdict = catalog.NotRun
			}
			_, stage, _ := strings.Cut(what, " ")
			if err == nil || p.Verdict != verdict || p.Drill.Blames != want || !strings.Contains(p.Finding, "at stage "+stage) {
				t.Errorf("proof %+v, %+v, error %v", p, p.Drill, err)
			}
		})
	}
}

func TestDrillInterruptedLeavesNoProof(t *testing.T) {
	f := store(t, good(t))
	r := verify.DrillRequest{Source: f.request(catalog.Booted).Source, Dir: f.scratch, Now: time.Now()}
	for _, stage := range []string{"drill", "fetch", "boot", "compare"} {
		stop := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := verify.Drill(ctx, f.cluster, r, func(e storage.Event) {
			if e.Stage == stage {
				cancel(stop)
			}
		})
		if !errors.Is(err, stop) {
			t.Errorf("at %s: error %v", stage, err)
		}
		f.wantNoScratch(t)
	}
	proofs := f.proofs(t)
	if len(proofs) > 0 {
		t.Errorf("proofs %+v", proofs)
	}
}

// A child with limits returns the same result.
func TestDrillWithLimits(t *testing.T) {
	f := store(t, good(t))
	r := verify.DrillRequest{Source: f.request(catalog.Booted).Source, Dir: f.scratch, Limits: child.Limits{Memory: 256 << 20, Nice: 3}, Now: time.Now()}
	proofs, err := verify.Drill(t.Context(), f.cluster, r, nil)
	if err != nil || len(proofs) != 1 || proofs[0].Verdict != catalog.Passed {
		t.Errorf("proofs %+v, error %v", proofs, err)
	}
}
