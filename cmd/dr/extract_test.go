package main

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/test/embedded"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// TestFilesOfKeys checks that no key leads out of the directory, or to the file or directory of another key.
func TestFilesOfKeys(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom([]string{
		"", ".", "..", "a", "a.raw", "a.yaml", "%", "%%", "%2E", "\x00", "\xff", "ü", " ", strings.Repeat("x", 300), strings.Repeat("x", 301),
	}), rapid.StringN(0, 3, 6))
	key := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		suffix := rapid.SampledFrom([]string{".raw", ".yaml", ".json"}).Draw(t, "suffix")
		fileA, fileB := fileOf(a, suffix), fileOf(b, suffix)
		if !filepath.IsLocal(fileA) || filepath.Clean(fileA) != fileA {
			t.Fatalf("%q goes to %q", a, fileA)
		}
		for _, name := range strings.Split(fileA, "/") {
			if len(name) > 255 || strings.ContainsAny(name, "\x00\\") {
				t.Fatalf("%q goes to %q", a, fileA)
			}
		}
		if a != b && (fileA == fileB || strings.HasPrefix(fileB, fileA+"/")) {
			t.Fatalf("%q goes to %q, and %q to %q", a, fileA, b, fileB)
		}
	})
	for key, want := range map[string]string{
		"/registry/pods/prod/web-0": "registry/pods/prod/web-0.yaml", "compact_rev_key": "%/compact_rev_key.yaml", "/a//b": "a/%%/b.yaml",
	} {
		got := fileOf(key, ".yaml")
		if got != want {
			t.Errorf("%q goes to %q, want %q", key, got, want)
		}
	}
}

// TestExtractMissingKey checks that a key that does not exist is an error in every output format, and that JSON also has the result.
func TestExtractMissingKey(t *testing.T) {
	etcd := embedded.Start(t, nil)
	env := map[string]string{"DR_REPO": "file://" + t.TempDir(), "DR_CLUSTER": "prod", "ETCDCTL_ENDPOINTS": etcd.URL}
	wantDone(t, dr(t, env, "backup"))
	for _, form := range []string{"yaml", "raw", "json"} {
		out := dr(t, env, "extract", "--key", "none", "-o", form)
		if out.code != exitFinding || !strings.Contains(out.stderr, "no such key at revision 1") {
			t.Errorf("-o %s: exit code %d\n%s", form, out.code, out.stderr)
		}
		if form == "json" && (!strings.Contains(out.stdout, `{"result":{"revision":1,`) || !strings.Contains(out.stdout, `{"error":`)) {
			t.Errorf("-o json prints\n%s", out.stdout)
		}
	}
}
