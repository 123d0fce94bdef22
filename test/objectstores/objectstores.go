// Package objectstores starts real object stores on loopback for tests: versitygw and MinIO for S3, a fake of Google
// Cloud Storage, and Azurite for Azure. It also breaks the connection between them and a client: a Proxy cuts and slows
// connections, and FailingTransport fails requests.
//
// The first test that needs a server starts it, and all tests of the test binary share it; each test works in its own
// buckets. Main removes the data at the end; a package that uses the servers has to call it. The kernel kills the
// servers when the test binary dies.
package objectstores

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/process"
)

// Rights are fewer than the owner's. A request without the right gets 403.
type Rights string

// The rights to the objects of a bucket.
const (
	NoDelete Rights = "no-delete" // read, list and create; on GCS not overwrite, which is a deletion there
	ReadOnly Rights = "read-only" // read and list
	Nothing  Rights = "nothing"
)

// BucketOption is a property that a bucket has from its creation.
type BucketOption int

const (
	// Versioned keeps overwritten and deleted objects.
	Versioned BucketOption = iota + 1
	// Locks allows objects to have a retention: S3's object lock, which includes versions, or GCS's object retention.
	Locks
)

// shared is the state of all tests of this binary. Its directory exists while Main runs.
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
		err := p.Kill()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	err = os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Setenv sets the variables that a server's Env returns. The test cannot be parallel then.
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
