package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// longestArchitecture is how many bytes ARCHITECTURE.md may have: a page that is read in one go. Reasons belong in docs/design.
const longestArchitecture = 10000

// groups are the folders of the product's packages.
var groups = []string{"api", "backup", "cmd", "restore", "scheduler", "storage"}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	pathSpan = regexp.MustCompile(`^(api|backup|cmd|docs|restore|scheduler|storage|test)/[a-z0-9_/.]+$`)
)

// TestArchitecture checks that the page is short, that the paths in it exist, and that its tree names every package.
func TestArchitecture(t *testing.T) {
	page := read(t, filepath.Join(root, "ARCHITECTURE.md"))
	if len(page) > longestArchitecture {
		t.Errorf("ARCHITECTURE.md has %d bytes, more than %d", len(page), longestArchitecture)
	}
	for _, m := range codeSpan.FindAllStringSubmatch(page, -1) {
		_, err := os.Stat(filepath.Join(root, m[1]))
		if pathSpan.MatchString(m[1]) && err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", m[1], err)
		}
	}
	_, tree, _ := strings.Cut(page, "## The tree")
	tree, _, _ = strings.Cut(tree, "\n## ")
	for _, dir := range packages(t) {
		if !regexp.MustCompile(`\b` + filepath.Base(dir) + `\b`).MatchString(tree) {
			t.Errorf("the tree in ARCHITECTURE.md lacks %s", dir)
		}
	}
}

// packages returns the folders of the product's packages at most two levels deep: deeper ones belong to their parent.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	for _, group := range groups {
		err := fs.WalkDir(os.DirFS(root), group, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" || strings.Count(path, "/") > 1 {
				return fs.SkipDir
			}
			sources, err := filepath.Glob(filepath.Join(root, path, "*.go"))
			if len(sources) > 0 {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}
