package check_test

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

func TestMain(m *testing.M) { os.Exit(objectstores.Main(m)) }

// large is enough for stores without parts.
const large = 200 << 10

func openFile(t *testing.T) storage.Bucket {
	t.Helper()
	b, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b storage.Bucket, key string) {
	t.Helper()
	_, err := b.Put(t.Context(), key, strings.NewReader("content"), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// verdicts returns the verdict of every line by name.
func verdicts(t *testing.T, lines []check.Line) map[string]check.Verdict {
	t.Helper()
	found := map[string]check.Verdict{}
	for _, l := range lines {
		name := l.Name
		if l.Of != "" {
			name = l.Of + ": " + name
		}
		_, twice := found[name]
		if twice {
			t.Errorf("two lines are named %q", name)
		}
		found[name] = l.Verdict
		if l.Verdict == check.Wanting && l.Cure == "" {
			t.Errorf("%q is wanting and has no cure", name)
		}
		if l.Seen == "" || strings.Contains(l.Seen+l.Cure, "\n") {
			t.Errorf("%q says %q, cure %q", name, l.Seen, l.Cure)
		}
	}
	return found
}

// all has the names of the lines of every run.
var all = []string{
	"reachable", "can create", "cannot overwrite", "replaces in one step", "replaces one version", "checksum", "can read ranges", "pinned reads",
	"lists in order", "can delete", "broken upload leaves nothing", "lock holds", "versioning", "clock skew", "leftovers",
	"cleaned up",
}

// wantVerdicts fails unless every line is ok except those in except.
func wantVerdicts(t *testing.T, lines []check.Line, except map[string]check.Verdict) {
	t.Helper()
	want := map[string]check.Verdict{}
	for _, name := range all {
		want[name] = check.OK
	}
	maps.Copy(want, except)
	got := verdicts(t, lines)
	for _, l := range lines {
		if l.Of == "" && got[l.Name] != want[l.Name] {
			t.Errorf("%q is %s, want %s: %s", l.Name, l.Verdict, want[l.Name], l.Seen)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d: %v", len(got), len(want), got)
	}
}

// line returns the line with that name.
func line(t *testing.T, lines []check.Line, name string) check.Line {
	t.Helper()
	i := slices.IndexFunc(lines, func(l check.Line) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("no line %q", name)
	}
	return lines[i]
}

// wantSaid fails unless the line contains all words.
func wantSaid(t *testing.T, l check.Line, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(l.Seen+" "+l.Cure, word) {
			t.Errorf("%q says %q, cure %q; want %q", l.Name, l.Seen, l.Cure, word)
		}
	}
}

// left returns the objects of b, with all versions, and the pieces of uploads.
func left(t *testing.T, b storage.Bucket) []string {
	t.Helper()
	var found []string
	take := func(obj storage.Object, err error) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, obj.Key)
	}
	for obj, err := range b.List(t.Context(), storage.ListOptions{}) {
		take(obj, err)
	}
	v, ok := b.(storage.Versioned)
	if ok {
		for kept, err := range v.Versions(t.Context(), storage.ListOptions{}) {
			take(kept.Object, err)
		}
	}
	s, ok := storage.AsSweeper(b)
	if ok {
		for piece, err := range s.Leftovers(t.Context(), "") {
			take(piece, err)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func wantLeft(t *testing.T, b storage.Bucket, want ...string) {
	t.Helper()
	got := left(t, b)
	if !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

func readAll(ctx context.Context, b storage.Bucket, key string) ([]byte, error) {
	r, _, err := b.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
