// Package runbooks walks each page of docs/runbooks: it creates the page's situation on a machine, runs the page's
// commands as written, and checks that the machine shows the page's examples and that the condition ends.
package runbooks

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/machine"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

const runbooks = "../../docs/runbooks"

// certificatesLast is long enough for dr check to report no problem.
const certificatesLast = 365 * 24 * time.Hour

// TestRunbooks walks each page. The walks mostly wait, so there are two machines.
func TestRunbooks(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	for _, group := range walks() {
		t.Run(strings.Join(group[0].pages, "+"), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			for _, w := range group {
				t.Run(strings.Join(w.pages, "+"), func(t *testing.T) { h.walk(t, w) })
			}
		})
	}
}

// TestEachRunbookIsWalked checks that each page has a walk, and each walk a page.
func TestEachRunbookIsWalked(t *testing.T) {
	var walked []string
	for _, w := range slices.Concat(walks()...) {
		walked = append(walked, w.pages...)
	}
	slices.Sort(walked)
	all := pages(t)
	if !slices.Equal(all, walked) {
		t.Errorf("the pages\n%q\nthe walks\n%q", all, walked)
	}
}

// host is the machine with the variables and files that docs/runbooks/README.md requires.
type host struct {
	*machine.Machine
	certificates *servers.Certificates
}

func newHost(t *testing.T) *host {
	t.Helper()
	certificates := servers.NewCertificatesFor(t, certificatesLast, machine.Hosts()...)
	h := &host{machine.Start(t, certificates, "ETCD_FLAGS=--quota-backend-bytes=33554432",
		"MINIO="+tools.Path(t, "stores", "minio", "minio")), certificates}
	h.must(t, "source test/runbooks/functions.sh")
	for _, line := range blocks(read(t, "README"))[0] {
		h.must(t, line)
	}
	return h
}

