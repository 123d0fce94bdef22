// Package soak selects the tests that make soak runs, with ETCD_DR_SOAK.
package soak

import (
	"os"
	"testing"
)

// On reports whether the soak runs.
func On() bool { return os.Getenv("ETCD_DR_SOAK") != "" && !testing.Short() }

// Only skips the test unless the soak runs. The reason is why other runs leave it out.
func Only(t testing.TB, reason string) {
	t.Helper()
	if !On() {
		t.Skipf("%s: set ETCD_DR_SOAK", reason)
	}
}
