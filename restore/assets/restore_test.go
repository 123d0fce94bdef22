package assets_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	restored "github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// node is a node with a stored version of its assets.
type node struct {
	root    string
	bucket  storage.Bucket
	cluster *repository.Cluster
	keys    seal.Keys
	version assets.Manifest
}

func newNode(t *testing.T) node {
	t.Helper()
	n := node{root: t.TempDir(), bucket: mem.New()}
	n.cluster = stored.OpenCluster(t, n.bucket, "c")
	write(t, n.root, "etc/kubernetes/pki/ca.key", "key", 0o600)
	write(t, n.root, "etc/kubernetes/pki/ca.crt", "cert", 0o644)
	write(t, n.root, "etc/kubernetes/manifests/etcd.yaml", "pod", 0o600)
	write(t, n.root, "var/lib/kubelet/pki/kubelet.pem", "pem", 0o4640)
	must(t, os.Symlink("/var/lib/kubelet/pki/kubelet.pem", filepath.Join(n.root, "var/lib/kubelet/pki/current.pem")))
	must(t, os.Chmod(filepath.Join(n.root, "var/lib/kubelet"), 0o750))
	if os.Geteuid() == 0 {
		must(t, os.Lchown(filepath.Join(n.root, "etc/kubernetes/pki/ca.crt"), 65534, 7))
		must(t, os.Lchown(filepath.Join(n.root, "var/lib/kubelet/pki/current.pem"), 65534, 7))
	}
	var to seal.Recipients
	n.keys, to = stored.Pair(t)
	result, err := taken.Take(t.Context(), n.cluster, taken.Request{Node: "n", Root: n.root, To: to, Now: stored.Noon})
	must(t, err)
	n.version = result.Version
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, root, p, content string, mode uint32) {
	t.Helper()
	p = filepath.Join(root, p)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, []byte(content), 0o600))
	special := os.FileMode(mode & 0o777)
	if mode&0o4000 != 0 {
		special |= os.ModeSetuid
	}
	must(t, os.Chmod(p, special))
}

func (n node) request(root string) restored.Request {
	return restored.Request{Version: n.version, Keys: n.keys, Root: root, Stamp: "S"}
}

// differences returns how the files below root differ from the version.
func (n node) differences(t *testing.T, root string) (texts []string) {
	t.Helper()
	newest, _, err := n.cluster.Assets().Find(t.Context(), "n", "")
	must(t, err)
	if newest.ID != n.version.ID {
		t.Errorf("compared with %s", newest.ID)
	}
	compared, err := restored.Diff(t.Context(), n.cluster, newest, n.keys, root)
	must(t, err)
	for _, d := range compared.Differences {
		texts = append(texts, filepath.Base(d.Path)+" "+string(d.Changes[0]))
	}
	return texts
}

// content returns the paths below root with kind, mode and content of the files.
func content(t *testing.T, root string) map[string]string {
	t.Helper()
	c, err := taken.Collect(root, []string{"/etc", "/var"})
	must(t, err)
	all := map[string]string{}
	for _, f := range c.Files {
		all[f.Path] = string(f.Kind) + f.Mode.String() + f.Target + string(f.Content)
	}
	return all
}

func TestRestoreIntoEmptyRoot(t *testing.T) {
	n, root := newNode(t), t.TempDir()
	r := n.request(root)
	r.DryRun = true
	planned, err := restored.Restore(t.Context(), n.cluster, r)
	must(t, err)
	if len(content(t, root)) > 0 {
		t.Error("a dry run changed something")
	}
	r.DryRun = false
	done, err := restored.Restore(t.Context(), n.cluster, r)
	must(t, err)
	diff := cmp.Diff(planned.Plan, done.Plan)
	if diff != "" || len(done.Aside) > 0 {
		t.Errorf("the plan of the dry run differs; kept %q\n%s", done.Aside, diff)
	}
	diff = cmp.Diff(content(t, n.root), content(t, root))
	if diff != "" || len(n.differences(t, root)) > 0 {
		t.Errorf("%q\n%s", n.differences(t, root), diff)
	}
	last := done.Plan[len(done.Plan)-1]
	if last.Path != "/etc/kubernetes/manifests/etcd.yaml" {
		t.Errorf("the last file is %s: the kubelet starts the pod before its keys are there", last.Path)
	}
	again, err := restored.Restore(t.Context(), n.cluster, r)
	if err != nil || again.Plan.Count(restored.Keep) != len(again.Plan) {
		t.Errorf("repeated: %v, %+v", err, again.Plan)
	}
}

