package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// testFirstBackup follows docs/kubernetes.md from nothing to a scheduled backup, and reads that backup with etcdutl.
func (s *site) testFirstBackup(t *testing.T) {
	s.startEtcd(t, "payments", "3.6")
	revision := s.put(t, "payments", "order", "1")
	s.urls.set("payments", s.store.Bucket(t, "payments"))
	page := s.readStart(t)
	s.follow(t, page, page.install+page.apply)

	backup := s.wantNamedBackup(t)
	if backup.Revision != revision {
		t.Errorf("the backup is of revision %d, want %d", backup.Revision, revision)
	}
	s.wantSnapshot(t, revision)
}

// testNewInstallation removes the operator and installs it anew: the same backup counts, and no second one is taken.
func (s *site) testNewInstallation(t *testing.T) {
	before := s.wantNamedBackup(t)
	s.Kubectl(t, "", "delete", "namespace", "etcd-dr", "--timeout", patience.String())
	s.patch(t, `{"status": null}`, "--subresource=status") // of the old operator
	page := s.readStart(t)
	s.follow(t, page, page.install)
	after := s.wantNamedBackup(t)
	if after.ID != before.ID {
		t.Errorf("the backup is %s, want %s", after.ID, before.ID)
	}
}

// wantNamedBackup waits until the status of payments names a backup, and checks that it is the only one.
func (s *site) wantNamedBackup(t *testing.T) document.Backup {
	t.Helper()
	var named string
	eventually(t, "the status names a backup", func() bool {
		named = s.Kubectl(t, "", "-n", "payments", "get", "edb", "etcd", "-o", "jsonpath={.status.last.id}")
		return named != ""
	})
	backups := s.backups(t, "payments")
	if len(backups) != 1 || string(backups[0].ID) != named {
		t.Fatalf("the store contains %+v, want only %s", backups, named)
	}
	return backups[0]
}

var block = regexp.MustCompile("(?s)```(?:sh|yaml)\n(.*?)```")

// blocksOf returns the commands and manifests in a section of a page, each a block that is fenced.
func blocksOf(page, section string) (all []string) {
	_, text, _ := strings.Cut(page, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, found := range block.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// exampleRecipient is the public key in the pages' examples.
const exampleRecipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// start is the section Start of docs/kubernetes.md, with the image, the bucket and the keys of this site in place of its examples.
type start struct {
	manifest       string // etcd-backup.yaml
	install, apply string // commands
}

func (s *site) readStart(t *testing.T) start {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(string(page), "Start")
	if len(blocks) != 2 {
		t.Fatalf("the section has %d code blocks, want a manifest and the commands", len(blocks))
	}
	own := s.replacer()
	install, apply, _ := strings.Cut(own.Replace(blocks[1]), "kubectl -n payments")
	return start{own.Replace(blocks[0]), install, "kubectl -n payments" + apply}
}

// replacer replaces the page's examples.
func (s *site) replacer() *strings.Replacer {
	return strings.NewReplacer(
		"registry.example.com/etcd-dr:v1.2.3", s.image, "s3://backups/etcd?region=eu-central-1", s.urls.of("payments"),
		"AWS_ACCESS_KEY_ID=…", "AWS_ACCESS_KEY_ID="+s.store.AccessKey, "AWS_SECRET_ACCESS_KEY=…", "AWS_SECRET_ACCESS_KEY="+s.store.SecretKey,
		exampleRecipient, s.recipient)
}

// follow runs commands of the page in a folder with the files that they name.
func (s *site) follow(t *testing.T, page start, commands string) {
	t.Helper()
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "etcd-backup.yaml"), []byte(page.manifest), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	err = os.Symlink(deploy, filepath.Join(dir, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	script := s.Command(nil, "bash", "-euxo", "pipefail", "-c", commands)
	script.Dir = dir
	out, err := script.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// wantSnapshot checks that etcdutl reads the newest backup of payments, at a revision.
func (s *site) wantSnapshot(t *testing.T, revision int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	fetch := s.Command(s.store.Env(), command.Path(), "fetch", "--repo", s.urls.of("payments"), "--cluster", "payments.etcd", "--identity", s.identity, "--to", file)
	out, err := fetch.CombinedOutput()
	if err != nil {
		t.Fatalf("dr fetch: %v\n%s", err, out)
	}
	status := s.Command(nil, tools.Path(t, "etcd-3.6", "etcdutl"), "snapshot", "status", file, "-w", "json")
	out, err = status.Output()
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Revision int64 }
	err = json.Unmarshal(out, &read)
	if err != nil || read.Revision != revision {
		t.Errorf("etcdutl reads revision %d (%v), want %d", read.Revision, err, revision)
	}
	fmt.Fprintln(t.Output(), string(out))
}
