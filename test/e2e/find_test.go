package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// found is the output of dr find.
type found struct {
	changes []document.Change
	unseen  []document.Unseen
	document.Find
}

func (j job) find(t *testing.T, args ...string) found {
	t.Helper()
	var f found
	items[document.Found](t, command.Must(t, j.env, append([]string{"find", "-o", "json"}, args...)...), &f.Find, func(item document.Found) {
		if item.Change != nil {
			f.changes = append(f.changes, *item.Change)
		}
		if item.Unseen != nil {
			f.unseen = append(f.unseen, *item.Unseen)
		}
	})
	return f
}

// items passes the items in the JSON lines to take, and decodes the result.
func items[Item any](t *testing.T, out string, result any, take func(Item)) {
	t.Helper()
	for text := range strings.Lines(out) {
		var line struct{ Item *Item }
		err := json.Unmarshal([]byte(text), &line)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line.Item != nil {
			take(*line.Item)
		}
	}
	command.Output{Stdout: out}.Decode(t, result)
}

// extracted returns the keys at a point with dr extract.
func (j job) extracted(t *testing.T, args ...string) (database.Image, document.Extract) {
	t.Helper()
	var r document.Extract
	var image database.Image
	items[document.Extracted](t, command.Must(t, j.env, append([]string{"extract", "-o", "json"}, args...)...), &r,
		func(e document.Extracted) {
			kv := &mvccpb.KeyValue{
				Key: []byte(e.Key.Key), Value: e.Value, CreateRevision: e.CreateRevision, ModRevision: e.ModRevision, Version: e.Version,
			}
			_, err := fmt.Sscanf(e.Lease, "%x", &kv.Lease)
			if e.Lease != "" && err != nil {
				t.Fatalf("lease %q: %v", e.Lease, err)
			}
			image.KVs = append(image.KVs, kv)
		})
	image.Revision = r.Revision
	return image, r
}

// witness watches all keys of a cluster, from its first revision on.
type witness struct {
	events chan *clientv3.Event
	seen   []*clientv3.Event
}

func watching(t *testing.T, client *clientv3.Client) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{events: make(chan *clientv3.Event, 100_000)}
	watch := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for response := range watch {
			for _, e := range response.Events {
				w.events <- e
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// upTo returns all events up to one of a revision that is not the last of the history.
func (w *witness) upTo(t *testing.T, revision int64) []string {
	t.Helper()
	for len(w.seen) == 0 || w.seen[len(w.seen)-1].Kv.ModRevision < revision {
		select {
		case e := <-w.events:
			w.seen = append(w.seen, e)
		case <-time.After(patience):
			t.Fatalf("the watch has not come to revision %d", revision)
		}
	}
	var lines []string
	for _, e := range w.seen {
		if e.Kv.ModRevision < revision {
			lines = append(lines, eventLine(e.Kv.ModRevision, e.Type == clientv3.EventTypeDelete, string(e.Kv.Key)))
		}
	}
	slices.Sort(lines)
	return lines
}

func eventLine(revision int64, deleted bool, key string) string {
	what := "put"
	if deleted {
		what = "delete"
	}
	return fmt.Sprintf("%09d %s %q", revision, what, key)
}

// lines returns the changes in the format of eventLine.
func (f found) lines() (lines []string) {
	for _, c := range f.changes {
		lines = append(lines, eventLine(c.Revision, c.Change == "delete", c.Key.Key))
	}
	slices.Sort(lines)
	return lines
}

func sameLines(t *testing.T, what string, want, got []string) {
	t.Helper()
	if slices.Equal(want, got) {
		return
	}
	var missing, more []string
	for _, line := range want {
		_, ok := slices.BinarySearch(got, line)
		if !ok {
			missing = append(missing, line)
		}
	}
	for _, line := range got {
		_, ok := slices.BinarySearch(want, line)
		if !ok {
			more = append(more, line)
		}
	}
	t.Errorf("%s: %d lines, want %d; missing:\n%s\ntoo many:\n%s", what, len(got), len(want), head(missing), head(more))
}

func head(lines []string) string { return strings.Join(lines[:min(len(lines), 20)], "\n") }

// TestFindEveryVersion writes a random history with transactions, ranges, leases and compactions. find must see the
// events of a watch on the live cluster, extract the results of reads, and diff the differences between two reads.
func TestFindEveryVersion(t *testing.T) {
	withServers(t)
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			findAsWatched(t, version, 4)
		})
	}
}

