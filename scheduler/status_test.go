package scheduler_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
)

// A reader that reads a cluster's status only after each call of Changed misses nothing.
func TestChangedIsCalledAfterEachChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		changes := map[string]int{}
		c := configOf(specOf(t, "prod", "@daily", "main"))
		c.Faulty = map[string]string{"new": "dr.yaml:9: unknown key"}
		s := w.start("a", c, func(s *scheduler.Service) {
			s.Changed = func(cluster string) {
				mu.Lock()
				defer mu.Unlock()
				changes[cluster]++
			}
		})
		taken := func() int {
			mu.Lock()
			defer mu.Unlock()
			n := changes["prod"]
			changes["prod"] = 0
			return n
		}
		w.pass(time.Hour)
		got, err := s.StatusOf("prod")
		if err != nil || got.State != scheduler.Idle || taken() == 0 {
			t.Errorf("after the first backup: %+v, %v", got, err)
		}
		first := s.status(t, "prod").Last.ID
		w.pass(24 * time.Hour)
		got, err = s.StatusOf("prod")
		if err != nil || got.Last.ID == first || taken() == 0 {
			t.Errorf("after the second backup: %+v, %v", got, err)
		}
		got, err = s.StatusOf("new")
		if err != nil || got.State != scheduler.Failing || changes["new"] == 0 {
			t.Errorf("the faulty cluster: %+v, %v", got, err)
		}
		_, err = s.StatusOf("gone")
		if !errors.Is(err, scheduler.ErrUnknown) {
			t.Errorf("an unknown cluster: %v", err)
		}
	})
}
