package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// account is a user of a store with a bucket that no other user can open.
type account struct {
	url    string
	folder string // with the credentials
	secret string
}

func newAccount(t *testing.T, s *objectstores.S3Server) account {
	t.Helper()
	bucket := s.Bucket(t)
	user := s.As(t, bucket, objectstores.NoDelete)
	return account{s.URL(bucket, "p"), objectstores.Mount(t, user.Secret()), user.SecretKey}
}

// TestTwoAccounts uses two accounts of one store in one service and in one copy, restores with a third, and never finds
// usable credentials in its environment.
func TestTwoAccounts(t *testing.T) {
	withServers(t)
	etcd := servers.Start(t, servers.Options{})
	put(t, etcd.Client(t), "key", "value")
	store := objectstores.S3(t)
	main, offsite := newAccount(t, store), newAccount(t, store)
	azure := objectstores.Azure(t)
	vault := account{azure.URL(azure.Bucket(t), "p"), objectstores.Mount(t, azure.Secret()), azure.Key}
	config := command.Config(t, fmt.Sprintf(`
repositories:
  main: {url: %q, credentialsDir: %s}
  offsite: {url: %q, credentialsDir: %s}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main, offsite]
    require: all
    schedule: {cron: "@daily"}
`, main.url, main.folder, offsite.url, offsite.folder, etcd.Endpoints()[0]))
	env := append(objectstores.WrongEnv(), "DR_CLUSTER=prod")
	var said strings.Builder
	must := func(args ...string) string {
		out := command.Run(t, env, args...)
		out.Succeeded(t, nil)
		said.WriteString(out.Stdout + out.Stderr)
		return out.Stdout
	}

	s := command.Serve(t, env, config)
	s.Until(t, "both repositories have the backup", func(status document.ServeStatus) bool {
		return len(status.Clusters) == 1 && status.Clusters[0].Last != nil && status.Clusters[0].Counted(document.JobBackup, document.Succeeded) > 0
	})
	for _, a := range []account{main, offsite} {
		out := must("list", "--repo", a.url, "--credentials", a.folder, "-o", "json")
		if !strings.Contains(out, `"id"`) {
			t.Errorf("no backup in %s:\n%s", a.url, out)
		}
	}
	for folder, url := range map[string]string{main.folder: offsite.url, offsite.folder: main.url} {
		out := command.Run(t, env, "list", "--repo", url, "--credentials", folder)
		out.Ended(t, 1)
		said.WriteString(out.Stderr)
	}
	must("status", "--config", config, "-o", "json")
	must("check", "--repo", main.url, "--credentials", main.folder, "-o", "json")
	must("copy", "--from", offsite.url, "--from-credentials", offsite.folder, "--to", vault.url, "--to-credentials", vault.folder, "-o", "json")
	dir := filepath.Join(t.TempDir(), "restored")
	must("restore", "--repo", vault.url, "--credentials", vault.folder, "--output-dir", dir, "--old-is-dead", "-o", "json")
	_, err := os.Stat(dir)
	if err != nil {
		t.Error(err)
	}
	must("drill", "--repo", vault.url, "--credentials", vault.folder)
	must("backup", "--plain", "--endpoints", etcd.Endpoints()[0], "-o", "json", "--repo", main.url, "--repo", offsite.url,
		"--credentials", main.folder, "--credentials", offsite.folder)

	for _, path := range []string{"/", "/status", "/metrics", "/api/v1/clusters", "/api/v1/clusters/prod/backups?repository=offsite"} {
		said.WriteString(get(t, s, path))
	}
	plan := get(t, s, "/api/v1/clusters/prod/plan?repository=offsite")
	if !strings.Contains(plan, "--credentials "+offsite.folder) {
		t.Errorf("the command of the plan does not work here: %s", plan)
	}
	s.Stop(t)
	said.WriteString(s.Log())
	for _, a := range []account{main, offsite, vault} {
		if strings.Contains(said.String(), a.secret) {
			t.Errorf("a secret is shown:\n%s", said.String())
		}
	}
}

// TestRotatedCredentials replaces a mounted Secret while a service runs, and revokes the old credentials.
func TestRotatedCredentials(t *testing.T) {
	withServers(t)
	etcd := servers.Start(t, servers.Options{})
	store := objectstores.S3(t)
	bucket := store.Bucket(t)
	old := store.As(t, bucket, objectstores.NoDelete)
	folder := objectstores.Mount(t, old.Secret())
	config := command.Config(t, fmt.Sprintf(`
repositories:
  main: {url: %q, credentialsDir: %s}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main]
    schedule: {cron: "@every 1s"}
`, store.URL(bucket, "p"), folder, etcd.Endpoints()[0]))
	s := command.Serve(t, objectstores.WrongEnv(), config)
	succeeded := func(status document.ServeStatus) (n int64) {
		for _, c := range status.Clusters {
			n += c.Counted(document.JobBackup, document.Succeeded)
		}
		return n
	}
	twoMore := func(when string) {
		t.Helper()
		status, err := s.Status()
		if err != nil {
			t.Fatal(err)
		}
		want := succeeded(status) + 2
		s.Until(t, "two backups "+when, func(status document.ServeStatus) bool { return succeeded(status) >= want })
	}
	s.Until(t, "the first backup", func(status document.ServeStatus) bool { return succeeded(status) > 0 })
	renewed := store.As(t, bucket, objectstores.NoDelete) // the bucket's policy no longer names the old user
	out := command.Run(t, old.Env(), "list", "--repo", store.URL(bucket, "p"))
	if out.Code != 1 {
		t.Fatalf("the old credentials are valid: %s%s", out.Stdout, out.Stderr)
	}
	objectstores.Remount(t, folder, renewed.Secret())
	twoMore("with the new credentials")
	objectstores.Remount(t, folder, map[string]string{"AWS_ACCESS_KEY_ID": "half"})
	s.Until(t, "the folder is refused", func(status document.ServeStatus) bool {
		return strings.Contains(status.Config.Refused, "AWS_ACCESS_KEY_ID needs AWS_SECRET_ACCESS_KEY too")
	})
	twoMore("with the last valid credentials")
}

// get returns the body of a successful response.
func get(t *testing.T, s *command.Service, path string) string {
	t.Helper()
	code, body := s.Get(t, path)
	if code != http.StatusOK {
		t.Fatalf("%s: status code %d\n%s", path, code, body)
	}
	return body
}