func findAsWatched(t *testing.T, version string, seed uint64) {
	c := servers.Start(t, servers.Options{Version: version})
	client := c.Client(t)
	seen := watching(t, client)
	j := newJob(t)
	a := j.archiving(t, c, 0)
	j.firstWindow(t, client, a)

	h := &told{random: rand.New(rand.NewPCG(seed, 3))}
	h.Writer = history.New(t, c, seed, history.Options{Compacting: h.look})
	for range 5 {
		h.Write(60 + h.random.IntN(60))
		h.look()
	}
	h.waitForLeases(t)
	h.look()
	last := written(t, client, "last", "")
	agent.CatchUp(t, a)
	a.Stop(t)

	all := j.find(t, "--prefix", "")
	want := seen.upTo(t, last)
	got := all.lines()
	got = slices.DeleteFunc(got, func(line string) bool { return line == eventLine(last, false, "last") })
	sameLines(t, "find", want, got)
	if len(all.unseen) > 0 {
		t.Errorf("unseen: %+v", all.unseen)
	}
	j.orderedAndTimed(t, all)
	j.narrower(t, all, h)
	j.pointsAsRead(t, h)
	j.goneIsGone(t, all, live(t, client, 0))
}

// orderedAndTimed checks that revisions ascend, that each has an interval, and that each change from the log has its
// request.
func (j job) orderedAndTimed(t *testing.T, f found) {
	t.Helper()
	for i, c := range f.changes {
		if i > 0 && c.Revision < f.changes[i-1].Revision {
			t.Errorf("revision %d comes after %d", c.Revision, f.changes[i-1].Revision)
		}
		if c.NotAfter.IsZero() || c.NotBefore.After(c.NotAfter) {
			t.Errorf("revision %d: between %v and %v", c.Revision, c.NotBefore, c.NotAfter)
		}
		if (c.By == "") != (c.Position == 0) {
			t.Errorf("revision %d: by %q, at position %d", c.Revision, c.By, c.Position)
		}
	}
}

// narrower checks that a narrower search returns the matching part of the full one.
func (j job) narrower(t *testing.T, all found, h *told) {
	t.Helper()
	part := func(keep func(document.Change) bool) []string {
		f := found{changes: slices.DeleteFunc(slices.Clone(all.changes), func(c document.Change) bool { return !keep(c) })}
		return f.lines()
	}
	from := h.images[len(h.images)/3].Revision
	to := h.images[2*len(h.images)/3].Revision
	key := all.changes[len(all.changes)/2].Key.Key
	sameLines(t, "a key", part(func(c document.Change) bool { return c.Key.Key == key }), j.find(t, "--key", key).lines())
	sameLines(t, "a prefix and a window",
		part(func(c document.Change) bool {
			return strings.HasPrefix(c.Key.Key, "b/") && c.Revision >= from && c.Revision <= to
		}),
		j.find(t, "--prefix", "b/", "--from-revision", fmt.Sprint(from), "--to-revision", fmt.Sprint(to)).lines())
	middle := all.changes[len(all.changes)/2].NotAfter
	sameLines(t, "until a time", part(func(c document.Change) bool { return !c.NotBefore.After(middle) }),
		j.find(t, "--prefix", "", "--to", middle.Format(time.RFC3339Nano)).lines())
	sameLines(t, "from a time", part(func(c document.Change) bool { return !c.NotAfter.Before(middle) }),
		j.find(t, "--prefix", "", "--from", middle.Format(time.RFC3339Nano)).lines())
}

// pointsAsRead compares extract and diff with reads of the live cluster.
func (j job) pointsAsRead(t *testing.T, h *told) {
	t.Helper()
	a, b := h.images[len(h.images)/4], h.images[3*len(h.images)/4]
	got, r := j.extracted(t, "--prefix", "", "--to-revision", fmt.Sprint(a.Revision))
	unequal := a.Differences(got)
	if len(unequal) > 0 || r.Keys != len(a.KVs) {
		t.Errorf("extract at revision %d, live first:\n%s", a.Revision, strings.Join(unequal, "\n"))
	}
	within := func(image database.Image) map[string]string {
		values := map[string]string{}
		for _, kv := range image.KVs {
			if strings.HasPrefix(string(kv.Key), "a/") {
				values[string(kv.Key)] = string(kv.Value)
			}
		}
		return values
	}
	j.differ(t, a.Revision, b.Revision, differences(within(a), within(b)), 1)
	j.differ(t, b.Revision, a.Revision, differences(within(b), within(a)), 2) // a replay does not go back
}

