package main

import (
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// TestVisible checks that visible escapes control characters.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                       "plain",
		"größer\tas\nit is":           "größer\tas\nit is",
		"ev\x1b]0;owned\x07\x1b[2Jil": `ev\x1b]0;owned\a\x1b[2Jil`,
		"a\rb":                        `a\rb`,
		"\u009b2J":                    `\u009b2J`,
		"abc\u202etxt":                `abc\u202etxt`,
	} {
		got := visible(text)
		if got != want {
			t.Errorf("visible(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestListShowsControlCharacters checks that a pin's reason is escaped: anyone who may write to the repository can choose it.
func TestListShowsControlCharacters(t *testing.T) {
	env, ids := filled(t, 1, sign.Key{})
	wantDone(t, dr(t, env, "pin", string(ids[0]), "--reason", "ev\x1b[2Jil"))
	for _, args := range [][]string{{"list"}, {"show", string(ids[0])}} {
		out := dr(t, env, args...)
		if strings.ContainsRune(out.stdout+out.stderr, '\x1b') {
			t.Errorf("dr %q prints an escape: %q", args, out.stdout)
		}
	}
}
