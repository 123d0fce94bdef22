package scheduler_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
)

func token(t *testing.T, text string) credentials.Credentials {
	t.Helper()
	c, err := credentials.Parse(map[string][]byte{"access-token": []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestServiceOpensEachAccount checks that clusters share a bucket only with equal credentials and an equal CA, and that renewed ones are used.
func TestServiceOpensEachAccount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var opened []string
		withAccount := func(cluster, account string) spec.Spec {
			s := specOf(t, cluster, "@daily", "main")
			name, ca, _ := strings.Cut(account, " of ")
			s.Repositories[0].Credentials, s.Repositories[0].CA, s.Digest = token(t, name), []byte(ca), cluster+account
			return s
		}
		s := w.start("a", configOf(withAccount("a", "one"), withAccount("b", "one"), withAccount("c", "two"), withAccount("d", "two of ca")), func(s *scheduler.Service) {
			s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
				mu.Lock()
				defer mu.Unlock()
				given, _ := r.Credentials.GCS()
				opened = append(opened, strings.TrimSpace(given.Token+" "+string(r.CA)))
				return w.open(ctx, r)
			}
		})
		wantOpened := func(want ...string) {
			t.Helper()
			w.pass(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(opened)
			if !slices.Equal(opened, want) {
				t.Errorf("opened %q, want %q", opened, want)
			}
			opened = nil
		}
		store := func() {
			t.Helper()
			_, _, err := s.OpenRepository(t.Context(), "a", "")
			if err != nil {
				t.Fatal(err)
			}
		}
		wantOpened("one", "two", "two ca")
		s.changes <- configOf(withAccount("a", "renewed"), withAccount("b", "one"), withAccount("c", "two"))
		w.pass(time.Minute)
		store()
		wantOpened("renewed")
		s.changes <- configOf(withAccount("a", "one"), withAccount("b", "two"), withAccount("c", "two"))
		w.pass(time.Minute)
		store()
		wantOpened()
		s.changes <- configOf(withAccount("a", "renewed"), withAccount("b", "two"), withAccount("c", "two"))
		w.pass(time.Minute)
		store()
		wantOpened("renewed") // the service has forgotten the bucket that no cluster used
	})
}