// differ compares two revisions, and checks how often the backup was fetched on which both are based.
func (j job) differ(t *testing.T, a, b int64, want []string, fetched int) {
	t.Helper()
	var result document.Diff
	var lines []string
	out := command.Must(t, j.env, "diff", "-o", "json", "--values", "--prefix", "a/", fmt.Sprintf("r%d", a), fmt.Sprintf("r%d", b))
	items(t, out, &result, func(d document.Different) {
		line := d.Change + " " + d.Key.Key
		for _, v := range []*document.Value{d.A, d.B} {
			if v != nil {
				line += fmt.Sprintf(" %q", v.Value)
			}
		}
		lines = append(lines, line)
	})
	slices.Sort(lines)
	sameLines(t, "diff", want, lines)
	if result.Added+result.Changed+result.Removed != len(lines) || result.A.Revision != a || result.B.Revision != b {
		t.Errorf("diff: %+v of %d lines", result, len(lines))
	}
	n := strings.Count(out, `"stage":"check"`)
	if n != fetched {
		t.Errorf("diff of revisions %d and %d: %d databases were fetched and checked, want %d", a, b, n, fetched)
	}
}

// differences returns the result of a brute-force comparison.
func differences(a, b map[string]string) (lines []string) {
	for key, was := range a {
		is, there := b[key]
		switch {
		case !there:
			lines = append(lines, fmt.Sprintf("removed %s %q", key, was))
		case was != is:
			lines = append(lines, fmt.Sprintf("changed %s %q %q", key, was, is))
		}
	}
	for key, is := range b {
		_, there := a[key]
		if !there {
			lines = append(lines, fmt.Sprintf("added %s %q", key, is))
		}
	}
	slices.Sort(lines)
	return lines
}

// goneIsGone checks that the summary counts the keys that were deleted and do not exist.
func (j job) goneIsGone(t *testing.T, f found, now database.Image) {
	t.Helper()
	there := map[string]bool{}
	for _, kv := range now.KVs {
		there[string(kv.Key)] = true
	}
	want := map[string]int64{}
	for _, c := range f.changes {
		if !there[c.Key.Key] {
			want[c.Key.Key] = c.Revision
		}
	}
	vanished := 0
	for _, g := range f.Gone {
		vanished += g.Vanished
		if want[g.Key.Key] != g.Revision || g.LastGood != g.Revision-1 {
			t.Errorf("%s is gone with revision %d, last good %d; it is really %d", g.Key.Key, g.Revision, g.LastGood, want[g.Key.Key])
		}
	}
	if vanished != len(want) {
		t.Errorf("%d keys vanished, want %d", vanished, len(want))
	}
}

// TestFindLeadsBack does the work of an operator at 3 a.m.: find when a key vanished and why, inspect it, and run the
// printed command.
func TestFindLeadsBack(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	a := j.archiving(t, c, 0)
	j.firstWindow(t, client, a)

	lease, err := client.Grant(t.Context(), 6)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Put(t.Context(), "leased", "for a while", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		put(t, client, fmt.Sprintf("app/%03d", i), "value")
	}
	deleted, err := client.Delete(t.Context(), "app/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "app/007", "back again")
	for len(live(t, client, 0).KVs) > 2 { // first, app/007
		time.Sleep(100 * time.Millisecond)
	}
	compacted := live(t, client, 0).Revision
	_, err = client.Compact(t.Context(), compacted)
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "last", "")
	agent.CatchUp(t, a)
	a.Stop(t)

	f := j.find(t, "--key", "leased")
	if len(f.changes) != 2 || len(f.Gone) != 1 || f.Gone[0].By != "end of a lease" || f.Gone[0].Lease != "" {
		t.Fatalf("find: %+v", f)
	}
	if f.changes[0].Lease != fmt.Sprintf("%x", int64(lease.ID)) {
		t.Errorf("the lease is %q, want %x", f.changes[0].Lease, int64(lease.ID))
	}
	f = j.find(t, "--prefix", "app/")
	if len(f.Gone) != 1 || f.Gone[0].Vanished != 299 || f.Gone[0].Revision != deleted.Header.Revision ||
		f.Gone[0].By != "delete of a range" || f.Gone[0].Keys != 300 {
		t.Fatalf("find: %+v", f.Gone)
	}
	image, _ := j.image(t, f.Gone[0].Restore[2:4]...)
	n := len(slices.DeleteFunc(image.KVs, func(kv *mvccpb.KeyValue) bool { return !strings.HasPrefix(string(kv.Key), "app/") }))
	if n != 300 {
		t.Errorf("dr %v gives %d keys, want 300", f.Gone[0].Restore, n)
	}

	text := command.Must(t, j.env, "find", "--prefix", "app/")
	wants := fmt.Sprintf("299 keys, app/000 among them, vanished at revision %d, between", deleted.Header.Revision)
	if !strings.Contains(text, wants) || !strings.Contains(text, fmt.Sprintf("dr restore --to-revision %d", deleted.Header.Revision-1)) {
		t.Errorf("find prints no %q:\n%s", wants, text)
	}
	value := command.Must(t, j.env, "extract", "--before-revision", fmt.Sprint(deleted.Header.Revision), "--key", "app/042")
	if value != "value\n" {
		t.Errorf("extract: %q", value)
	}
	dir := filepath.Join(t.TempDir(), "out")
	command.Must(t, j.env, "extract", "--before-revision", fmt.Sprint(deleted.Header.Revision), "--prefix", "app/", "--output-dir", dir)
	files, _ := filepath.Glob(filepath.Join(dir, "%", "app", "*.raw"))
	if len(files) != 300 {
		t.Errorf("there are %d files in %s, want 300", len(files), dir)
	}
	command.Run(t, j.env, "extract", "--key", "app/042").Ended(t, 3, "no such key")
	command.Run(t, j.env, "extract", "--key", "app/042", "-o", "json").Failed(t, 3, "no such key")
}

