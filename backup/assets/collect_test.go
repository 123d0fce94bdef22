package assets_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// newRoot returns a directory with files, by their paths. "→" begins the target of a link.
func newRoot(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	for p, content := range files {
		write(tb, filepath.Join(root, p), content)
	}
	return root
}

func write(tb testing.TB, p, content string) {
	tb.Helper()
	err := os.MkdirAll(filepath.Dir(p), 0o755)
	target, isLink := strings.CutPrefix(content, "→")
	if err == nil && isLink {
		err = os.Symlink(target, p)
	} else if err == nil {
		err = os.WriteFile(p, []byte(content), 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func pathsOf(files []assets.File) (paths []string) {
	for _, f := range files {
		if f.Kind != assets.Directory {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

func TestCollectFollowsLinks(t *testing.T) {
	root := newRoot(t, map[string]string{
		"etc/k/pki/ca.key": "→/data/ca.key", "data/ca.key": "secret", "data/other": "not named",
		"var/lib/kubelet": "→../../disk/kubelet", "disk/kubelet/config.yaml": "x", "disk/kubelet/large": "not named",
		"etc/k/pki/dangling": "→nothing", "etc/k/a.conf": "a", "etc/k/b.conf": "b", "etc/k/c.txt": "not named",
		"etc/k/pki/.ca.key.dr-old-2026": "of a restore", "etc/k/pki/loop": "→../pki",
	})
	c, err := taken.Collect(root, []string{"/etc/k/pki", "/etc/k/*.conf", "/var/lib/kubelet/config.yaml", "/none", "/none/*"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/data/ca.key", "/disk/kubelet/config.yaml", "/etc/k/a.conf", "/etc/k/b.conf", "/etc/k/pki/ca.key", "/etc/k/pki/dangling",
		"/etc/k/pki/loop", "/var/lib/kubelet",
	}
	if !slices.Equal(pathsOf(c.Files), want) {
		t.Errorf("got %q, want %q", pathsOf(c.Files), want)
	}
	if !slices.Equal(c.Missing, []string{"/etc/k/pki/dangling", "/none"}) {
		t.Errorf("missing %q", c.Missing)
	}
	_, err = assets.Pack(c.Files)
	if err != nil {
		t.Error(err)
	}
}

func TestCollectRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  error
	}{
		"a loop":           {map[string]string{"p/a": "→b", "p/b": "→a"}, syscall.ELOOP},
		"too many bytes":   {map[string]string{"p/a": strings.Repeat("x", assets.MaxBytes/2+1), "p/b": strings.Repeat("x", assets.MaxBytes/2)}, taken.ErrBounds},
		"too many entries": {manyFiles(), taken.ErrBounds},
	} {
		_, err := taken.Collect(newRoot(t, test.files), []string{"/p"})
		stored.WantError(t, name, err, test.want)
	}
	_, err := taken.Collect(newRoot(t, map[string]string{"p/out": "→../../x"}), []string{"/p"})
	if err == nil {
		t.Error("a link out of the root is accepted")
	}
}

func manyFiles() map[string]string {
	files := map[string]string{}
	for i := range assets.MaxEntries + 1 {
		files["p/"+strings.Repeat("a", i%200+1)+strings.Repeat("b", i/200)] = ""
	}
	return files
}

func TestCollectSkipsPipes(t *testing.T) {
	root := newRoot(t, map[string]string{"p/a": "x"})
	err := syscall.Mkfifo(filepath.Join(root, "p/pipe"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c, err := taken.Collect(root, []string{"/p"})
	if err != nil || !slices.Equal(c.Skipped, []taken.Skipped{{Path: "/p/pipe", Reason: "pipe"}}) || len(pathsOf(c.Files)) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestCollectChanging reads a file of /proc, whose content never has the size that stat(2) reports.
func TestCollectChanging(t *testing.T) {
	_, err := os.Stat("/proc/self/status")
	if err != nil {
		t.Skip("there is no /proc")
	}
	_, err = taken.Collect("/proc", []string{"/sys/kernel/ostype"})
	stored.WantError(t, "a file that changes", err, taken.ErrChanging)
}

func TestCollectUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read every file")
	}
	root := newRoot(t, map[string]string{"p/a": "x"})
	err := os.Chmod(filepath.Join(root, "p/a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = taken.Collect(root, []string{"/p"})
	stored.WantError(t, "an unreadable file", err, os.ErrPermission)
}

const apiserver = `
spec:
  containers:
  - command:
    - kube-apiserver
    - --encryption-provider-config=/enc/enc.yaml
    - --audit-policy-file
    - /etc/kubernetes/audit/policy.yaml
    - --audit-log-path=/var/log/audit.log
    - --log-file=/var/log/x
    - --oidc-ca-file=/etc/ssl/ca.crt
    - --token-auth-file=relative
    volumeMounts:
    - {name: outer, mountPath: /etc/kubernetes}
    - {name: enc, mountPath: /enc/}
    - {name: inner, mountPath: /etc/kubernetes/audit}
    - {name: secret, mountPath: /etc/ssl}
  volumes:
  - {name: outer, hostPath: {path: /etc/kubernetes}}
  - {name: enc, hostPath: {path: /srv/enc}}
  - {name: inner, hostPath: {path: /srv/audit}}
  - {name: secret, secret: {secretName: x}}
`

func TestNamed(t *testing.T) {
	manifest := func(name, content string) assets.File {
		return assets.File{Entry: assets.Entry{Path: "/etc/kubernetes/manifests/" + name, Kind: assets.Regular}, Content: []byte(content)}
	}
	got := taken.Named([]assets.File{manifest("kube-apiserver.yaml", apiserver), manifest("x", "\t"), manifest("y", "[1]")})
	if !slices.Equal(got, []string{"/srv/audit/policy.yaml", "/srv/enc/enc.yaml"}) {
		t.Errorf("got %q", got)
	}
}

// TestTake checks that a version contains the encryption configuration, and that with a key an equal version is not stored again.
func TestTake(t *testing.T) {
	keys, to := stored.Pair(t)
	root := newRoot(t, map[string]string{
		"etc/kubernetes/pki/ca.key": "k", "etc/kubernetes/manifests/kube-apiserver.yaml": apiserver, "srv/enc/enc.yaml": "e", "extra": "x",
	})
	c := stored.OpenCluster(t, mem.New(), "c")
	r := taken.Request{Node: "n", Root: root, To: to, Now: stored.Noon}
	take := func(what string, unchanged bool) assets.Manifest {
		t.Helper()
		r.Now = r.Now.Add(time.Second) // the newest version is the latest by second
		result, err := taken.Take(t.Context(), c, r)
		if err != nil || result.Unchanged != unchanged {
			t.Fatalf("%s: unchanged %t: %v", what, result.Unchanged, err)
		}
		return result.Version
	}
	files, err := c.Assets().Fetch(t.Context(), take("first", false), keys)
	if err != nil || !slices.Contains(pathsOf(files), "/srv/enc/enc.yaml") {
		t.Errorf("%v: %q", err, pathsOf(files))
	}
	take("without a key", false)
	r.Keys = keys
	take("equal", true)
	r.Keys, _ = stored.Pair(t)
	take("with another key", false)
	r.Keys, r.Paths = keys, []string{"/extra"}
	take("another path", false)
	take("equal with the path", true)
	r.Paths = append(r.Paths, "/etc/kubernetes/pki/ca.key")
	take("another path, and the same files", false)
	write(t, filepath.Join(root, "etc/kubernetes/pki/ca.key"), "K")
	take("changed", false)
	write(t, filepath.Join(root, "etc/kubernetes/etcd-dr-restore/kube-apiserver.yaml"), "an old one, which is in use again")
	take("equal again", true)
	write(t, filepath.Join(root, "etc/kubernetes/etcd-dr-restore/etcd.yaml"), "stopped by a restore")
	_, err = taken.Take(t.Context(), c, r)
	if fault.KindOf(err) != fault.Busy {
		t.Errorf("of a control plane that a restore has stopped: %v", err)
	}
}

func TestTakeRefuses(t *testing.T) {
	_, to := stored.Pair(t)
	for name, test := range map[string]struct {
		change func(*taken.Request)
		want   error
	}{
		"no recipients": {func(r *taken.Request) { r.To = seal.Recipients{} }, assets.ErrNotEncrypted},
		"no file":       {func(*taken.Request) {}, taken.ErrNoFiles},
		"missing path":  {func(r *taken.Request) { r.Paths = []string{"/none"} }, taken.ErrNoFiles},
		"relative path": {func(r *taken.Request) { r.Paths = []string{"../x"} }, catalog.ErrName},
		"bad node":      {func(r *taken.Request) { r.Node = "../x" }, catalog.ErrName},
	} {
		b := mem.New()
		r := taken.Request{Node: "n", Root: t.TempDir(), To: to, Now: stored.Noon}
		test.change(&r)
		_, err := taken.Take(t.Context(), stored.OpenCluster(t, b, "c"), r)
		stored.WantError(t, name, err, test.want)
		stored.WantNothing(t, name, b)
	}
}

func TestCollectTheWholeRoot(t *testing.T) {
	c, err := taken.Collect(newRoot(t, map[string]string{"a": "x", "b/c": "x"}), []string{"/"})
	if err != nil || !slices.Equal(pathsOf(c.Files), []string{"/a", "/b/c"}) {
		t.Errorf("%v: %q", err, pathsOf(c.Files))
	}
}
