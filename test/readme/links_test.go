package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinks checks that each relative link in a Markdown file leads to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	pages := markdown(t)
	if len(pages) < 30 {
		t.Fatalf("only %d pages found", len(pages))
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			_, err := os.Stat(to)
			if err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !anchors(read(t, to))[anchor] {
				t.Errorf("%s links to %s: no such heading", page, m[1])
			}
		}
	}
}

// TestEveryPageIsInTheIndex checks that docs/README.md links to each page of docs.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := read(t, filepath.Join(root, "docs", "README.md"))
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

func markdown(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors returns the anchors that GitHub gives the headings of text.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return all
}
