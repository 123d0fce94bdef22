package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/memory"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestFindLongLog searches a long log, in which one key is changed now and then: find returns every change, and prints
// the first long before the end.
func TestFindLongLog(t *testing.T) {
	withServers(t)
	requests := 50_000
	if soak.On() {
		requests = 1_000_000
	}
	c := servers.Start(t, servers.Options{})
	put(t, c.Client(t), "base", "")
	j := newJob(t)
	j.backUp(t, c)
	const wanted = 1234
	want := j.writeLog(t, requests, wanted)

	timed := j.findTimed(t, "--key", string(longKey(wanted)))
	sameLines(t, "find", want, timed.lines())
	t.Logf("%d requests: the first of %d changes %v after the replay began, all after %v, at most %d MiB of memory", requests, len(want),
		timed.first.Round(time.Millisecond), timed.all.Round(time.Millisecond), timed.memory>>20)
	last := timed.changes[len(timed.changes)-1]
	if last.Keys != 1 || last.Kubernetes == nil || kubernetes.Name(*last.Kubernetes).String() != "Pod namespace-034/object-001234" {
		t.Errorf("the last change: %+v", last)
	}
	all := j.findTimed(t, "--prefix", "/registry/")
	if len(all.changes) != requests {
		t.Errorf("%d changes of all keys, want %d", len(all.changes), requests)
	}
	t.Logf("all keys: the first %v after the replay began, all after %v, at most %d MiB of memory",
		all.first.Round(time.Millisecond), all.all.Round(time.Millisecond), all.memory>>20)
	// At a million requests the database has this size, and a scan maps all of it.
	most := int64(350 << 20)
	if max(timed.memory, all.memory) > most {
		t.Errorf("it took more than %d MiB of memory", most>>20)
	}
}

// timedFind is a find with the times of its output.
type timedFind struct {
	found
	first, all time.Duration // since the replay began
	memory     int64         // bytes, of dr or its child, the larger one
}

func (j job) findTimed(t *testing.T, args ...string) (f timedFind) {
	t.Helper()
	p := command.Start(t, j.env, append([]string{"find", "-o", "json"}, args...)...)
	peak := memory.Watch(p.PID(), memory.WithChildren)
	var begun time.Time
	for text, ok := p.Line(); ok; text, ok = p.Line() {
		var line struct {
			Event *storage.Event
			Item  *document.Found
		}
		err := json.Unmarshal(text, &line)
		if err != nil {
			t.Fatal(err)
		}
		if line.Event != nil && line.Event.Stage == "replay" && begun.IsZero() {
			begun = line.Event.Time
		}
		if line.Item != nil && line.Item.Change != nil {
			if len(f.changes) == 0 {
				f.first = time.Since(begun)
			}
			f.changes = append(f.changes, *line.Item.Change)
		}
	}
	f.memory = peak()
	p.Wait(t).Succeeded(t, nil)
	f.all = time.Since(begun)
	return f
}

// longKeys is the number of keys in the log's puts.
const longKeys = 10_000

func longKey(n int) []byte {
	return fmt.Appendf(nil, "/registry/pods/namespace-%03d/object-%06d", n%100, n)
}

