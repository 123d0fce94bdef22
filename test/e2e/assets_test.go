package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// controlPlane returns a directory with some files of a kubeadm node.
func controlPlane(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for p, content := range map[string]string{
		"etc/kubernetes/pki/ca.key": "private-key-of-the-ca", "etc/kubernetes/admin.conf": "kubeconfig", "srv/enc.yaml": "encryption-key",
		"etc/kubernetes/manifests/kube-apiserver.yaml": `{"spec": {"containers": [{"command": ["--encryption-provider-config=/enc/enc.yaml"],
			"volumeMounts": [{"name": "enc", "mountPath": "/enc"}]}], "volumes": [{"name": "enc", "hostPath": {"path": "/srv"}}]}}`,
	} {
		p = filepath.Join(root, p)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil {
			err = os.WriteFile(p, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestAssets loses the files of a control-plane node and restores them, on a directory and on a store that speaks S3.
func TestAssets(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an object store")
	}
	for name, find := range map[string]func(t *testing.T) place{
		"directory": func(t *testing.T) place { return place{url: "file://" + t.TempDir()} },
		"s3":        places["versitygw"],
	} {
		t.Run(name, func(t *testing.T) { testAssets(t, find(t)) })
	}
}

func testAssets(t *testing.T, p place) {
	key, root := filepath.Join(t.TempDir(), "key.txt"), controlPlane(t)
	recipient := strings.TrimSpace(command.Must(t, nil, "keygen", "--to", key))
	run := func(args ...string) command.Output {
		return command.Run(t, p.env, append([]string{"assets", args[0], "--repo", p.url, "--cluster", "prod"}, args[1:]...)...)
	}
	run("backup", "--root", root, "--node", "cp-1").Ended(t, 4, "--recipient")
	var stored, again document.AssetsBackup
	backup := []string{"backup", "--root", root, "--node", "cp-1", "--recipient", recipient, "--identity", key, "-o", "json"}
	run(backup...).Succeeded(t, &stored)
	run(backup...).Succeeded(t, &again)
	if !again.Unchanged || again.Version.ID != stored.Version.ID {
		t.Errorf("an equal version is stored again: %+v", again)
	}
	var list document.Assets
	run("list", "-o", "json").Succeeded(t, &list)
	if len(list.Versions) != 1 || list.Versions[0].ID != stored.Version.ID {
		t.Errorf("listed %+v", list)
	}

	empty := t.TempDir()
	run("restore", "--root", empty, "--node", "cp-2", "--identity", key).Ended(t, 3, "cp-1")
	run("restore", "--root", empty, "--node", "cp-1").Ended(t, 3, "--identity")
	run("restore", "--root", empty, "--node", "cp-1", "--identity", key).Ended(t, 0)
	var diff document.AssetsDiff
	run("diff", "--root", empty, "--node", "cp-1", "--identity", key, "-o", "json").Succeeded(t, &diff)
	if len(diff.Differences) > 0 {
		t.Errorf("after the restore: %+v", diff)
	}

	ca := filepath.Join(empty, "etc/kubernetes/pki/ca.key")
	err := os.WriteFile(ca, []byte("another-private-key"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	changed := run("diff", "--root", empty, "--node", "cp-1", "--identity", key)
	changed.Ended(t, 0)
	if !strings.Contains(changed.String(), "ca.key: content") || strings.Contains(changed.String(), "private-key") {
		t.Errorf("the change is not printed, or with the content:\n%s", changed)
	}
	run("restore", "--root", empty, "--node", "cp-1", "--identity", key).Ended(t, 4, "--replace")
	var restored document.AssetsRestore
	run("restore", "--root", empty, "--node", "cp-1", "--identity", key, "--replace", "-o", "json").Succeeded(t, &restored)
	content, err := os.ReadFile(ca)
	if err != nil || string(content) != "private-key-of-the-ca" || len(restored.Kept) != 1 {
		t.Errorf("%q, %v, kept %q", content, err, restored.Kept)
	}
	paths := []string{}
	for _, s := range restored.Steps {
		paths = append(paths, s.Path)
	}
	if !slices.Contains(paths, "/srv/enc.yaml") {
		t.Errorf("the encryption configuration is missing in %q", paths)
	}
}