// TestFindWithoutLog compares backups: changes that a database still has are reported exactly, compacted ones as
// unseen, and keys that vanished in between lie between two revisions.
func TestFindWithoutLog(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := servers.Start(t, servers.Options{Version: version})
			client := c.Client(t)
			j := newJob(t)
			backup := func() { j.backUp(t, c) }
			put(t, client, "stays", "1")
			put(t, client, "goes", "1")
			first := written(t, client, "is deleted", "1")
			backup()
			remove(t, client, "is deleted")
			second := written(t, client, "stays", "2")
			backup()
			remove(t, client, "goes")
			put(t, client, "comes and goes", "")
			remove(t, client, "comes and goes")
			third := written(t, client, "stays", "3")
			_, err := client.Compact(t.Context(), third)
			if err != nil {
				t.Fatal(err)
			}
			put(t, client, "stays", "4")
			backup()

			f := j.find(t, "--prefix", "")
			want := []string{
				eventLine(first-2, false, "stays"), eventLine(first-1, false, "goes"), eventLine(first, false, "is deleted"),
				eventLine(first+1, true, "is deleted"), eventLine(second, false, "stays"),
				eventLine(third, false, "stays"), eventLine(third+1, true, "goes"), eventLine(third+1, false, "stays"),
			}
			slices.Sort(want)
			sameLines(t, "find", want, f.lines())
			if len(f.unseen) != 1 || f.unseen[0].After != second || f.unseen[0].UpTo != third {
				t.Errorf("unseen: %+v, want revisions %d to %d", f.unseen, second, third)
			}
			f = j.find(t, "--key", "goes")
			if len(f.Gone) != 1 || f.Gone[0].After != second || f.Gone[0].LastGood != second || f.Gone[0].Revision != third+1 {
				t.Errorf("gone: %+v", f.Gone)
			}
		})
	}
}

// TestFindGap checks that changes in the gap of a lost segment are reported as unseen, unless the next backup has them.
func TestFindGap(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	a := j.archiving(t, c, 0)
	j.firstWindow(t, client, a)
	before := written(t, client, "before", "the gap")
	put(t, client, "goes", "in the gap")
	agent.CatchUp(t, a)
	a.Stop(t)
	known := len(segments(t, j))

	a = j.archiving(t, c, 0)
	remove(t, client, "goes")
	inGap := written(t, client, "in", "the gap")
	_, err := client.Compact(t.Context(), inGap)
	if err != nil {
		t.Fatal(err)
	}
	agent.CatchUp(t, a)
	a.Stop(t)
	lost := segments(t, j)[known:]
	j.backUp(t, c)
	a = j.archiving(t, c, 0)
	remove(t, client, "before")
	after := written(t, client, "after", "the gap")
	agent.CatchUp(t, a)
	a.Stop(t)
	for _, s := range lost {
		err := os.Remove(filepath.Join(j.repo, s.file))
		if err != nil {
			t.Fatal(err)
		}
	}

	f := j.find(t, "--prefix", "")
	if len(f.unseen) != 1 || f.unseen[0].After != before+1 || f.unseen[0].UpTo != inGap ||
		!strings.Contains(f.unseen[0].Reason, "gap in the log") {
		t.Errorf("unseen: %+v, want revisions %d to %d", f.unseen, before+1, inGap)
	}
	for _, want := range []string{
		eventLine(inGap, true, "goes"), eventLine(inGap, false, "in"), eventLine(after-1, true, "before"), eventLine(after, false, "after"),
	} {
		if !slices.Contains(f.lines(), want) {
			t.Errorf("find does not have %s:\n%s", want, strings.Join(f.lines(), "\n"))
		}
	}
	text := command.Must(t, j.env, "find", "--key", "goes")
	if !strings.Contains(text, "-- not seen") || !strings.Contains(text, fmt.Sprintf("after revision %d, at %d at the latest", before+1, inGap)) {
		t.Errorf("find says:\n%s", text)
	}
}

