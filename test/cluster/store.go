package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// Store is an S3 server that pods reach.
type Store struct {
	Endpoint             string
	AccessKey, SecretKey string
	cluster              *Cluster
	dir                  string
	program              string // its name
}

// StartStore starts versitygw in the control plane. It ends with the test.
func (c *Cluster) StartStore(t testing.TB) *Store {
	t.Helper()
	s := c.newStore(t, "7070")
	s.start(t, []string{"ROOT_ACCESS_KEY_ID=" + s.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + s.SecretKey},
		tools.Path(t, "stores", "versitygw", "versitygw"), "--port", s.address(), "--region", "us-east-1", "--health", "/health",
		"--access-log", filepath.Join(s.dir, "requests"), "posix", s.root(t))
	return s
}

// StartMinio starts MinIO in the control plane, with the same credentials as the other store. It ends with the test.
func (c *Cluster) StartMinio(t testing.TB) *Store {
	t.Helper()
	s := c.newStore(t, "7071")
	s.start(t, []string{"MINIO_ROOT_USER=" + s.AccessKey, "MINIO_ROOT_PASSWORD=" + s.SecretKey, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "HOME=" + s.dir},
		tools.Path(t, "stores", "minio", "minio"), "server", "--address", s.address(), "--quiet", "--anonymous", s.root(t))
	return s
}

func (c *Cluster) newStore(t testing.TB, port string) *Store {
	return &Store{
		Endpoint:  "http://" + controlPlane.String() + ":" + port,
		AccessKey: "owner", SecretKey: "owner-of-the-test-store", cluster: c, dir: t.TempDir(),
	}
}

func (s *Store) address() string { return strings.TrimPrefix(s.Endpoint, "http://") }

// start runs the server, and waits until it accepts connections.
func (s *Store) start(t testing.TB, env []string, command ...string) {
	t.Helper()
	s.program = filepath.Base(command[0])
	log := filepath.Join(s.dir, "log")
	running, err := process.Start(log, s.cluster.Command(env, command...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.End(syscall.SIGKILL) })
	for deadline := time.Now().Add(waitTimeout); !s.isReady(); time.Sleep(100 * time.Millisecond) {
		if !running.Running() || time.Now().After(deadline) {
			t.Fatalf("the store did not start:\n%s", process.Excerpt(log))
		}
	}
}

// Freeze makes the server accept connections and answer nothing, until Thaw.
func (s *Store) Freeze(t testing.TB) {
	t.Helper()
	s.cluster.runInside(t, "pkill", "-STOP", "-x", s.program)
}

// Thaw ends Freeze.
func (s *Store) Thaw(t testing.TB) {
	t.Helper()
	s.cluster.runInside(t, "pkill", "-CONT", "-x", s.program)
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
	return s.cluster.Command(nil, "bash", "-c", "exec 3<>/dev/tcp/"+strings.Replace(s.address(), ":", "/", 1)).Run() == nil
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
