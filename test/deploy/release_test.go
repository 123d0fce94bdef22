package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

const version = "v1.2.3-test"

// TestRelease checks that a release has the same bytes wherever it is built, that its archive is complete with a
// checksum, and that its binary runs without other files.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds dr anew")
	}
	dir := t.TempDir()
	sums := release(t, "../..", dir)
	tree := t.TempDir()
	tools.CopyTree(t, tree)
	again := release(t, tree, t.TempDir())
	if again != sums {
		t.Errorf("built elsewhere it is another one:\n%s%s", sums, again)
	}
	name := "etcd-dr-" + version + "-linux-" + runtime.GOARCH
	output(t, "bash", "-euc", `cd "$1" && sha256sum --check --strict SHA256SUMS`, "bash", dir)
	wantArchive(t, filepath.Join(dir, name+".tar.gz"), name)

	output(t, "tar", "--extract", "--directory", dir, "--file", filepath.Join(dir, name+".tar.gz"))
	binary := filepath.Join(dir, name, "dr")
	wantStatic(t, binary)
	wantSmall(t, binary)
	testImage(t)
}

// release builds a release for this machine's architecture, and returns its checksums.
func release(t *testing.T, tree, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "deploy/dist.sh"), dir, version, runtime.GOARCH)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1763712000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("deploy/dist.sh: %v\n%s", err, out)
	}
	return readFile(t, filepath.Join(dir, "SHA256SUMS"))
}

// wantArchive fails the test unless the archive has the expected files, all below name, with one owner and one time.
func wantArchive(t *testing.T, archive, name string) {
	t.Helper()
	list := output(t, "tar", "--list", "--verbose", "--utc", "--full-time", "--numeric-owner", "--file", archive)
	entry := regexp.MustCompile(`^[-d]rw[-x]r-[-x]r-[-x] 0/0 +\d+ 2025-11-21 08:00:00 ` + regexp.QuoteMeta(name) + `/`)
	for line := range strings.Lines(list) {
		if !entry.MatchString(line) {
			t.Errorf("it holds %s", line)
		}
	}
	for _, file := range []string{
		"dr", "README.md", "LICENSE", "CHANGELOG.md", "docs/runbooks/README.md", "deploy/dr.yaml", "deploy/image.sh",
		"deploy/systemd/etcd-dr-serve.service", "deploy/prometheus/alerts.yaml", "deploy/grafana/etcd-dr.json",
		"completions/dr.bash", "completions/dr.zsh", "completions/dr.fish",
	} {
		if !strings.Contains(list, name+"/"+file+"\n") {
			t.Errorf("it lacks %s", file)
		}
	}
}

// maxSize is the largest stripped binary in bytes: the operator's part was agreed on under this bound.
const maxSize = 90e6

// wantSmall logs the size of the stripped program, and fails the test if it is above maxSize.
func wantSmall(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the stripped binary has %.1f MB of at most %.0f", float64(info.Size())/1e6, maxSize/1e6)
	if info.Size() > maxSize {
		t.Errorf("it has %d bytes, above %.0f: look for a dependency that is new or not needed", info.Size(), maxSize)
	}
}

// wantStatic fails the test if the program needs a loader or a library.
func wantStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a loader")
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs %q, %v", libraries, err)
	}
}
