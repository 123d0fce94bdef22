package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

// attempt is a write of its own key. It is never repeated: whether it was committed is known only if there was an
// answer.
type attempt struct {
	begun, answered time.Time
	revision        int64 // 0: there was no answer, so it may be there or not
}

// load is many clients that write at a steady rate, and remember their writes and the acknowledged ones.
type load struct {
	began    time.Time
	stop     context.CancelFunc
	group    sync.WaitGroup
	mu       sync.Mutex
	attempts map[string]attempt
	acked    int
}

// A load is 2,000 writes a second, if the machine is fast enough.
const (
	loadClients = 4
	loadWriters = 40
	loadPause   = time.Second / 2000 * loadWriters // of one writer, from write to write
	loadTimeout = time.Second
)

func newLoad(t testing.TB, c *servers.Cluster) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{began: time.Now(), stop: stop, attempts: map[string]attempt{}}
	for n := range loadClients {
		client := c.Client(t)
		for k := range loadWriters / loadClients {
			l.group.Go(func() { l.write(ctx, client, fmt.Sprintf("write/%d/%02d", n, k)) })
		}
	}
	t.Cleanup(func() { stop(); l.group.Wait() })
	return l
}

func (l *load) write(ctx context.Context, client *clientv3.Client, prefix string) {
	pace := time.NewTicker(loadPause)
	defer pace.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			l.put(ctx, client, fmt.Sprintf("%s/%08d", prefix, i))
		}
	}
}

func (l *load) put(ctx context.Context, client *clientv3.Client, key string) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	a := attempt{begun: time.Now()}
	l.note(key, a) // before it: it may be stored, and restored, before the answer is here
	answer, err := client.Put(ctx, key, valueOf(key))
	if err != nil {
		return
	}
	a.answered, a.revision = time.Now(), answer.Header.Revision
	l.note(key, a)
}

func (l *load) note(key string, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[key] = a
	if a.revision > 0 {
		l.acked++
	}
}

// valueOf returns a value that does not compress and differs for each key.
func valueOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// count returns the number of acknowledged writes.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// snapshot returns all attempts so far.
func (l *load) snapshot() map[string]attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.attempts)
}

// flows waits until some more writes were acknowledged: clients find a restarted member only after a while.
func (l *load) flows(t testing.TB) {
	t.Helper()
	const some = 200
	began := l.count()
	for end := time.Now().Add(hangs); l.count() < began+some; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d writes were acknowledged in %v", l.count()-began, hangs)
		}
	}
}

// end stops the clients, and logs the number of writes.
func (l *load) end(t testing.TB) {
	l.stop()
	l.group.Wait()
	pace := float64(l.acked) / time.Since(l.began).Seconds()
	t.Logf("%d writes were acknowledged, %.0f a second with all interruptions, and %d were not",
		l.acked, pace, len(l.attempts)-l.acked)
}
