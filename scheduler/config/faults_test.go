package config_test

import (
	"strings"
	"testing"
	"time"
)

// A fault in a shared part refuses each cluster that uses the part, at the fault's line.
func TestFaultsInAliases(t *testing.T) {
	prod := "{etcd: {endpoints: [http://127.0.0.1:2379]}, repositories: [main], schedule: {cron: '@daily'}"
	head := "repositories:\n  main: {url: 'file:///srv/main'}\nclusters:\n  good: " + prod + "}\n"
	for _, test := range []struct{ name, clusters, refused, says string }{
		{"alias", "  a: &a " + prod + ", observe: x}\n  b: *a\n", "a b", "dr.yaml:5: use a form like 90s"},
		{"merge", "  a: &a " + prod + ", observ: 1m}\n  b: {<<: *a}\n", "a b", `dr.yaml:5: unknown key "observ"`},
		{"merge of a list", "  a: &a " + prod + ", labels: [x]}\n  b: {<<: [*a]}\n", "a b", "dr.yaml:5: expected a mapping, got a list"},
		{"list", "  b: [hunter2]\n", "b", "dr.yaml:5: expected a mapping, got a list"},
		{"key twice", "  b: {suspend: true, suspend: true}\n", "b", `dr.yaml:5: mapping key "suspend" already defined at line 5`},
		{"key that is a list", "  b: {? [x] : y}\n", "b", "dr.yaml:5: expected a string, got a list"},
		{"key that is nothing", "  b: {~: y}\n", "b", `dr.yaml:5: unknown key ""`},
		{"unknown tag", "  b: {nice: !x hunter2, suspend: !x hunter2}\n", "b", "dr.yaml:5: expected true or false, got a value of type !x"},
	} {
		c, err := load(t, head+test.clusters, nothing)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var refused []string
		for _, r := range c.Refused {
			refused = append(refused, r.Cluster)
		}
		if refused == nil {
			t.Fatalf("%s: refused nothing", test.name)
		}
		text := c.RefusedErr().Error()
		if strings.Join(refused, " ") != test.refused || !strings.Contains(text, test.says) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: refused %s: %s", test.name, refused, text)
		}
	}
}

// Cycles and floods of aliases are errors, not endless work.
func TestAliasesAreBounded(t *testing.T) {
	var flood strings.Builder
	flood.WriteString("defaults:\n  labels: &a0 {k: v}\nclusters:\n")
	for _, level := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		before := string(rune(level[0] - 1))
		flood.WriteString("  c" + level + ": {labels: &a" + level + " {<<: [" + strings.Repeat("*a"+before+", ", 9) + "*a" + before + "]}}\n")
	}
	for text, says := range map[string]string{
		"clusters:\n  a: {<<: x}\n":                          ":2: expected a mapping, got a string",
		"clusters: {a: &a {<<: *a}}":                         "contains itself",
		"clusters: {a: {labels: &a {<<: [*a]}}}":             "contains itself",
		"clusters: {a: &a {labels: {x: y, <<: [*a, *a]}}}":   "expected a string",
		"defaults: &d {etcd: *d, drill: *d}\nclusters: {}\n": "unknown key",
		flood.String(): "excessive aliasing",
	} {
		_, err := load(t, text, nothing)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// Recipients that a cluster merges replace the defaults' like its own.
func TestMergedRecipientsReplaceTheDefaults(t *testing.T) {
	text := "defaults: {recipientsFile: DIR/recipients.txt}\n" +
		strings.Replace(with("<<: {passphraseEnv: PASS}"), "[main]", "[main]\n    backup: {grace: 1h}", 1)
	c, err := load(t, text, func(string) string { return "p4ssphrase" })
	if err != nil {
		t.Fatal(err)
	}
	got := c.Specs[0].Backup
	if len(got.To.Seal().Recipients) != 1 || got.Grace != time.Hour {
		t.Errorf("sealed for %q, grace %s", got.To.Seal().Recipients, got.Grace)
	}
}
