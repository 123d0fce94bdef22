package servers

import (
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// Versions are the minor versions of etcd that the product serves, oldest first.
var Versions = []string{"3.4", "3.5", "3.6", "3.7"}

// Some returns the versions for a test that takes long: the newest, and one of the older ones, which depends on the test's name. The soak
// has all.
func Some(t testing.TB) []string {
	t.Helper()
	if soak.On() {
		return Versions
	}
	last := len(Versions) - 1
	older := crc32.ChecksumIEEE([]byte(t.Name())) % uint32(last)
	return []string{Versions[older], Versions[last]}
}

// Tool returns the path of a program of one minor version: etcd, etcdctl or etcdutl (which 3.4 does not have). It skips
// a test whose tool has not been built; in CI it fails.
func Tool(t testing.TB, version, name string) string {
	t.Helper()
	if !slices.Contains(Versions, version) {
		t.Fatalf("there is no etcd %q here, only %s", version, strings.Join(Versions, ", "))
	}
	if version == "3.4" && name == "etcdutl" {
		t.Fatal("etcd 3.4 has no etcdutl; its etcdctl does that work")
	}
	return tools.Path(t, "etcd-"+version, name)
}
