package cluster

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const storePort = "7070"

// Store is an S3 server that pods reach.
type Store struct {
	Endpoint             string
	AccessKey, SecretKey string
	cluster              *Cluster
	dir                  string
}

// StartStore starts versitygw in the control plane. It ends with the test.
func (c *Cluster) StartStore(t testing.TB) *Store {
	t.Helper()
	address := controlPlane.String() + ":" + storePort
	s := &Store{Endpoint: "http://" + address, AccessKey: "owner", SecretKey: "owner-of-the-test-store", cluster: c, dir: t.TempDir()}
	log := filepath.Join(s.dir, "log")
	cmd := c.Command(
		[]string{"ROOT_ACCESS_KEY_ID=" + s.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + s.SecretKey},
		tools.Path(t, "stores", "versitygw", "versitygw"), "--port", address, "--region", "us-east-1", "--health", "/health",
		"--access-log", filepath.Join(s.dir, "requests"), "posix", s.root(t))
	running, err := process.Start(log, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.End(syscall.SIGKILL) })
	for deadline := time.Now().Add(waitTimeout); !s.isReady(); time.Sleep(100 * time.Millisecond) {
		if !running.Running() || time.Now().After(deadline) {
			t.Fatalf("versitygw did not start:\n%s", process.Excerpt(log))
		}
	}
	return s
}

func (s *Store) root(t testing.TB) string {
	t.Helper()
	root := filepath.Join(s.dir, "root")
	err := os.MkdirAll(root, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func (s *Store) isReady() bool {
	return s.cluster.Command(nil, "bash", "-c", "exec 3<>/dev/tcp/"+controlPlane.String()+"/"+storePort).Run() == nil
}

// Bucket creates a bucket, and returns the URL of a repository in it.
func (s *Store) Bucket(t testing.TB, name string) string {
	t.Helper()
	err := os.Mkdir(s.Folder(name), 0o700) // a folder is a bucket
	if err != nil {
		t.Fatal(err)
	}
	return "s3://" + name + "/etcd?region=us-east-1&path-style=true&endpoint=" + s.Endpoint
}

// Folder returns the folder with the objects of a bucket: a file each.
func (s *Store) Folder(bucket string) string { return filepath.Join(s.dir, "root", bucket) }

// Env returns the environment variables with which dr reaches the store, in the namespaces of the cluster.
func (s *Store) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}
