package segment_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// skip fails the test in CI, which has everything that the tests need.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// page returns docs/format.md, which describes how to read a segment without dr.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPublicTools runs the page's commands on a segment.
func TestPublicTools(t *testing.T) {
	for _, tool := range []string{"age", "zstd", "jq", "od", "sha256sum"} {
		_, err := exec.LookPath(tool)
		if err != nil {
			skip(t, err.Error())
		}
	}
	_, rest, ok := strings.Cut(page(t), "With public tools:\n\n```\n")
	commands, _, _ := strings.Cut(rest, "```")
	if !ok || len(strings.Split(commands, "\n")) != 6 {
		t.Fatalf("the page has other commands: %q", commands)
	}
	key, dir := newPair(t), t.TempDir()
	h := fullHeader()
	h.After.Position = 5 // old versions of jq round long numbers, as the page mentions
	e := encoded(t, h, fullRequests(), key.to)
	for name, content := range map[string][]byte{"x.seg": e.Bytes, "key.txt": []byte(key.identity)} {
		err := os.WriteFile(filepath.Join(dir, name), content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands+"sha256sum body")
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	_, doc, _ := parts(e.Bytes)
	own := regexp.MustCompile(`"sha256": "([0-9a-f]{64})",\n  "signature"`).FindSubmatch(doc)[1]
	want := string(doc) + string(own) + "  -\n" + e.Header.Stored.SHA256 + "  -\n" + e.Header.Plain.SHA256 + "  body\n"
	diff := cmp.Diff(want, string(out))
	if diff != "" {
		t.Error(diff)
	}
}

// TestPageExample checks that the page's example is the golden segment.
func TestPageExample(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "format1.seg"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, sealed := parts(golden)
	_, rest, _ := strings.Cut(page(t), "is no protobuf:\n\n```\n")
	example, _, _ := strings.Cut(rest, "```")
	var got []byte
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		p, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p...)
	}
	diff := cmp.Diff(unsealed(t, sealed), got)
	if diff != "" {
		t.Error(diff)
	}
}