// TestStoppedControlPlaneStaysStopped restores the files of a node whose control plane a restore of etcd has stopped.
func TestStoppedControlPlaneStaysStopped(t *testing.T) {
	n, root := newNode(t), t.TempDir()
	write(t, root, "etc/kubernetes/etcd-dr-restore/etcd.yaml", "aside", 0o600)
	done, err := restored.Restore(t.Context(), n.cluster, n.request(root))
	must(t, err)
	_, err = os.Lstat(filepath.Join(root, "etc/kubernetes/manifests/etcd.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || done.Plan.Count(restored.Leave) != 1 {
		t.Errorf("the manifest: %v; %d were left out", err, done.Plan.Count(restored.Leave))
	}
	_, err = os.Lstat(filepath.Join(root, "etc/kubernetes/pki/ca.key"))
	must(t, err)
}

func TestRestoreOverOtherFiles(t *testing.T) {
	n, root := newNode(t), t.TempDir()
	write(t, root, "etc/kubernetes/pki/ca.key", "new key", 0o600)
	write(t, root, "etc/kubernetes/pki/added", "x", 0o600)
	write(t, root, "var/lib/kubelet/pki/current.pem", "a file", 0o600)
	write(t, root, "etc/kubernetes/manifests/etcd.yaml/x", "in a directory", 0o600)
	must(t, os.Chmod(filepath.Join(root, "etc/kubernetes/pki"), 0o700))
	before := content(t, root)
	_, err := restored.Restore(t.Context(), n.cluster, n.request(root))
	stored.WantError(t, "without replace", err, restored.ErrDiffers)
	diff := cmp.Diff(before, content(t, root))
	if diff != "" {
		t.Errorf("the refused restore changed something:\n%s", diff)
	}
	r := n.request(root)
	r.Replace = true
	result, err := restored.Restore(t.Context(), n.cluster, r)
	must(t, err)
	want := []string{"/etc/kubernetes/pki/.ca.key.dr-old-S", "/var/lib/kubelet/pki/.current.pem.dr-old-S", "/etc/kubernetes/manifests/.etcd.yaml.dr-old-S"}
	if !slices.Equal(result.Aside, want) {
		t.Errorf("kept %q", result.Aside)
	}
	for p, old := range map[string]string{want[0]: "new key", want[1]: "a file", want[2] + "/x": "in a directory"} {
		kept, err := os.ReadFile(filepath.Join(root, p))
		if err != nil || string(kept) != old {
			t.Errorf("%s: %q, %v", p, kept, err)
		}
	}
	if !slices.Equal(n.differences(t, root), []string{"added added"}) {
		t.Errorf("differences %q", n.differences(t, root))
	}
}

// TestRestoreAfterInterruption checks that the file of an interrupted restore is replaced.
func TestRestoreAfterInterruption(t *testing.T) {
	n, root := newNode(t), t.TempDir()
	write(t, root, "etc/kubernetes/pki/.ca.key.dr-new", "half", 0o600)
	_, err := restored.Restore(t.Context(), n.cluster, n.request(root))
	must(t, err)
	if len(n.differences(t, root)) > 0 {
		t.Errorf("differences %q", n.differences(t, root))
	}
	_, err = os.Lstat(filepath.Join(root, "etc/kubernetes/pki/.ca.key.dr-new"))
	if !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}

// TestRestoreThroughLink checks that nothing is written through a link on the node, in or out of the root.
func TestRestoreThroughLink(t *testing.T) {
	for _, target := range []string{"../outside", "inside", "/tmp"} {
		n, root := newNode(t), t.TempDir()
		must(t, os.Mkdir(filepath.Join(root, "inside"), 0o755))
		must(t, os.Symlink(target, filepath.Join(root, "etc")))
		r := n.request(root)
		r.Replace = true
		_, err := restored.Restore(t.Context(), n.cluster, r)
		stored.WantError(t, target, err, restored.ErrLeads)
		_, err = os.Lstat(filepath.Join(root, "var"))
		if !os.IsNotExist(err) {
			t.Errorf("%s: something was written: %v", target, err)
		}
	}
}

// TestRestoreDamaged checks that a version is refused before the first write.
func TestRestoreDamaged(t *testing.T) {
	n, root := newNode(t), t.TempDir()
	key := n.cluster.Assets().ArchiveKey(n.version)
	for name, how := range map[string]func([]byte) []byte{"flipped": stored.Flip(400, 1), "truncated": func(p []byte) []byte { return p[:len(p)/2] }} {
		good := stored.Get(t, n.bucket, key)
		stored.Change(t, n.bucket, key, how)
		_, err := restored.Restore(t.Context(), n.cluster, n.request(root))
		stored.WantError(t, name, err, catalog.ErrDamaged)
		stored.Put(t, n.bucket, key, good)
	}
	r := n.request(root)
	r.Keys, _ = stored.Pair(t)
	_, err := restored.Restore(t.Context(), n.cluster, r)
	stored.WantError(t, "wrong key", err, seal.ErrWrongKey)
	if len(content(t, root)) > 0 {
		t.Error("something was written")
	}
}

func TestPlan(t *testing.T) {
	file := func(p, content string) assets.File {
		return assets.File{Entry: assets.Entry{Path: p, Kind: assets.Regular, UID: 5, Size: int64(len(content))}, Content: []byte(content)}
	}
	dir := func(p string, mode assets.Mode) assets.File {
		return assets.File{Entry: assets.Entry{Path: p, Kind: assets.Directory, Mode: mode}}
	}
	version := []assets.File{dir("/o", 0o755), dir("/o/p", 0o755), file("/o/p/equal", "1"), file("/o/p/missing", "1"), file("/o/p/other", "1")}
	node := []assets.File{dir("/o", 0o700), dir("/o/p", 0o700), file("/o/p/equal", "1"), file("/o/p/other", "2")}
	for _, test := range []struct {
		replace bool
		want    string
	}{{false, "keep keep keep create replace"}, {true, "keep adjust keep create replace"}} {
		var acts []string
		plan := restored.NewPlan(version, node, []string{"/o/p"}, test.replace)
		for _, s := range plan {
			acts = append(acts, string(s.Act))
		}
		if strings.Join(acts, " ") != test.want {
			t.Errorf("replace %t: %q", test.replace, acts)
		}
		stored.WantError(t, "another user", plan.Refuse(true, 6), restored.ErrOwner)
		stored.WantError(t, "without replace", plan.Refuse(false, 0), restored.ErrDiffers)
		must(t, plan.Refuse(true, 0))
	}
}
