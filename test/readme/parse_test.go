package readme

import (
	"strings"
)

// step is one command of a page and the output that the page shows for it.
type step struct {
	page    string
	line    int
	command string
	want    []string // empty: not shown, so not compared
}

// skipMark is in an HTML comment directly before a block that no test can run, with the reason.
const skipMark = "<!-- not run: "

// parse returns the commands in a page: in fenced blocks, every line that starts with "$ ", with the lines that follow
// a backslash. The lines below it, up to the next command, are its output.
func parse(page, text string) (steps []step, skipped []string) {
	var fenced, skip bool
	var before string
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			skip = fenced && strings.HasPrefix(before, skipMark)
			if skip {
				skipped = append(skipped, strings.TrimSuffix(strings.TrimPrefix(before, skipMark), " -->"))
			}
		case !fenced || skip:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{page: page, line: i + 1, command: line[2:]})
		case len(steps) > 0 && strings.HasSuffix(steps[len(steps)-1].command, "\\"):
			steps[len(steps)-1].command += "\n" + line
		case len(steps) > 0 && steps[len(steps)-1].page == page:
			steps[len(steps)-1].want = append(steps[len(steps)-1].want, line)
		}
		if line != "" {
			before = line
		}
	}
	return steps, skipped
}

// notRun reports whether a command installs or builds: such a command would run this very test again, or need the
// internet.
func notRun(command string) bool {
	return strings.HasPrefix(command, "make ") || strings.HasPrefix(command, "go install ")
}
