package deploy

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

var (
	inBlock = regexp.MustCompile(`(?m)^ {4}(.*)$`)
	inLine  = regexp.MustCompile("(?s)`([^`]+)`")
	verb    = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flag    = regexp.MustCompile(`(?:^|\s)(--[a-z-]+|-[a-z])\b`)
)

// said returns the commands of a program in a runbook, without the part after a pipe or a comment.
func said(text, program string) (commands []string) {
	for _, m := range append(inBlock.FindAllStringSubmatch(text, -1), inLine.FindAllStringSubmatch(text, -1)...) {
		line := strings.Join(strings.Fields(m[1]), " ")
		line, _, _ = strings.Cut(line, " | ")
		line, _, _ = strings.Cut(line, " #")
		if strings.HasPrefix(line, program+" ") {
			commands = append(commands, line)
		}
	}
	return commands
}

// cli is a program with verbs, and its help.
type cli struct {
	name, path string
	global     string // options of all verbs
	helps      map[string]string
}

func dr() *cli { return &cli{name: "dr", path: command.Path(), helps: map[string]string{}} }

func etcdctl(t *testing.T) *cli {
	t.Helper()
	path := tools.Path(t, "etcd-3.7", "etcdctl")
	return &cli{name: "etcdctl", path: path, global: output(t, path, "options"), helps: map[string]string{}}
}

// help returns the help of a verb, which it requests once.
func (c *cli) help(t *testing.T, verbs string) string {
	t.Helper()
	_, ok := c.helps[verbs]
	if !ok {
		c.helps[verbs] = output(t, c.path, append(strings.Fields(verbs), "--help")...)
	}
	return c.helps[verbs]
}

// verbs returns the first words of a command that the help lists as verbs.
func (c *cli) verbs(t *testing.T, words []string) (verbs string) {
	t.Helper()
	for _, word := range words {
		if !verb.MatchString(word) || !regexp.MustCompile(`(?m)^\s+(\w+ )*`+word+`\s`).MatchString(c.help(t, verbs)) {
			break
		}
		verbs = strings.TrimSpace(verbs + " " + word)
	}
	return verbs
}

// knows fails the test unless the program has the verb and the flags of a command, which begins with its name.
func (c *cli) knows(t *testing.T, where, line string) {
	t.Helper()
	verbs := c.verbs(t, strings.Fields(line)[1:])
	if verbs == "" {
		t.Errorf("%s: there is no such verb: %s", where, line)
	}
	for _, m := range flag.FindAllStringSubmatch(line, -1) {
		if !regexp.MustCompile(`(?m)(^|\s)` + m[1] + `[\s=,\[]`).MatchString(c.help(t, verbs) + c.global) {
			t.Errorf("%s: %s %s has no flag %s: %s", where, c.name, verbs, m[1], line)
		}
	}
}

// TestRunbookCommands checks that the programs have every verb and every flag in the runbooks.
func TestRunbookCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binaries")
	}
	for _, c := range []*cli{dr(), etcdctl(t)} {
		found := 0
		for _, page := range append(pages(t), "README") {
			for _, line := range said(readFile(t, filepath.Join(runbooks, page+".md")), c.name) {
				found++
				c.knows(t, page, line)
			}
		}
		if found < 10 {
			t.Errorf("only %d commands of %s were found", found, c.name)
		}
	}
}
