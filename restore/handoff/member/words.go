package member

import (
	"regexp"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// undo matches the command of package swap that puts old data back, with the verb before it.
var undo = regexp.MustCompile(`(run |take it back with )?dr restore --undo ([0-9a-f]{16}) --data-dir ('[^']*'|\S+)`)

// commands replaces the commands of dr restore --replace in remedies, which a person cannot run in a Job.
var commands = strings.NewReplacer(
	"complete it with dr restore --replace, or", "wait for its end, or",
	"run dr restore --replace again, which begins a new one", "begin another restore",
	"run dr restore --replace again", "begin another restore",
	"repeat dr restore --undo", "order it to go back",
	"remove the data of this restore with dr restore --clean", "remove its folders",
	"by dr restore --clean", "by ordering it to go back",
	"with dr restore --clean", "by ordering that restore to go back",
	"run the same command again", "restore again",
	"restore without --replace", "restore again",
	"restore --name", "name the members as they are with --initial-cluster:",
)

// translated returns r with the remedies of a handoff in place of those of dr restore --replace.
func translated(r handoff.Report) handoff.Report {
	r.Waiting = translate(r.Waiting)
	if r.Error != nil {
		r.Error.Message, r.Error.Remedy = translate(r.Error.Message), translate(r.Error.Remedy)
	}
	return r
}

func translate(text string) string {
	return commands.Replace(undo.ReplaceAllString(text, "order restore $2 to go back"))
}
