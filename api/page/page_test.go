package page_test

import (
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/page"
)

func ask(t *testing.T, path, etag string) *http.Response {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	request.Header.Set("If-None-Match", etag)
	answer := httptest.NewRecorder()
	page.Handler().ServeHTTP(answer, request)
	return answer.Result()
}

func TestServed(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html", "/assets/main.js": "text/javascript", "/assets/page.css": "text/css", "/assets/icon.svg": "image/svg+xml",
	} {
		first := ask(t, path, "")
		if first.StatusCode != http.StatusOK || !strings.HasPrefix(first.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s, %s", path, first.Status, first.Header)
		}
		policy := first.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'self'; ") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		again := ask(t, path, first.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s, asked for again: %s", path, again.Status)
		}
	}
	for _, path := range []string{"/assets/", "/assets/none.js", "/page.go", "/../page.go"} {
		got := ask(t, path, "")
		if got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
}

// The page contains nothing that the policy forbids, and no other unsafe code that the policy cannot detect.
func TestNoFileBreaksThePolicy(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"markup made of text":               regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|ContextualFragment|DOMParser`),
		"a program made of text":            regexp.MustCompile(`\beval\(|new Function`),
		"another host":                      regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`),
		"a script or a style in the markup": regexp.MustCompile(`<script>|<script [^>]*>[^<]|<style|\sstyle=|<[^>]+\son[a-z]+=|javascript:`),
	}
	// The namespace of SVG; nothing is loaded from it.
	const namespace = "http://www.w3.org/2000/svg"
	names := map[string]string{}
	for name, text := range files(t) {
		names[path.Base(name)] = text
		for what, expression := range forbidden {
			found := expression.FindString(strings.ReplaceAll(text, namespace, ""))
			if found != "" {
				t.Errorf("%s has %s: %s", name, what, found)
			}
		}
	}
	for name, text := range names {
		for _, imported := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(text, -1) {
			if names[imported[1]] == "" {
				t.Errorf("%s imports %s, which is not there", name, imported[1])
			}
		}
	}
	if len(names) < 8 {
		t.Errorf("only %d files were looked at", len(names))
	}
}

func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	static := os.DirFS("static")
	err := fs.WalkDir(static, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(static, name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// WCAG 2.2 AA: 4.5 for text, 3 for shapes and edges of controls.
func TestContrast(t *testing.T) {
	css := files(t)["assets/page.css"]
	light, rest, found := strings.Cut(css, "@media (prefers-color-scheme: dark)")
	dark, _, found2 := strings.Cut(rest, "* { box-sizing")
	if !found || !found2 {
		t.Fatal("the colours are not where they are looked for")
	}
	for scheme, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, one := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
			colours[one[1]] = one[2]
		}
		for _, pair := range []struct {
			above, below string
			least        float64
		}{
			{"text", "ground", 4.5}, {"text", "panel", 4.5}, {"muted", "ground", 4.5}, {"muted", "panel", 4.5},
			{"link", "ground", 4.5}, {"link", "panel", 4.5}, {"critical", "panel", 4.5}, {"critical", "ground", 4.5},
			{"critical", "critical-soft", 4.5}, {"warning", "panel", 4.5}, {"warning", "warning-soft", 4.5},
			{"good", "panel", 4.5}, {"good", "good-soft", 4.5}, {"paused", "paused-soft", 4.5}, {"text", "critical-soft", 4.5},
			{"control", "panel", 3}, {"control", "ground", 3}, {"window", "lane", 3}, {"critical", "lane", 3},
			{"good", "lane", 3}, {"link", "lane", 3},
		} {
			above, below := colours[pair.above], colours[pair.below]
			got := contrast(t, above, below)
			if got < pair.least {
				t.Errorf("%s: %s %s on %s %s has a contrast of %.2f, at least %.1f is wanted",
					scheme, pair.above, above, pair.below, below, got, pair.least)
			}
		}
	}
	got := fmt.Sprintf("%.1f %.1f", contrast(t, "#000000", "#ffffff"), contrast(t, "#777777", "#ffffff"))
	if got != "21.0 4.5" {
		t.Errorf("black and grey on white: %s", got)
	}
}

// contrast is WCAG's, from 1 to 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	one, other := luminance(t, a)+0.05, luminance(t, b)+0.05
	return math.Max(one, other) / math.Min(one, other)
}

func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	rgb, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", colour, err)
	}
	for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
		c := float64(rgb>>(8*i)&0xff) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}
