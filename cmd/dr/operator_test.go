package main

import (
	"strings"
	"testing"
)

// TestOperatorRefusesFlags checks that settings with which no backup could run are refused, as those of dr.yaml are.
func TestOperatorRefusesFlags(t *testing.T) {
	for flag, words := range map[string]string{
		"--concurrency=0": "--concurrency must be at least 1",
		"--drills=0":      "--drills must be at least 1",
		"--lease=1ms":     "--lease must be from 1s to 10m0s",
		"--lease=1h":      "--lease must be from 1s to 10m0s",
	} {
		out := dr(t, nil, "operator", "--kubeconfig", "/none", flag)
		if out.code != exitUsage || !strings.Contains(out.stderr, words) {
			t.Errorf("%s: exit code %d, want %q in %s", flag, out.code, words, out.stderr)
		}
	}
}
