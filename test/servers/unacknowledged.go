package servers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// PutUnacknowledged sends n writes, of the keys PREFIX/00 and so on, to a leader whose followers do not answer, which can only write them to its own log, and waits
// until it has. It fails the test if one is acknowledged. A leader without followers stays one for --election-timeout.
func (c *Cluster) PutUnacknowledged(t testing.TB, leader int, prefix string, n int) {
	t.Helper()
	m := c.Members[leader]
	client := c.Client(t, At(m))
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	var wait sync.WaitGroup
	var keys []string
	for i := range n {
		key := fmt.Sprintf("%s/%02d", prefix, i)
		keys = append(keys, key)
		wait.Go(func() {
			_, err := client.Put(ctx, key, "x")
			if err == nil {
				t.Errorf("the write of %s was acknowledged", key)
			}
		})
	}
	missing := m.notLogged(t, keys)
	for len(missing) > 0 && ctx.Err() == nil {
		time.Sleep(pollInterval)
		missing = m.notLogged(t, keys)
	}
	cancel()
	wait.Wait()
	if len(missing) > 0 {
		t.Fatalf("after %v the log of %s does not contain %q", readyTimeout, m.Name, missing)
	}
}

// notLogged returns those of the keys that the member's log does not contain.
func (m *Member) notLogged(t testing.TB, keys []string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.DataDir, "member", "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	var log []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, data...)
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return bytes.Contains(log, []byte(key)) })
}
