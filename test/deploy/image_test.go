package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// imageOf builds the image for this machine's architecture, and returns its root file system and its configuration.
func imageOf(t *testing.T) (root string, config imageConfig) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	output(t, "../../deploy/image.sh", filepath.Join(dir, "image.tar"), "etcd-dr", version, runtime.GOARCH)
	output(t, "tar", "--extract", "--directory", dir, "--file", filepath.Join(dir, "image.tar"))
	blob := func(digest string) string { return filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1)) }
	var index, list, manifest struct {
		Manifests []struct{ Digest string }
		Layers    []struct{ Digest string }
		Config    struct{ Digest string }
	}
	readJSON(t, filepath.Join(dir, "index.json"), &index)
	readJSON(t, blob(index.Manifests[0].Digest), &list)
	readJSON(t, blob(list.Manifests[0].Digest), &manifest)
	readJSON(t, blob(manifest.Config.Digest), &config)
	output(t, "mkdir", root)
	output(t, "tar", "--extract", "--gzip", "--preserve-permissions", "--directory", root, "--file", blob(manifest.Layers[0].Digest))
	return root, config
}

// imageConfig is the part of an image's configuration that decides how it runs (OCI image-spec, config.md).
type imageConfig struct {
	Architecture string
	Config       struct {
		User            string
		Entrypoint, Cmd []string
		Labels          map[string]string
	}
}

// wantConfig checks that the image runs as an unprivileged user, runs a command that dr knows, and describes itself.
func wantConfig(t *testing.T, got imageConfig) {
	t.Helper()
	if got.Architecture != runtime.GOARCH || got.Config.User != "65532:65532" {
		t.Errorf("the image is for %s and runs as %s", got.Architecture, got.Config.User)
	}
	for _, label := range []string{"title", "source", "licenses", "version"} {
		if got.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("there is no label %s", label)
		}
	}
	dr().knows(t, "the image", strings.Join(append(got.Config.Entrypoint, got.Config.Cmd...), " "))
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	err := json.Unmarshal([]byte(readFile(t, path)), into)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// inImage runs dr as the image does: with nothing but its files, the kernel's /proc, and as its user.
func inImage(t *testing.T, root string, args ...string) string {
	t.Helper()
	const script = `mkdir -p "$1/proc" && mount -t proc proc "$1/proc" && exec env -i "$(type -P chroot)" --userspec=65532:65532 "$1" /usr/local/bin/dr "${@:2}"`
	return output(t, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", script, "bash", root}, args...)...)
}

// testImage runs dr in the image: version, config check, and demo with its children and scratch servers.
func testImage(t *testing.T) {
	if os.Geteuid() != 0 {
		tools.Missing(t, "only root may make a root directory of its own")
	}
	root, config := imageOf(t)
	wantConfig(t, config)
	said := inImage(t, root, "version")
	if !strings.HasPrefix(said, "dr "+version+" ") {
		t.Errorf("it says that it is %s", said)
	}
	info, err := os.Stat(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || info.Size() < 10_000 {
		t.Errorf("certificates: %v, %v", info, err)
	}
	settings := "clusters: {prod: {etcd: {endpoints: [http://10.0.0.1:2379]}, repositories: [main], schedule: {cron: '30 2 * * *', zone: Europe/Berlin}}}\n" +
		"repositories: {main: {url: file:///tmp/backups}}\n"
	err = os.WriteFile(filepath.Join(root, "tmp/dr.yaml"), []byte(settings), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	said = inImage(t, root, "config", "check", "--config", "/tmp/dr.yaml")
	if !strings.Contains(said, "Europe/Berlin") {
		t.Errorf("it knows no zones: %s", said)
	}
	said = inImage(t, root, "demo")
	if !strings.Contains(said, "the same on all three") {
		t.Errorf("dr demo said\n%s", said)
	}
}
