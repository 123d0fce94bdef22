package storagetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (s suite) sweep(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"pieces of a running Put": s.sweepRunning,
		"gone already":            s.sweepGone,
	})
}

// running starts a Put of key that hangs after some parts, and waits until its pieces are visible. finish cancels it.
func (s suite) running(t *testing.T, b storage.Bucket, sweeper storage.Sweeper, key string) (finish func()) {
	ctx, cancel := context.WithCancel(t.Context())
	src := newStuck(ctx, content(1, 3*s.o.PartSizes[len(s.o.PartSizes)-1]))
	var put sync.WaitGroup
	put.Go(func() {
		// It fails because it is cancelled or because its pieces were removed.
		_, err := b.Put(ctx, key, src, storage.PutOptions{})
		if err == nil {
			t.Error("a cancelled Put has succeeded")
		}
	})
	<-src.at
	// The parts before the hanging one may still be in flight.
	for tries := 0; len(pieces(t, sweeper, key)) == 0; tries++ {
		if tries == 1000 {
			t.Fatalf("no pieces of the running Put of %q", key)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() {
		cancel()
		put.Wait()
	}
}

func pieces(t *testing.T, sweeper storage.Sweeper, prefix string) []storage.Object {
	t.Helper()
	var all []storage.Object
	for piece, err := range sweeper.Leftovers(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("Leftovers(%q): %v", prefix, err)
		}
		if piece.Key == "" || piece.ModTime.IsZero() {
			t.Fatalf("a piece without key or time: %+v", piece)
		}
		all = append(all, piece)
	}
	return all
}

// sweepRunning checks that the pieces of a running Put are found by the prefix of their key, are no objects, and can be
// removed.
func (s suite) sweepRunning(t *testing.T, b storage.Bucket) {
	sweeper, ok := storage.AsSweeper(b)
	if !ok {
		return // a store without leftovers
	}
	finish := s.running(t, b, sweeper, "cluster10/a/key")
	defer finish()
	for _, prefix := range []string{"", "c", "cluster1", "cluster10/a/", "cluster10/a/k"} {
		if len(pieces(t, sweeper, prefix)) == 0 {
			t.Errorf("no pieces for prefix %q", prefix)
		}
	}
	for _, prefix := range []string{"cluster1/", "cluster10/b", "cluster10/a/kez", "key", "cluster10/a/key0"} {
		got := pieces(t, sweeper, prefix)
		if len(got) > 0 {
			t.Errorf("pieces %+v for prefix %q", got, prefix)
		}
	}
	wantAbsent(t, b, "cluster10/a/key")
	// A part in flight recreates its upload. There are three, so the loop ends.
	for tries := 0; ; tries++ {
		left := pieces(t, sweeper, "")
		if len(left) == 0 {
			return
		}
		if tries == 1000 {
			t.Fatalf("swept, and there again: %+v", left)
		}
		for _, piece := range left {
			err := sweeper.Sweep(t.Context(), piece)
			if err != nil {
				t.Fatalf("Sweep(%+v): %v", piece, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s suite) sweepGone(t *testing.T, b storage.Bucket) {
	sweeper, ok := storage.AsSweeper(b)
	if !ok {
		return
	}
	finish := s.running(t, b, sweeper, "a/key")
	all := pieces(t, sweeper, "a/")
	finish()
	for _, piece := range all {
		err := sweeper.Sweep(t.Context(), piece)
		if err != nil {
			t.Errorf("Sweep of a piece that is gone: %v", err)
		}
	}
	wantNoLeftovers(t, b)
	wantGoodPut(t, b)
}
