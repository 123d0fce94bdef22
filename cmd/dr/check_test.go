package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// wantEmpty reports an error if there is anything below dir, including hidden files.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the repository: %v, %v", entries, err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	out := dr(t, nil, "check", "--repo", "file://"+dir)
	if out.code != 0 {
		t.Errorf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	for _, words := range []string{
		"VERDICT", "cannot overwrite", "versioning", "note", "→ use a store with versions", "nothing is left",
	} {
		if !strings.Contains(out.stdout, words) {
			t.Errorf("%q is not in\n%s", words, out.stdout)
		}
	}
	wantEmpty(t, dir)
}

func TestCheckWanting(t *testing.T) {
	dir := t.TempDir()
	out := dr(t, nil, "check", "--repo", "file://"+dir, "--lock", "governance")
	if out.code != 3 || !strings.Contains(out.stdout, "WANTING") ||
		!strings.Contains(out.stderr, "1 of 16 checks are wanting: lock holds") {
		t.Errorf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	wantEmpty(t, dir)
}

func TestCheckJSON(t *testing.T) {
	etcd := embedded.Start(t, nil)
	dir := t.TempDir()
	out := dr(t, map[string]string{"ETCDCTL_ENDPOINTS": etcd.URL}, "check", "--repo", "file://"+dir, "--lock", "1m", "-o", "json")
	if out.code != 3 {
		t.Errorf("exit code %d\n%s", out.code, out.stderr)
	}
	var result struct{ Result document.Check }
	var last document.Line
	for line := range strings.Lines(out.stdout) {
		if strings.HasPrefix(line, `{"result"`) {
			err := json.Unmarshal([]byte(line), &result)
			if err != nil {
				t.Fatal(err)
			}
		}
		last = document.Line{}
		err := json.Unmarshal([]byte(line), &last)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	doc := result.Result
	if doc.Repository != "file://"+dir || len(doc.Store) != 16 || len(doc.Etcd) != 11 ||
		len(doc.Wanting) != 1 || doc.Wanting[0] != "lock holds" {
		t.Errorf("%+v", doc)
	}
	if last.Error == nil || last.Error.ExitCode != 3 {
		t.Errorf("the last line is %+v", last)
	}
	if doc.Etcd[0].Verdict != check.OK {
		t.Errorf("%+v", doc.Etcd[0])
	}
}

func TestCheckEtcdAlone(t *testing.T) {
	etcd := embedded.Start(t, nil)
	out := dr(t, nil, "check", "--endpoints", etcd.URL, "--no-hash")
	if out.code != 0 || strings.Contains(out.stdout, "reachable") || !strings.Contains(out.stdout, "quorum and leader") {
		t.Errorf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	out = dr(t, nil, "check", "--endpoints", "http://127.0.0.1:1")
	if out.code != 3 || !strings.Contains(out.stdout, "connection refused") {
		t.Errorf("nobody answers: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// interrupter cancels a context on the first write, as Ctrl-C would.
type interrupter struct {
	cancel context.CancelFunc
	io.Writer
}

func (i interrupter) Write(p []byte) (int, error) {
	i.cancel()
	return i.Writer.Write(p)
}

func TestCheckInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	none := func(string) string { return "" }
	w := world{strings.NewReader(""), &stdout, interrupter{cancel, &stderr}, none}
	code := run(ctx, []string{"check", "--repo", "file://" + dir}, w)
	if code != exitInterrupted || !strings.Contains(stdout.String(), "interrupted") {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
	wantEmpty(t, dir)
}

func TestCheckBadInput(t *testing.T) {
	repo := "file://" + t.TempDir()
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{}, "nothing to check"},
		{[]string{"--repo", repo, "--lock", "soon"}, "--lock soon"},
		{[]string{"--repo", repo, "--lock", "1m:forever"}, "30d:compliance"},
		{[]string{"--repo", repo, "--cluster", "a/b"}, "letters, digits"},
		{[]string{"--repo", repo + "/none"}, "there is no directory"},
		{[]string{"--repo", repo, "--endpoints", "htp://x:1"}, "https:// or http://"},
		{[]string{"--repo", repo, "--trust", "nonsense"}, "--trust"},
		{[]string{"--repo", repo, "now"}, "unexpected"},
	} {
		out := dr(t, nil, append([]string{"check"}, test.args...)...)
		if out.code != 2 || !strings.Contains(out.stderr, test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, out.code, out.stderr)
		}
	}
}
