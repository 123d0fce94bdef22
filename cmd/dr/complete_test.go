package main

import (
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// TestCompletion checks the replies to a shell's requests for completion: IDs, the newest first, names of clusters, output formats, and
// file names only where a verb takes a file.
func TestCompletion(t *testing.T) {
	env, ids := filled(t, 3, sign.Key{})
	for _, verb := range []string{"show", "fetch", "verify", "restore", "drill", "extract", "pin", "unpin"} {
		out := wantDone(t, dr(t, env, "__complete", verb, ""))
		newest, oldest := strings.Index(out, string(ids[2])+"\trevision 3"), strings.Index(out, string(ids[0]))
		if newest < 0 || oldest < newest {
			t.Errorf("dr %s completes\n%s", verb, out)
		}
		out = wantDone(t, dr(t, env, "__complete", verb, string(ids[0]), ""))
		if strings.Contains(out, string(ids[2])) {
			t.Errorf("dr %s takes one ID, and completes\n%s", verb, out)
		}
	}
	for line, want := range map[string]string{
		"list --cluster":           "prod\n:4\n",
		"archive verify --cluster": "prod\n:4\n",
		"list -o":                  "table\njson\n:4\n",
		"archive verify -o":        "table\njson\n:4\n",
		"extract -o":               "yaml\njson\nraw\n:4\n",
		"archive --credentials":    ":16\n", // directories
		"archive verify":           ":4\n",
		"status":                   ":0\n", // files
		"import":                   ":0\n",
		"convert -f":               ":0\n",
	} {
		out := wantDone(t, dr(t, env, append([]string{"__complete"}, append(strings.Fields(line), "")...)...))
		if out != want {
			t.Errorf("dr %s completes\n%s", line, out)
		}
	}
	for _, env := range []map[string]string{nil, {"DR_REPO": "file:///does/not/exist", "DR_CLUSTER": "prod"}} {
		for _, args := range [][]string{{"show", ""}, {"list", "--cluster", ""}, {"list", ""}} {
			out := wantDone(t, dr(t, env, append([]string{"__complete"}, args...)...))
			if out != ":4\n" { // no file either
				t.Errorf("with %v %q completes\n%s", env, args, out)
			}
		}
	}
}
