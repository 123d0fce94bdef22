package storage_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

func TestLimitSlowsBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storage.WithLimit(mem.New(), storage.Limits{Up: rate.NewLimiter(10, 10), Down: rate.NewLimiter(20, 5)})
		start := time.Now()
		put(t, b, "key", strings.Repeat("x", 100)) // ten bytes are free, 90 cost nine seconds of the bubble's clock
		took := time.Since(start).Round(time.Millisecond)
		if took != 9*time.Second {
			t.Errorf("up: 100 bytes took %v, want 9s", took)
		}
		start = time.Now()
		p, err := read(t.Context(), b, storage.OpenOptions{Length: 45})
		if err != nil || len(p) != 45 {
			t.Errorf("down: %d bytes, %v", len(p), err)
		}
		took = time.Since(start).Round(time.Millisecond)
		if took != 2*time.Second {
			t.Errorf("down: 45 bytes took %v, want 2s", took)
		}
	})
}

func read(ctx context.Context, b storage.Bucket, o storage.OpenOptions) ([]byte, error) {
	r, _, err := b.Open(ctx, "key", o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestLimitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := mem.New()
		b := storage.WithLimit(below, storage.Limits{Up: rate.NewLimiter(1, 1)})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		_, err := b.Put(ctx, "key", strings.NewReader("far too much"), storage.PutOptions{})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v", err)
		}
		_, err = below.Stat(t.Context(), "key")
		if !errors.Is(err, storage.ErrNotExist) {
			t.Errorf("Stat: %v", err)
		}
	})
}

func TestLimitNone(t *testing.T) {
	for name, l := range map[string]storage.Limits{
		"nil": {}, "infinite": {Up: rate.NewLimiter(rate.Inf, 0), Down: rate.NewLimiter(rate.Inf, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			b := storage.WithLimit(mem.New(), l)
			put(t, b, "key", "content")
			p, err := read(t.Context(), b, storage.OpenOptions{})
			if err != nil || string(p) != "content" {
				t.Errorf("%q, %v", p, err)
			}
		})
	}
}

// TestLimitNothing checks that a limiter without a burst, which grants nothing, causes an error and does not hang.
func TestLimitNothing(t *testing.T) {
	b := storage.WithLimit(mem.New(), storage.Limits{Up: rate.NewLimiter(10, 0)})
	_, err := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{})
	if err == nil {
		t.Error("a byte has passed")
	}
}
