package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// place is a bucket of an object store, and the environment with its credentials.
type place struct {
	url string
	env []string
}

// places has one of each store.
var places = map[string]func(t *testing.T) place{
	"versitygw": func(t *testing.T) place {
		s := objectstores.S3(t)
		return place{s.URL(s.Bucket(t), "some/prefix"), s.Env()}
	},
	"minio": func(t *testing.T) place {
		s := objectstores.Minio(t)
		return place{s.URL(s.Bucket(t), "some/prefix"), s.Env()}
	},
	"gcs": func(t *testing.T) place {
		s := objectstores.GCS(t)
		return place{s.URL(s.Bucket(t), "some/prefix"), s.Env(t)}
	},
	"azure": func(t *testing.T) place {
		s := objectstores.Azure(t)
		return place{s.URL(s.Bucket(t), "some/prefix"), s.Env()}
	},
}

// TestDemoOnEveryStore runs the demo, which is the main job: backups, an agent with its log, two disasters, two
// restores, everything compared.
func TestDemoOnEveryStore(t *testing.T) {
	withServers(t)
	for name, find := range places {
		t.Run(name, func(t *testing.T) {
			p := find(t)
			out := command.Must(t, p.env, "demo", "--repo", p.url)
			if !strings.Contains(out, "Proven in") {
				t.Errorf("the demo ends without a proof:\n%s", out)
			}
			command.Run(t, p.env, "list", "--repo", p.url).Ended(t, 3, "is empty")
		})
	}
}