func remove(t *testing.T, client *clientv3.Client, key string) int64 {
	t.Helper()
	response, err := client.Delete(t.Context(), key)
	if err != nil || response.Deleted != 1 {
		t.Fatalf("delete %s: %v", key, err)
	}
	return response.Header.Revision
}

func written(t *testing.T, client *clientv3.Client, key, value string) int64 {
	t.Helper()
	response, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return response.Header.Revision
}

// TestFindDamage checks that a damaged object hides only its own changes, and only if no backup has them too: here the
// member had not compacted anything.
func TestFindDamage(t *testing.T) {
	withServers(t)
	p := record(t, newJob(t))
	seen := watching(t, p.client)
	last := written(t, p.client, "behind the log", "")
	all := seen.upTo(t, last)
	upTo := func(s stored) (lines []string) {
		for _, line := range all {
			if line < eventLine(s.Marks[len(s.Marks)-1].Revision+1, false, "") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	whole := upTo(p.end())
	for _, test := range []struct {
		name   string
		file   string
		want   []string
		unseen int
	}{
		{"nothing", "", whole, 0},
		{"a segment before a backup", p.segments[1].file, whole, 0},
		{"the first backup", p.backups[0], whole, 0},
		{"the second backup", p.backups[1], whole, 0},
		{"the last segment", p.end().file, upTo(p.segments[len(p.segments)-2]), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := p.copied(t)
			if test.file != "" {
				j.change(t, test.file, flip)
			}
			f := j.find(t, "--prefix", "")
			sameLines(t, "find", test.want, f.lines())
			if len(f.unseen) != test.unseen {
				t.Errorf("unseen: %+v", f.unseen)
			}
		})
	}
}

// TestFindKubernetes uses a key space as an API server writes it: objects by name, in YAML without the fields that the
// server sets, and encrypted values marked as such. The values were encoded with the API server's own serializer.
func TestFindKubernetes(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	var encoded bytes.Buffer
	object := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "0815"}, Data: map[string]string{"color": "blue"},
	}
	err := protobuf.NewSerializer(runtime.NewScheme(), runtime.NewScheme()).Encode(object, &encoded)
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "/registry/configmaps/prod/web", encoded.String())
	put(t, client, "/registry/example.org/apps/prod/web", `{"apiVersion":"example.org/v1","kind":"App","metadata":{"name":"web","uid":"1"}}`)
	put(t, client, "/registry/secrets/prod/web", "k8s:enc:aescbc:v1:key1:\x00\x01\x02")
	put(t, client, "/registry/odd", "\n---\nkind: Injected\n")
	j.backUp(t, c)
	remove(t, client, "/registry/configmaps/prod/web")
	j.backUp(t, c)

	text := command.Must(t, j.env, "find", "--prefix", "/registry/configmaps/")
	if !strings.Contains(text, "/registry/configmaps/prod/web (ConfigMap prod/web) vanished at revision 6") {
		t.Errorf("find says:\n%s", text)
	}
	first := filepath.Base(filepath.Dir(snapshots(t, j)[0]))
	out := command.Run(t, j.env, "extract", first, "--prefix", "/registry/")
	want := `---
apiVersion: v1
data:
  color: blue
kind: ConfigMap
metadata:
  name: web
  namespace: prod
---
apiVersion: example.org/v1
kind: App
metadata:
  name: web
---
# /registry/odd: not a Kubernetes object, 20 bytes; -o raw prints its bytes
---
# /registry/secrets/prod/web (Secret prod/web): encrypted by Kubernetes, with aescbc, key "key1"; -o raw prints its bytes
`
	if out.Stdout != want || out.Code != 3 || !strings.Contains(out.Stderr, "plain text of 1 of 4 values") {
		t.Errorf("extract: code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	raw := command.Must(t, j.env, "extract", first, "--key", "/registry/secrets/prod/web", "-o", "raw")
	if raw != "k8s:enc:aescbc:v1:key1:\x00\x01\x02" {
		t.Errorf("raw: %q", raw)
	}
}
