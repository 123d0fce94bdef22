package readme

import (
	"regexp"
	"strings"
	"testing"
)

// TestWalkThrough compares docs/migrate.md, whose commands a test runs on Kubernetes, with the walk-through of coreos' operator, which they must
// be word for word.
func TestWalkThrough(t *testing.T) {
	var want, got string
	steps, _ := parse("walk-through", read(t, "testdata/coreos-walkthrough.txt"))
	for _, s := range steps {
		want += s.command + "\n"
	}
	_, section, _ := strings.Cut(read(t, "../../docs/migrate.md"), "\n## With coreos' manifests\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(section, -1) {
		got += block[1]
	}
	if len(steps) != 10 || got != want {
		t.Errorf("%d commands of the walk-through:\n%s\ndocs/migrate.md has:\n%s", len(steps), want, got)
	}
}
