package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

// twoAccounts has a cluster in each of two accounts. DIR is the folder of its file.
const twoAccounts = `repositories:
  one: {url: "s3://one-bucket", credentialsDir: DIR/one}
  two: {url: "gs://two-bucket", credentialsDir: DIR/two}
clusters:
  a: {etcd: {endpoints: [http://127.0.0.1:2379]}, repositories: [one], schedule: {cron: "@daily"}}
  b: {etcd: {endpoints: [http://127.0.0.1:2379]}, repositories: [two], schedule: {cron: "@daily"}}
`

// accounts writes the folders of twoAccounts, with a secret for each.
func accounts(t *testing.T, dir string) {
	t.Helper()
	for folder, files := range map[string]map[string]string{
		"one": {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "Hunter2"}, "two": {"access-token": "Hunter2"},
	} {
		err := os.MkdirAll(filepath.Join(dir, folder), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			write(t, filepath.Join(dir, folder), name, content)
		}
	}
}

func TestCredentialsDir(t *testing.T) {
	dir := t.TempDir()
	accounts(t, dir)
	path := write(t, dir, "dr.yaml", strings.ReplaceAll(twoAccounts, "DIR", dir))
	c, err := config.Load(path, nothing)
	if err != nil || c.RefusedErr() != nil {
		t.Fatal(err, c.RefusedErr())
	}
	one, isAWS := c.Specs[0].Repositories[0].Credentials.AWS()
	two, isGCS := c.Specs[1].Repositories[0].Credentials.GCS()
	if !isAWS || one.SecretAccessKey != "Hunter2" || !isGCS || two.Token != "Hunter2" {
		t.Errorf("%+v, %+v", one, two)
	}
	for name, spoil := range map[string]func() error{
		"credentialsDir " + dir + "/one: bad credentials: one: no such file":           func() error { return os.RemoveAll(dir + "/one") },
		"bad credentials: AWS_ACCESS_KEY_ID needs AWS_SECRET_ACCESS_KEY too":           func() error { return os.Remove(dir + "/one/AWS_SECRET_ACCESS_KEY") },
		"bad credentials: AWS_ACCESS_KEY_ID is empty":                                  func() error { return os.Truncate(dir+"/one/AWS_ACCESS_KEY_ID", 0) },
		"bad credentials: these are for azblob:// and the repository is s3://: use th": func() error { return azure(dir + "/one") },
	} {
		err := spoil()
		if err != nil {
			t.Fatal(err)
		}
		broken, err := config.Load(path, nothing)
		if err != nil || len(broken.Specs) != 1 || broken.Specs[0].Cluster != "b" || broken.RefusedErr() == nil {
			t.Fatalf("%s: %+v, %v", name, broken, err)
		}
		text := broken.RefusedErr().Error()
		if !strings.Contains(text, "dr.yaml:5: repository one: ") || !strings.Contains(text, name) || strings.Contains(text, "Hunter2") {
			t.Errorf("refused: %s, want %s", text, name)
		}
		kept := broken.Keeping(c)
		if len(kept.Specs) != 2 || kept.Specs[0].Repositories[0].Credentials.None() {
			t.Errorf("%s: the last valid settings are lost: %+v", name, kept.Specs)
		}
		err = os.RemoveAll(dir + "/one")
		if err != nil {
			t.Fatal(err)
		}
		accounts(t, dir)
	}
}

// azure replaces the files in dir by those of another store.
func azure(dir string) error {
	err := os.RemoveAll(dir)
	if err != nil {
		return err
	}
	err = os.Mkdir(dir, 0o700)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "storage-key"), []byte("x"), 0o600)
}

// Renewed credentials are a change of the configuration.
func TestWatchCredentials(t *testing.T) {
	watched(t, minimal, func(t *testing.T, dir string, _ chan<- os.Signal, tells <-chan call) {
		accounts(t, dir)
		write(t, dir, "dr.yaml", strings.ReplaceAll(twoAccounts, "DIR", dir))
		before := <-tells
		if before.err != nil {
			t.Fatal(before.err)
		}
		quiet(t, "nothing has changed", tells)
		write(t, dir+"/one", "AWS_SECRET_ACCESS_KEY", "renewed-secret")
		got := <-tells
		if got.err != nil || got.c.Specs[0].Digest == before.c.Specs[0].Digest || got.c.Specs[1].Digest != before.c.Specs[1].Digest {
			t.Errorf("renewed: %+v", got)
		}
		write(t, dir+"/one", "AWS_SESSION_TOKEN", "added")
		got = <-tells
		if got.err != nil || got.c.Specs[0].Digest == before.c.Specs[0].Digest {
			t.Errorf("a file was added: %+v", got)
		}
	})
}

// kubelet renews all files of a mounted Secret by replacing one link.
func TestWatchMountedCredentials(t *testing.T) {
	watched(t, minimal, func(t *testing.T, dir string, _ chan<- os.Signal, tells <-chan call) {
		mount := func(version, secret string) {
			folder := filepath.Join(dir, "mounted")
			err := os.MkdirAll(filepath.Join(folder, version), 0o700)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, version), "access-token", secret)
			err = os.Symlink(version, folder+"/new")
			if err != nil {
				t.Fatal(err)
			}
			err = os.Rename(folder+"/new", folder+"/..data")
			if err != nil {
				t.Fatal(err)
			}
		}
		mount("..1", "first-")
		err := os.Symlink("..data/access-token", filepath.Join(dir, "mounted", "access-token"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "dr.yaml", strings.Replace(minimal, `"file:///srv/main"`, `"gs://a-bucket", credentialsDir: `+dir+"/mounted", 1))
		for _, secret := range []string{"first-", "second", "third-"} {
			if secret != "first-" {
				mount(".."+secret, secret)
			}
			got := <-tells
			if got.err != nil {
				t.Fatal(got.err)
			}
			c, _ := got.c.Specs[0].Repositories[0].Credentials.GCS()
			if c.Token != secret {
				t.Errorf("%q, want %q", c.Token, secret)
			}
		}
	})
}
