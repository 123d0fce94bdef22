// Package history writes random histories to real servers, with every operation by which a client can change a database.
package history

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// Options select the operations of a history besides keys, leases and compactions.
type Options struct {
	// Auth adds users, roles, passwords and permissions, turns authentication on and off, and writes as users without
	// permission.
	Auth bool
	// Alarms raises and clears alarms.
	Alarms bool
	// Compacting, if not nil, is called before each compaction: afterwards older revisions are unreadable.
	Compacting func()
}

// Writer writes one history. It is for one goroutine.
type Writer struct {
	t       testing.TB
	cluster *servers.Cluster
	random  *rand.Rand
	options Options
	steps   []step
	total   int // of the steps' weights

	root      *clientv3.Client // logs in
	anonymous *clientv3.Client
	users     map[string]*clientv3.Client // logged in with the user's current password
	passwords map[string]string
	authOn    bool
	leases    []clientv3.LeaseID
	revision  int64
	counts    map[string]int
}

// step is one kind of operation and its relative frequency.
type step struct {
	name   string
	weight int
	do     func(context.Context) error
}

// New prepares a history that depends only on the seed, except for the servers' choices: lease ids, and the end of a
// lease.
func New(t testing.TB, cluster *servers.Cluster, seed uint64, o Options) *Writer {
	t.Helper()
	w := &Writer{
		t: t, cluster: cluster, random: rand.New(rand.NewPCG(seed, 1)), options: o,
		anonymous: cluster.Client(t, servers.As("", "")), users: map[string]*clientv3.Client{}, passwords: map[string]string{},
		counts: map[string]int{},
	}
	w.steps = append(w.keySteps(), w.leaseSteps()...)
	if o.Auth {
		w.steps = append(w.steps, w.authSteps()...)
	}
	if o.Alarms {
		w.steps = append(w.steps, step{"alarm", 2, w.alarm})
	}
	for _, s := range w.steps {
		w.total += s.weight
	}
	return w
}

// stepTimeout is far beyond the time of one step.
const stepTimeout = time.Minute

// Write executes n operations. Those that the servers refuse count too: they are part of the history.
func (w *Writer) Write(n int) {
	w.t.Helper()
	for range n {
		s := w.pick()
		ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
		err := s.do(ctx)
		cancel()
		if err != nil && !refused(err) {
			w.t.Fatalf("history, step %s: %v", s.name, err)
		}
		w.counts[s.name]++
		if err != nil {
			w.counts[s.name+" refused"]++
		}
	}
}

// Counts returns how often each step was executed, and refused.
func (w *Writer) Counts() string { return fmt.Sprint(w.counts) }

// Client returns a client with all rights, whether authentication is on or not.
func (w *Writer) Client() *clientv3.Client {
	if w.authOn {
		return w.root
	}
	return w.anonymous
}

// Snapshot saves the first member's database without the digest at its end, and returns its path. Its consistent index
// covers its whole content, but for members of 3.4: they save the index only with changes of keys and users, so that a snapshot may contain
// changes of leases and alarms after its index. Snapshot takes up to ten then, and returns the last one in any case.
func (w *Writer) Snapshot() string {
	w.t.Helper()
	client := w.cluster.Client(w.t, servers.At(w.cluster.Members[0]), w.login()) // a login is a request too
	for tries := 1; ; tries++ {
		path, settled := w.trySnapshot(client)
		if settled || tries == 10 {
			return path
		}
	}
}

func (w *Writer) trySnapshot(client *clientv3.Client) (path string, settled bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
	defer cancel()
	_, err := client.Put(ctx, "settled", "")
	if err != nil && !refused(err) {
		w.t.Fatalf("write before a snapshot: %v", err)
	}
	path = w.save(ctx, client)
	status, err := client.Status(ctx, w.cluster.Members[0].ClientURL)
	if err != nil {
		w.t.Fatalf("ask for the applied index: %v", err)
	}
	position, _, err := database.Place(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return path, w.cluster.Version != "3.4" || position == status.RaftAppliedIndex
}

func (w *Writer) save(ctx context.Context, client *clientv3.Client) string {
	w.t.Helper()
	stream, err := client.Snapshot(ctx)
	if err != nil {
		w.t.Fatalf("take a snapshot: %v", err)
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	if err != nil {
		w.t.Fatalf("take a snapshot: %v", err)
	}
	path := filepath.Join(w.t.TempDir(), "db")
	err = os.WriteFile(path, data[:len(data)-sha256.Size], 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *Writer) login() servers.ClientOption {
	if w.authOn {
		return servers.As(rootName, rootPassword)
	}
	return servers.As("", "")
}

// Image returns the key space directly after a revision, 0 for the newest.
func (w *Writer) Image(revision int64) database.Image {
	w.t.Helper()
	image, err := w.TryImage(revision)
	if err != nil {
		w.t.Fatalf("read the key space at revision %d: %v", revision, err)
	}
	return image
}

// TryImage is Image for a revision that may have been compacted.
func (w *Writer) TryImage(revision int64) (database.Image, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
	defer cancel()
	response, err := w.Client().Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
	if err != nil {
		return database.Image{}, err
	}
	if revision == 0 {
		revision = response.Header.Revision
	}
	return database.Image{Revision: revision, KVs: response.Kvs}, nil
}

func (w *Writer) pick() step {
	n := w.random.IntN(w.total)
	for _, s := range w.steps {
		n -= s.weight
		if n < 0 {
			return s
		}
	}
	panic("weights do not add up")
}

// refused reports whether err is anything but a failure to reach a server or to complete the call.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		return false
	}
	return true
}
