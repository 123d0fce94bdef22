package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// A data dir that is the root of a file system stays in its place, with lost+found and what else is in it. An undo needs no space there.
func TestReplaceInAMountPoint(t *testing.T) {
	if testing.Short() || !inOwnMounts(t) {
		return
	}
	source := servers.Start(t, servers.Options{})
	client := source.Client(t)
	put(t, client, "before")
	env := []string{"DR_REPO=file://" + t.TempDir(), "DR_CLUSTER=prod"}
	command.Must(t, env, "backup", "--plain", "--endpoints", source.Members[0].ClientURL)
	put(t, client, "after")
	source.Stop(t, 0)

	volume := newDisk(t, "1g")
	dir := string(volume)
	copied, err := exec.Command("cp", "-a", source.Members[0].DataDir+"/.", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("copy: %v\n%s", err, copied)
	}
	err = os.Mkdir(filepath.Join(dir, "lost+found"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	on := servers.Existing{Name: "m1", DataDir: dir, PeerURL: source.Members[0].PeerURL, ClientURL: source.Members[0].ClientURL}
	restored := command.Result[document.Replaced](t, env, "restore", "--replace", "--data-dir", dir)
	wantOnly(t, on, "before")
	volume.fill(t, 0)
	command.Must(t, env, restored.Replaced.Undo[1:]...)
	err = os.Remove(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	wantOnly(t, on, "after", "before")
	command.Must(t, env, restored.Replaced.Clean[1:]...)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "lost+found" || entries[1].Name() != "member" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// wantOnly boots a data dir, and checks that it has these keys and no others.
func wantOnly(t *testing.T, on servers.Existing, want ...string) {
	t.Helper()
	c := servers.Boot(t, servers.Options{}, on)
	defer c.Stop(t, 0)
	got, err := c.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	if strings.Join(keys, " ") != strings.Join(want, " ") {
		t.Errorf("keys %q, want %q", keys, want)
	}
}
