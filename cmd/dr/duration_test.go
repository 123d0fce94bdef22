package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationFlags returns the flags of cmd and its subcommands that take a duration, by their command line. The flags of etcdctl take what
// etcdctl accepts, and are left out.
func durationFlags(cmd *cobra.Command) map[string]*pflag.FlagSet {
	found := map[string]*pflag.FlagSet{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "duration" && !slices.Contains([]string{"dial-timeout", "command-timeout"}, f.Name) {
			found[cmd.CommandPath()+" --"+f.Name] = cmd.Flags()
		}
	})
	for _, sub := range cmd.Commands() {
		for line, flags := range durationFlags(sub) {
			found[line] = flags
		}
	}
	return found
}

// TestDurations checks that every flag with a duration takes the forms of dr.yaml, and refuses a negative duration with an error that shows the form.
func TestDurations(t *testing.T) {
	all := durationFlags((&app{world: world{getenv: os.Getenv}}).root())
	if len(all) < 8 {
		t.Errorf("only %d flags were found", len(all))
	}
	for line, flags := range all {
		_, name, _ := strings.Cut(line, "--")
		for _, text := range []string{"90s", "12h", "1d12h", "2w", "1y", "0"} {
			err := flags.Set(name, text)
			if err != nil {
				t.Errorf("%s %s: %v", line, text, err)
			}
		}
		for _, text := range []string{"-1h", "-1d", "1x", ""} {
			err := flags.Set(name, text)
			if err == nil || !strings.Contains(err.Error(), "use a form like 90s, 12h or 1d12h") {
				t.Errorf("%s %q: %v", line, text, err)
			}
		}
	}
}

// TestDurationHelp checks that the help shows the defaults of durations.
func TestDurationHelp(t *testing.T) {
	for line, want := range map[string]string{
		"prune": "--grace duration", "backup": "(default 5m0s)", "archive": "(default 1h0m0s)", "serve": "(default 20s)", "import": "(default 24h0m0s)",
	} {
		out := wantDone(t, dr(t, nil, line, "--help"))
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the help of dr %s", want, line)
		}
	}
}