// writeLog writes a log of puts after the newest backup, as an agent would, and returns the lines that find has to
// print for a key.
func (j job) writeLog(t *testing.T, requests, wanted int) (want []string) {
	t.Helper()
	bucket, err := stores.Open(t.Context(), "file://"+j.repo, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.Open(bucket, "prod")
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.ParseRecipients(strings.NewReader(j.to))
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := c.Load(t.Context(), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	base := catalog.Backups[0]
	h := segment.Header{
		Cluster: base.Cluster, Lineage: strings.Repeat("0123456789abcdef", 2), Seq: 1, First: base.RaftIndex + 1,
		Source: segment.WAL, ClusterID: base.ClusterID, Member: base.Member.ID, ServerVersion: base.EtcdVersion,
		Writer: "test", DRVersion: "test", Reason: "the first of this cluster",
	}
	random := rand.New(rand.NewPCG(1, 1))
	revision, position, value := base.RevisionMax, base.RaftIndexMax, []byte(strings.Repeat("v", 256))
	const inSegment = 20_000
	for done := 0; done < requests; {
		var records []segment.Record
		for range min(inSegment, requests-done) {
			n := random.IntN(longKeys)
			data, err := proto.Marshal(&pb.InternalRaftRequest{
				Header: &pb.RequestHeader{ID: uint64(done) + 1}, Put: &pb.PutRequest{Key: longKey(n), Value: value},
			})
			if err != nil {
				t.Fatal(err)
			}
			done, revision, position = done+1, revision+1, position+1
			records = append(records, segment.Record{Kind: segment.Request, Position: position, Term: base.RaftTerm, Data: data})
			if n == wanted {
				want = append(want, eventLine(revision, false, string(longKey(n))))
			}
		}
		sum := sha256.Sum256(records[len(records)-1].Data)
		now := time.Now().UTC()
		h.Last, h.Written = position, now
		h.End = segment.End{Position: position, Term: base.RaftTerm, Digest: hex.EncodeToString(sum[:])}
		h.Marks = []segment.Mark{{Position: position, Revision: revision, Interval: segment.Interval{NotBefore: now, NotAfter: now}}}
		encoded, err := segment.Encode(h, records, to)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Log().StoreSegment(t.Context(), encoded)
		if err != nil {
			t.Fatal(err)
		}
		h.Seq, h.First, h.Previous, h.Reason = h.Seq+1, h.Last+1, encoded.Digest, ""
	}
	slices.Sort(want)
	return want
}

// TestFindAcrossARestore uses a cluster that was restored in place and so has two histories with the same revisions.
// Changes that the restore undid are reported as such.
func TestFindAcrossARestore(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{})
	client := source.Client(t)
	j := newJob(t)
	a := j.archiving(t, source, 0)
	j.firstWindow(t, client, a)
	putKeys(t, client, "kept/", 30)
	oldLineage := j.lineages(t)[0]
	b := j.backUp(t, source)
	putKeys(t, client, "lost/", 30)
	agent.CatchUp(t, a)
	a.Stop(t)
	old := live(t, client, 0)
	j.restoreInPlace(t, source, b.ID)
	a = j.archiving(t, source, 0)
	putKeys(t, client, "new/", 30)
	// If the agent's backup is late and contains the newest write, it is in no window until the next.
	j.untilListed(t, "2 windows", func(l document.List) bool {
		put(t, client, "after", "the backup")
		return len(l.Windows) >= 2
	})
	agent.CatchUp(t, a)
	a.Stop(t)

	f := j.find(t, "--prefix", "")
	if len(f.unseen) != 1 || !strings.Contains(f.unseen[0].Reason, "another history begins") {
		t.Errorf("unseen: %+v", f.unseen)
	}
	count := map[string]int{}
	for _, c := range f.changes {
		folder, _, _ := strings.Cut(c.Key.Key, "/")
		count[c.Change+" "+folder]++
	}
	for _, what := range []string{"put kept", "put lost", "delete lost", "put new"} {
		if count[what] != 30 {
			t.Errorf("%d times %s, want 30: %v", count[what], what, count)
		}
	}
	if len(f.Gone) != 1 || f.Gone[0].Vanished != 30 || f.Gone[0].Lineage != oldLineage || f.Gone[0].LastGood != old.Revision {
		t.Fatalf("gone: %+v", f.Gone)
	}
	j.wantRestored(t, old, f.Gone[0].Restore[2:6]...)
	text := command.Must(t, j.env, "find", "--prefix", "lost/")
	if !strings.Contains(text, fmt.Sprintf("vanished after revision %d, when another history began", old.Revision)) {
		t.Errorf("find says:\n%s", text)
	}
}
