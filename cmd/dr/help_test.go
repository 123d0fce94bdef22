package main

import (
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"help"}, "Exit codes:"},
		{[]string{"help", "backup"}, "dr backup [flags]"},
		{[]string{"help", "archive", "verify"}, "dr archive verify"},
		{[]string{"help", "help"}, "dr help [VERB]"},
	} {
		out := dr(t, nil, test.args...)
		if out.code != exitDone || !strings.Contains(out.stdout, test.says) {
			t.Errorf("dr %s: exit code %d\n%s%s", strings.Join(test.args, " "), out.code, out.stdout, out.stderr)
		}
	}
}

// TestDidYouMean checks that the error of an unknown verb or flag suggests similar ones.
func TestDidYouMean(t *testing.T) {
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"bakcup"}, []string{`unknown verb "bakcup"`, "did you mean backup?", "see dr --help"}},
		{[]string{"help", "lst"}, []string{`unknown verb "lst"`, "did you mean list?"}},
		{[]string{"config", "chekc"}, []string{`unknown verb "config chekc"`, "did you mean check?", "see dr config --help"}},
		{[]string{"qwertyuiop"}, []string{"see dr help"}},
		{[]string{"snapshot", "save"}, []string{"did you mean backup or restore or status"}},
		{[]string{"list", "--repos", "x"}, []string{"unknown flag: --repos", "did you mean --repo?", "see dr list --help"}},
		{[]string{"backup", "--endpoint", "x"}, []string{"did you mean --endpoints?"}},
		{[]string{"restore", "--qwertyuiop"}, []string{"see dr restore --help"}},
		{[]string{"restore", "-Z"}, []string{"unknown shorthand flag: 'Z' in -Z"}},
	} {
		out := dr(t, nil, test.args...)
		if out.code != exitUsage {
			t.Errorf("dr %s: exit code %d", strings.Join(test.args, " "), out.code)
		}
		for _, word := range test.says {
			if !strings.Contains(out.stderr, word) {
				t.Errorf("dr %s: want %q in\n%s", strings.Join(test.args, " "), word, out.stderr)
			}
		}
	}
}
