package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestPlanRefusesTheFlagsItContains checks every flag of dr restore: one that is accepted with --plan and ignored would restore something
// other than the command line asks for.
func TestPlanRefusesTheFlagsItContains(t *testing.T) {
	noPlan := filepath.Join(t.TempDir(), "plan.json")
	err := os.WriteFile(noPlan, []byte("{}"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, err := (&app{world: world{getenv: os.Getenv}}).root().Find([]string{"restore"})
	if err != nil {
		t.Fatal(err)
	}
	ways := []string{"undo", "clean", "into"} // these make their own plan, or run none
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(withPlan, f.Name) || slices.Contains(ways, f.Name) {
			return
		}
		value := "7"
		switch f.Value.Type() {
		case "bool":
			value = "true"
		case "duration":
			value = "7s"
		}
		out := dr(t, nil, "restore", "--plan", noPlan, "--"+f.Name+"="+value)
		if out.code != exitUsage || !strings.Contains(out.stderr, "--plan already sets --"+f.Name+":") {
			t.Errorf("--%s: exit code %d, %s", f.Name, out.code, out.stderr)
		}
	})
	for _, name := range withPlan {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("dr restore has no flag --%s", name)
		}
	}
}