// must runs a command that has to succeed, and returns its output.
func (h *host) must(t *testing.T, line string) string {
	t.Helper()
	stdout, stderr, code := h.Run(t, line)
	if code != 0 {
		t.Fatalf("$ %s\nexit code %d\n%s%s", line, code, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// patience is for a machine that is ten times slower than an idle one.
const patience = 5 * time.Minute

// until repeats a command until it succeeds.
func (h *host) until(t *testing.T, line string) {
	t.Helper()
	var stdout, stderr string
	var code int
	done := poll(func() bool {
		stdout, stderr, code = h.Run(t, line)
		return code == 0
	})
	if !done {
		t.Fatalf("$ %s\nnever succeeded; last: exit code %d\n%s%s", line, code, stdout, stderr)
	}
}

// poll repeats attempt until it succeeds or patience has passed, and reports whether it has succeeded.
func poll(attempt func() bool) bool {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if attempt() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// walk walks the pages of one situation.
func (h *host) walk(t *testing.T, w walk) {
	began := time.Now()
	h.must(t, "fresh")
	err := os.WriteFile(h.Path("/etc/etcd-dr/dr.yaml"), []byte(w.config()), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range w.breaks {
		do.run(t, h, w)
	}
	for _, page := range w.pages {
		h.until(t, w.state(w.begun, page, "standing", "served"))
		h.see(t, page, w)
		h.look(t, page, w)
		h.until(t, w.state(w.begun, page, "standing", "served")) // looking ends nothing
	}
	for _, do := range w.cures {
		do.run(t, h, w)
	}
	for _, page := range w.pages {
		if w.endless == "" {
			h.until(t, w.state(w.over, page, "over", "unserved"))
		}
		w.complete(t, page)
	}
	t.Logf("walked in %s", time.Since(began).Round(100*time.Millisecond))
}

// look runs the commands below Look. They must be valid and show the output that the page needs; they may report
// problems.
func (h *host) look(t *testing.T, page string, w walk) {
	t.Helper()
	var shown strings.Builder
	for _, line := range blocks(section(t, page, "**Look:**", "**Do:**"))[0] {
		stdout, stderr, code := h.Run(t, line)
		fmt.Fprintf(&shown, "$ %s\n%s%s", line, stdout, stderr)
		if code >= 126 || strings.Contains(stderr, "--help") || w.service && strings.Contains(line, "journalctl -u etcd-dr-serve") && code != 0 {
			t.Errorf("%s: $ %s\nexit code %d\n%s%s", page, line, code, stdout, stderr)
		}
	}
	for _, words := range w.shows {
		if !regexp.MustCompile(words).MatchString(shown.String()) {
			t.Errorf("%s: what it looks at does not show %q:\n%s", page, words, shown.String())
		}
	}
}

// complete fails the test if a page names a command with a flag that the walk neither ran nor omits for a reason.
func (w walk) complete(t *testing.T, page string) {
	t.Helper()
	known := slices.Collect(maps.Keys(w.left))
	for _, do := range slices.Concat(w.breaks, w.cures) {
		if do.page != "" {
			known = append(known, do.page)
		}
	}
	for _, line := range blocks(section(t, page, "**Look:**", "**Do:**"))[0] {
		line, _, _ = strings.Cut(line, " #")
		known = append(known, strings.TrimSpace(line))
	}
	for _, command := range commands(section(t, page, "**Do:**", "")) {
		named := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(command, k) })
		if strings.Contains(command, " -") && !named {
			t.Errorf("%s: nobody has run `%s`", page, command)
		}
	}
}

// walk is a situation, its pages, and how it begins and ends. All fields are commands of the machine's shell.
type walk struct {
	pages      []string
	service    bool              // dr serve runs, and its conditions count: elsewhere those of dr status
	repository string            // the repository's entries in dr.yaml, besides its URL
	cluster    map[string]string // the cluster's entries in dr.yaml, besides the usual ones
	breaks     []step
	begun      string   // succeeds once the situation exists; "": each page's condition exists
	shows      []string // parts of the output of the commands below Look
	cures      []step
	over       string            // succeeds once it has ended; "": each page's condition has ended
	left       map[string]string // the page's commands that are not run, by their beginning, and why
	endless    string            // why the end cannot be seen here
}

// step is one action: a command of the page by its beginning, or one that the page describes in words.
type step struct {
	page  string            // the beginning of a command in the page's text
	fill  map[string]string // replacements for the page's placeholders
	hand  string
	until string // a command to repeat until it succeeds
	do    func(t *testing.T, h *host)
	code  int  // with page: the exit code
	again bool // with page: until it succeeds
}

func (s step) run(t *testing.T, h *host, w walk) {
	t.Helper()
	switch {
	case s.do != nil:
		s.do(t, h)
	case s.until != "":
		h.until(t, s.until)
	case s.hand != "":
		h.must(t, s.hand)
	default:
		line := s.command(t, w)
		for placeholder, word := range s.fill {
			line = strings.ReplaceAll(line, placeholder, word)
		}
		if s.again {
			h.until(t, line)
			return
		}
		stdout, stderr, code := h.Run(t, line)
		if code != s.code {
			t.Fatalf("$ %s\nexit code %d, want %d\n%s%s", line, code, s.code, stdout, stderr)
		}
	}
}

// command returns the command of the walk's pages that begins with the step's words.
func (s step) command(t *testing.T, w walk) string {
	t.Helper()
	for _, page := range w.pages {
		for _, command := range commands(section(t, page, "**At risk:**", "")) {
			if strings.HasPrefix(command, s.page) {
				return command
			}
		}
	}
	t.Fatalf("%q have no command %q", w.pages, s.page)
	return ""
}

// state returns the command that checks whether a page's condition exists, or has ended.
func (w walk) state(given, page, byHand, byService string) string {
	switch {
	case given != "":
		return given
	case w.service:
		return byService + " " + page
	}
	return byHand + " " + page
}

// config returns dr.yaml. Its cluster is as in docs/serve.md, but for a service that checks every ten seconds.
func (w walk) config() string {
	body := map[string]string{
		"etcd": "{endpoints: [https://10.0.0.1:2379, https://10.0.0.2:2379, https://10.0.0.3:2379], " +
			"cacert: /etc/etcd/ca.crt, cert: /etc/etcd/client.crt, key: /etc/etcd/client.key}",
		"repositories":   "[main]",
		"recipientsFile": "/etc/etcd-dr/recipients.txt",
		"schedule":       `{cron: "@monthly"}`,
		"observe":        "10s",
	}
	maps.Copy(body, w.cluster)
	var text strings.Builder
	fmt.Fprintf(&text, "lease: 5s\nrepositories:\n  main:\n    url: file:///var/backups/etcd\n%sclusters:\n  prod:\n", w.repository)
	for _, key := range slices.Sorted(maps.Keys(body)) {
		if body[key] != "" {
			fmt.Fprintf(&text, "    %s: %s\n", key, body[key])
		}
	}
	return text.String()
}
