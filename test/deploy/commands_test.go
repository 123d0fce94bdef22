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

// said are the commands of a program in a runbook, without what follows a pipe or a comment.
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

// helper gives the help of a program's verb, once.
func helper(t *testing.T, path string) func(verbs string) string {
	t.Helper()
	known := map[string]string{}
	return func(verbs string) string {
		if _, ok := known[verbs]; !ok {
			known[verbs] = output(t, path, append(strings.Fields(verbs), "--help")...)
		}
		return known[verbs]
	}
}

// Every verb and every flag in the runbooks is one that the programs have.
func TestRunbookCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binaries")
	}
	etcdctl := tools.Path(t, "etcd-3.7", "etcdctl")
	global := output(t, etcdctl, "options")
	for program, help := range map[string]func(string) string{"dr": helper(t, command.Path()), "etcdctl": helper(t, etcdctl)} {
		found := 0
		for _, page := range append(pages(t), "README") {
			for _, line := range said(readFile(t, filepath.Join(runbooks, page+".md")), program) {
				found++
				verbs := verbsOf(line, program, help)
				options := help(verbs)
				if program == "etcdctl" {
					options += global
				}
				for _, m := range flag.FindAllStringSubmatch(line, -1) {
					if !regexp.MustCompile(`(?m)(^|\s)` + m[1] + `[\s=,\[]`).MatchString(options) {
						t.Errorf("%s: %s %s has no flag %s: %s", page, program, verbs, m[1], line)
					}
				}
				if verbs == "" {
					t.Errorf("%s: %s has no such verb: %s", page, program, line)
				}
			}
		}
		if found < 10 {
			t.Errorf("only %d commands of %s were found", found, program)
		}
	}
}

// verbsOf are the words of a command before its arguments that the program's help knows as verbs.
func verbsOf(line, program string, help func(string) string) string {
	verbs := ""
	for _, word := range strings.Fields(strings.TrimPrefix(line, program)) {
		if !verb.MatchString(word) || !regexp.MustCompile(`(?m)^\s+(\w+ )*`+word+`\s`).MatchString(help(verbs)) {
			break
		}
		verbs = strings.TrimSpace(verbs + " " + word)
	}
	return verbs
}
