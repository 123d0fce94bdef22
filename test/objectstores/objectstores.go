// Package objectstores starts real object stores on loopback for tests: versitygw and MinIO for S3, a fake of Google
// Cloud Storage, and Azurite for Azure. It also stands between them and a client: a Proxy cuts and slows connections,
// FailingTransport fails one request.
//
// A server is started for the first test that asks and is shared by all tests of the test binary; each test works in
// buckets of its own. Data is removed at the end by Main, which a package that uses the servers has to call. The
// kernel kills the servers when the test binary dies.
package objectstores

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/process"
)

// Rights are fewer than the owner's. What lacks is answered with 403.
type Rights string

// What a user may do with the objects of a bucket.
const (
	NoDelete Rights = "no-delete" // read, list and create; on GCS not overwrite, which is a deletion there
	ReadOnly Rights = "read-only" // read and list
	Nothing  Rights = "nothing"
)

// BucketOption is something that a bucket has from its beginning.
type BucketOption int

const (
	// Versioned keeps what is overwritten or deleted.
	Versioned BucketOption = iota + 1
	// Locks lets objects have a retention of their own: S3's object lock, which is versioned too, or GCS's object
	// retention.
	Locks
)

// shared is what the tests of this binary have in common. Its directory is there while Main runs.
var shared struct {
	mu      sync.Mutex
	dir     string
	running []*process.Process
}

// Main runs the tests, ends the servers that they started and removes the servers' data. It is for a TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(objectstores.Main(m)) }
func Main(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "dr-objectstores-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.dir = dir
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, p := range shared.running {
		if err := p.Kill(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Setenv gives the test what a server's Env returns. The test cannot be parallel then.
func Setenv(t *testing.T, env []string) {
	t.Helper()
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
}

// once holds a server that is started at most once.
type once[S any] struct {
	begin  sync.Once
	server S
	err    error
}

func (o *once[S]) get(t testing.TB, start func() (S, error)) S {
	t.Helper()
	o.begin.Do(func() { o.server, o.err = start() })
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.server
}

// needServers ends a test that must not or cannot start a server.
func needServers(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers do not run with -short")
	}
	if shared.dir == "" {
		t.Fatal("the package's TestMain has to call objectstores.Main")
	}
}