// TestStoreErrorsSayTheCure checks that a store's error is one line with the remedy, and exit code 1.
func TestStoreErrorsSayTheCure(t *testing.T) {
	withServers(t)
	type attempt struct {
		place
		verb []string
		says []string
	}
	backup := []string{"backup", "--endpoints", servers.Start(t, servers.Options{Version: "3.7", Members: 1}).Endpoints()[0]}
	list := []string{"list"}
	s, g, z := objectstores.S3(t), objectstores.GCS(t), objectstores.Azure(t)
	bucket, container, pail := s.Bucket(t), z.Bucket(t), g.Bucket(t)
	wrong, noCA, otherKey, elsewhere := *s, *s, *z, *s
	wrong.SecretKey, noCA.CAFile, otherKey.Key = "wrong-wrong-wrong", "", "d3Jvbmcgd3Jvbmcgd3Jvbmc="
	elsewhere.Region = "eu-nowhere-9"
	expired := objectstores.S3Expired(t)
	readOnly, readOnlySAS, readOnlyToken := s.As(t, bucket, objectstores.ReadOnly), z.As(t, container, objectstores.ReadOnly), g.As(objectstores.ReadOnly)
	for name, a := range map[string]attempt{
		"s3, wrong secret":        {place{s.URL(bucket, "p"), wrong.Env()}, list, []string{"AWS_"}},
		"s3, no bucket":           {place{s.URL("no-such-bucket", "p"), s.Env()}, list, []string{"bucket does not exist", "no-such-bucket"}},
		"s3, no bucket, backup":   {place{s.URL("no-such-bucket", "p"), s.Env()}, backup, []string{"bucket does not exist"}},
		"s3, may not write":       {place{s.URL(bucket, "p"), readOnly.Env()}, backup, []string{"s3:PutObject"}},
		"s3, wrong region":        {place{elsewhere.URL(bucket, "p"), elsewhere.Env()}, list, []string{"region"}},
		"s3, unknown authority":   {place{noCA.URL(bucket, "p"), noCA.Env()}, list, []string{"ca="}},
		"s3, expired certificate": {place{expired.URL(bucket, "p"), s.Env()}, list, []string{"expired"}},
		"azure, wrong key":        {place{z.URL(container, "p"), otherKey.Env()}, list, []string{"AZURE_"}},
		"azure, no container":     {place{z.URL("no-such-container", "p"), z.Env()}, list, []string{"bucket does not exist", "no-such-container"}},
		"azure, may not write":    {place{z.URL(container, "p"), readOnlySAS.Env()}, backup, []string{"write"}},
		"gcs, no bucket":          {place{g.URL("no-such-bucket", "p"), g.Env(t)}, list, []string{"bucket does not exist", "no-such-bucket"}},
		"gcs, may not write":      {place{g.URL(pail, "p"), readOnlyToken.Env(t)}, backup, []string{"storage.objects.create"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := command.Run(t, a.env, append(slices.Clone(a.verb), "--repo", a.url, "--cluster", "prod")...)
			if out.Code != 1 {
				t.Errorf("exit code %d, want 1", out.Code)
			}
			last := lastLine(out.Stderr)
			for _, word := range a.says {
				if !strings.Contains(last, word) {
					t.Errorf("the error says nothing of %q: %s", word, last)
				}
			}
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestAttackerOnALockedBucket plays an attacker with the right to write, who deletes every object of a locked,
// versioned bucket and stores a newer backup of their own. The store as of before has everything, and with --trust the
// forged one does not count.
func TestAttackerOnALockedBucket(t *testing.T) {
	withServers(t)
	etcd := servers.Start(t, servers.Options{Version: "3.7", Members: 1})
	client := etcd.Client(t)
	put(t, client, "before", "the attack")
	store := objectstores.Minio(t)
	bucket := store.Bucket(t, objectstores.Versioned, objectstores.Locks)
	key := filepath.Join(t.TempDir(), "sign.key")
	public := strings.TrimSpace(command.Must(t, nil, "keygen", "--signing", "--to", key))
	env := append(store.Env(), "DR_REPO="+store.URL(bucket, "p"), "DR_CLUSTER=prod")
	reach := []string{"--endpoints", etcd.Endpoints()[0]}

	mine := command.Result[document.Backup](t, env, append([]string{"backup", "--sign-key", key, "--lock", "1h"}, reach...)...)
	before := time.Now().UTC()
	time.Sleep(1100 * time.Millisecond) // the store's times have whole seconds
	refuseToForget(t, store.Client(t), bucket)
	put(t, client, "forged", "by the attacker")
	forged := command.Result[document.Backup](t, env, append([]string{"backup"}, reach...)...)

	asOf := []string{"--as-of", before.Format(time.RFC3339Nano)}
	out := command.Must(t, env, append([]string{"list"}, asOf...)...)
	if !strings.Contains(out, string(mine.ID)) || strings.Contains(out, string(forged.ID)) {
		t.Errorf("as of before the attack:\n%s", out)
	}
	now := command.Run(t, env, "list", "--trust", public)
	if now.Code != 3 || strings.Contains(now.Stdout, string(mine.ID)) || !strings.Contains(now.Stdout, "NOT TRUSTED") {
		t.Errorf("list --trust: exit code %d\n%s%s", now.Code, now.Stdout, now.Stderr)
	}
	command.Run(t, env, "restore", "--trust", public, "--output-dir", t.TempDir()+"/x", "--old-is-dead").Ended(t, 3)
	j := job{env: env}
	booted, r := restored(t, j, servers.Options{Version: "3.7"}, append([]string{"--trust", public}, asOf...)...)
	if r.Revision != mine.Revision {
		t.Errorf("revision %d is restored, want %d", r.Revision, mine.Revision)
	}
	got, err := booted.Client(t).Get(t.Context(), "before")
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("the key is not there: %v", err)
	}
}

// refuseToForget deletes every key, which leaves delete markers, and fails to delete the versions.
func refuseToForget(t *testing.T, client *s3.Client, bucket string) {
	t.Helper()
	versions, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions.Versions {
		_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId})
		if err == nil {
			t.Errorf("version %s of %s is deleted in spite of its lock", aws.ToString(v.VersionId), aws.ToString(v.Key))
		}
		_, err = client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: v.Key})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(versions.Versions) < 2 {
		t.Fatal(fmt.Errorf("%d objects are there, want a backup's", len(versions.Versions)))
	}
}

// TestRestoreThroughCuts checks that a download that is cut continues where it broke: no connection here lives longer
// than 3 MB, so that a download that starts over would never end.
func TestRestoreThroughCuts(t *testing.T) {
	withServers(t)
	etcd := servers.Start(t, servers.Options{Version: "3.7", Members: 1})
	servers.Fill(t, etcd.Client(t), 1, servers.FillOptions{Keys: 4000, ValueSize: 8000})
	store := objectstores.S3(t)
	bucket := store.Bucket(t)
	proxy := objectstores.NewProxy(t, store.Endpoint)
	j := newJob(t)
	env := append(store.Env(), "DR_CLUSTER=prod", "DR_RECIPIENT="+j.to, "DR_IDENTITY="+j.key)
	taken := command.Result[document.Backup](t, append(env, "DR_REPO="+store.URL(bucket, "")), "backup", "--endpoints", etcd.Endpoints()[0])

	proxy.CutAfter(3_000_000, objectstores.ToClient)
	j.env = append(env, "DR_REPO="+store.Through(proxy).URL(bucket, ""))
	booted, r := restored(t, j, servers.Options{Version: "3.7"})
	if r.Revision != taken.Revision {
		t.Errorf("revision %d is restored, want %d", r.Revision, taken.Revision)
	}
	checkSame(t, etcd, booted, taken.Revision)
}
