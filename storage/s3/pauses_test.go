package s3

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

func TestPauses(t *testing.T) {
	p := backoff{storage.RetryPolicy{Base: time.Second, Max: 5 * time.Second}}
	for attempt, seconds := range map[int]int{1: 1, 2: 2, 3: 4, 4: 5, 90: 5} {
		most := time.Duration(seconds) * time.Second
		for range 100 {
			d, err := p.BackoffDelay(attempt, nil)
			if err != nil || d < most/2 || d > most {
				t.Fatalf("before try %d: %v, %v, want up to %v", attempt+1, d, err, most)
			}
		}
	}
}
