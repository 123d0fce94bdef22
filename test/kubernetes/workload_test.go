package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// workload writes a key of an etcd ten times a second, and watches all keys, through the Service. Its client and its watcher continue by
// themselves when the members are back. It keeps a journal of the writes that etcd has confirmed.
type workload struct {
	client *clientv3.Client
	mu     sync.Mutex
	writes []write // confirmed, the oldest first
	failed int     // writes that etcd has not confirmed
	why    error   // of the last one that has failed
	seen   int64   // the newest revision that the watcher has seen
	lower  []int64 // revisions that the watcher saw although they are lower than one before
}

// write is one write. The values are consecutive numbers.
type write struct {
	revision int64
	key      string
	value    int
	at       time.Time // it was confirmed
}

const (
	writeEvery = 100 * time.Millisecond
	written    = "order-" // prefix of the keys
)

// startWorkload begins a workload, which ends with the test, and waits until it has written for a while.
func (s *site) startWorkload(t *testing.T, namespace string, options ...grpc.DialOption) *workload {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://etcd." + namespace + ".svc.cluster.local:2379"}, Logger: zap.NewNop(),
		DialOptions: append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.Dial(ctx, "tcp", address)
		})),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{client: client}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.write(ctx) })
	running.Go(func() { w.watch(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = client.Close()
		if t.Failed() {
			t.Logf("%d writes have failed, the last one: %v", w.failed, w.why)
		}
	})
	w.waitFor(t, 50)
	return w
}

// write writes until ctx ends.
func (w *workload) write(ctx context.Context) {
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for value := 0; ctx.Err() == nil; value++ {
		one := write{key: fmt.Sprintf("%s%03d", written, value%37), value: value}
		err := w.put(ctx, &one)
		w.mu.Lock()
		if err == nil {
			w.writes = append(w.writes, one)
		} else {
			w.failed++
			w.why = err
		}
		w.mu.Unlock()
		<-ticker.C
	}
}

func (w *workload) put(ctx context.Context, one *write) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := w.client.Put(ctx, one.key, strconv.Itoa(one.value))
	if err != nil {
		return err
	}
	one.revision, one.at = answer.Header.Revision, time.Now()
	return nil
}

// watch watches until ctx ends. A watcher whose next revision is compacted, which a restore does, begins again after that.
func (w *workload) watch(ctx context.Context) {
	from := int64(0)
	for ctx.Err() == nil {
		for answer := range w.client.Watch(ctx, written, clientv3.WithPrefix(), clientv3.WithRev(from)) {
			for _, e := range answer.Events {
				w.see(e.Kv.ModRevision)
				from = e.Kv.ModRevision + 1
			}
			if errors.Is(answer.Err(), rpctypes.ErrCompacted) {
				from = answer.CompactRevision
			}
		}
	}
}

func (w *workload) see(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision < w.seen {
		w.lower = append(w.lower, revision)
	}
	w.seen = max(w.seen, revision)
}

// journal returns the confirmed writes.
func (w *workload) journal() []write {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

// last returns the last confirmed write.
func (w *workload) last() write {
	all := w.journal()
	return all[len(all)-1]
}

// longestPause returns the longest time between two confirmed writes.
func (w *workload) longestPause() (longest time.Duration) {
	all := w.journal()
	for i := range all[1:] {
		longest = max(longest, all[i+1].at.Sub(all[i].at))
	}
	return longest
}

// waitFor waits until etcd has confirmed more writes.
func (w *workload) waitFor(t *testing.T, more int) {
	t.Helper()
	before := len(w.journal())
	eventually(t, fmt.Sprintf("%d more writes", more), func() bool { return len(w.journal()) >= before+more })
}

// wantContinued waits until the client has written and the watcher has seen that. It fails the test if the watcher saw a lower revision.
func (w *workload) wantContinued(t *testing.T) {
	t.Helper()
	w.waitFor(t, 10)
	newest := w.last().revision
	eventually(t, "the watcher has seen that", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seen >= newest
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lower) > 0 {
		t.Errorf("the watcher has seen the revisions %v after higher ones", w.lower)
	}
}

// wantState fails the test unless keys with their values are those after a write of the journal. It returns that write.
func (w *workload) wantState(t *testing.T, keys map[string]string) (last write) {
	t.Helper()
	newest := -1
	for _, value := range keys {
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		newest = max(newest, n)
	}
	want := map[string]string{}
	for _, one := range w.journal() {
		if one.value <= newest {
			want[one.key] = strconv.Itoa(one.value)
			last = one
		}
	}
	if !maps.Equal(keys, want) {
		t.Errorf("the keys are %v, want those after write %d: %v", keys, newest, want)
	}
	return last
}
