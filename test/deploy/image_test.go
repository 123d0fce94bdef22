package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// instruction is one line of a Dockerfile, with those that continue it.
type instruction struct{ name, rest string }

// stages returns the instructions from each FROM on, without comments.
func stages(t *testing.T) (all [][]instruction) {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(readFile(t, "../../deploy/Dockerfile"), "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if name == "FROM" {
			all = append(all, nil)
		}
		if len(all) == 0 {
			t.Fatalf("%s stands before any FROM", name)
		}
		all[len(all)-1] = append(all[len(all)-1], instruction{name, strings.TrimSpace(rest)})
	}
	if len(all) != 2 {
		t.Fatalf("the Dockerfile has %d stages", len(all))
	}
	return all
}

// the returns the instructions of a name in a stage.
func the(name string, stage []instruction) (rest []string) {
	for _, i := range stage {
		if i.name == name {
			rest = append(rest, i.rest)
		}
	}
	return rest
}

// TestDockerfile checks that the image is from scratch, runs as an unprivileged user, and contains the one directory
// that the first stage has built.
func TestDockerfile(t *testing.T) {
	build, image := stages(t)[0], stages(t)[1]
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "../../go.mod"))[1]
	for want, got := range map[string][]string{
		"--platform=$BUILDPLATFORM golang:" + version + " AS build": the("FROM", build),
		"scratch":               the("FROM", image),
		"--from=build /image /": the("COPY", image),
		"65532:65532":           the("USER", image),
	} {
		if len(got) != 1 || got[0] != want {
			t.Errorf("the Dockerfile says %q, want %q", got, want)
		}
	}
	for _, i := range append(build, image...) {
		if i.name == "ADD" || strings.Contains(i.rest, "curl") || strings.Contains(i.rest, "wget") {
			t.Errorf("%s %s: what comes from elsewhere is checked by nobody", i.name, i.rest)
		}
	}
	for _, label := range []string{"title", "source", "licenses", "version"} {
		if !strings.Contains(strings.Join(the("LABEL", image), " "), "org.opencontainers.image."+label+"=") {
			t.Errorf("there is no label %s", label)
		}
	}
	if !testing.Short() {
		dr().knows(t, "Dockerfile", strings.Join(append(words(t, the("ENTRYPOINT", image)), words(t, the("CMD", image))...), " "))
	}
}

// words returns the words of an instruction in the form that needs no shell, which the image does not have.
func words(t *testing.T, lines []string) (words []string) {
	t.Helper()
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &words) != nil {
		t.Fatalf("%q is no list of words", lines)
	}
	return words
}

// imageOf does the work of the first stage with an existing binary, and returns the directory that is the whole image.
func imageOf(t *testing.T, binary string) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "image")
	for _, line := range the("RUN", stages(t)[0]) {
		line = strings.ReplaceAll(line, "/image", root)
		switch {
		case strings.Contains(line, "go mod download"):
		case strings.Contains(line, "deploy/build.sh"):
			to := filepath.Join(root, "usr/local/bin/dr")
			if !strings.Contains(line, " "+to+" ") {
				t.Fatalf("the binary is built elsewhere: %s", line)
			}
			output(t, "install", "-D", binary, to)
		default:
			output(t, "bash", "-euc", line)
		}
	}
	return root
}

// inImage runs dr as the image does: with nothing but its files, the kernel's /proc, and as its user.
func inImage(t *testing.T, root string, args ...string) string {
	t.Helper()
	const script = `mkdir -p "$1/proc" && mount -t proc proc "$1/proc" && exec env -i "$(type -P chroot)" --userspec=65532:65532 "$1" /usr/local/bin/dr "${@:2}"`
	return output(t, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", script, "bash", root}, args...)...)
}

// testImage runs dr in the image: version, config check, and demo with its children and scratch servers.
func testImage(t *testing.T, binary, version string) {
	if os.Geteuid() != 0 {
		unavailable(t, "only root may make a root directory of its own")
	}
	root := imageOf(t, binary)
	said := inImage(t, root, "version")
	if !strings.HasPrefix(said, "dr "+version+" ") {
		t.Errorf("it says that it is %s", said)
	}
	info, err := os.Stat(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || info.Size() < 10_000 {
		t.Errorf("certificates: %v, %v", info, err)
	}
	config := "clusters: {prod: {etcd: {endpoints: [http://10.0.0.1:2379]}, repositories: [main], schedule: {cron: '30 2 * * *', zone: Europe/Berlin}}}\n" +
		"repositories: {main: {url: file:///tmp/backups}}\n"
	err = os.WriteFile(filepath.Join(root, "tmp/dr.yaml"), []byte(config), 0o644)
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
