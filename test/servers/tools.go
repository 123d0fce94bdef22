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

// Some returns the version for a test that takes long, which depends on the test's name. The soak has all versions.
func Some(t testing.TB) []string {
	t.Helper()
	if soak.On() {
		return Versions
	}
	i := crc32.ChecksumIEEE([]byte(t.Name())) % uint32(len(Versions))
	return Versions[i : i+1]
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
