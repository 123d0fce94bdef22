package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (s suite) put(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"replaces":                     putReplaces,
		"if absent":                    putIfAbsent,
		"if absent reads nothing":      putIfAbsentReadsNothing,
		"leaves the source open":       putLeavesOpen,
		"reports the same as the rest": putReportsObject,
	})
	s.putSizes(t)
	s.putReaders(t)
}

func (s suite) putSizes(t *testing.T) {
	sizes := []int{0, 1, 1000}
	for _, part := range s.o.PartSizes {
		sizes = append(sizes, part-1, part, part+1, 2*part)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("size=%d", n), func(t *testing.T) {
			b := s.open(t)
			p := content(1, n)
			wantSame(t, b, put(t, b, "a/b/c", p), p)
			wantNoLeftovers(t, b)
		})
	}
}

func (s suite) putReaders(t *testing.T) {
	part := s.o.PartSizes[0]
	readers := []struct {
		name string
		size int
		make func(io.Reader) io.Reader
	}{
		{"one byte a read", 3000, iotest.OneByteReader},
		{"half reads", part + 1, iotest.HalfReader},
		{"end with the last bytes", part, iotest.DataErrReader},
		{"end with the last bytes of a short part", part + 1, iotest.DataErrReader},
		{"reads of nothing", part + 1, func(r io.Reader) io.Reader { return &idle{r: r} }},
	}
	for _, c := range readers {
		t.Run(c.name, func(t *testing.T) {
			b := s.open(t)
			p := content(1, c.size)
			obj, err := b.Put(t.Context(), "key", c.make(bytes.NewReader(p)), storage.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, b, obj, p)
		})
	}
}

func putReplaces(t *testing.T, b storage.Bucket) {
	old := put(t, b, "key", content(1, 500))
	obj := put(t, b, "key", content(2, 100))
	wantSame(t, b, obj, content(2, 100))
	if old.Version == obj.Version {
		t.Errorf("two contents have the version %q", obj.Version)
	}
}

func putIfAbsent(t *testing.T, b storage.Bucket) {
	o := storage.PutOptions{IfAbsent: true}
	obj, err := b.Put(t.Context(), "key", bytes.NewReader(content(1, 100)), o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), "key", bytes.NewReader(content(2, 100)), o)
	wantError(t, "Put of a taken key", err, storage.ErrExist)
	wantSame(t, b, obj, content(1, 100))
	wantNoLeftovers(t, b)
	remove(t, b, "key", storage.DeleteOptions{})
	_, err = b.Put(t.Context(), "key", bytes.NewReader(nil), o)
	if err != nil {
		t.Fatalf("Put after Delete: %v", err)
	}
}

// putIfAbsentReadsNothing checks that Put does not read a source that it cannot store, such as the stream of a busy
// member.
func putIfAbsentReadsNothing(t *testing.T, b storage.Bucket) {
	put(t, b, "key", nil)
	src := &owned{r: bytes.NewReader(content(1, 100))}
	_, err := b.Put(t.Context(), "key", src, storage.PutOptions{IfAbsent: true})
	wantError(t, "Put of a taken key", err, storage.ErrExist)
	if src.reads > 0 {
		t.Errorf("the source was read %d times", src.reads)
	}
}

func putLeavesOpen(t *testing.T, b storage.Bucket) {
	src := &owned{r: bytes.NewReader(content(1, 100))}
	_, err := b.Put(t.Context(), "key", src, storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if src.closes > 0 {
		t.Error("Put has closed its source")
	}
}

func putReportsObject(t *testing.T, b storage.Bucket) {
	want := put(t, b, "a/key", content(1, 100))
	if want.Key != "a/key" || want.Size != 100 || want.Version == "" {
		t.Fatalf("Put = %+v", want)
	}
	r, opened, err := b.Open(t.Context(), "a/key", storage.OpenOptions{Offset: 7, Length: 9})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	stated, listed := stat(t, b, "a/key"), listing(t, b, storage.ListOptions{})[0]
	for _, obj := range []storage.Object{opened, stated} {
		if obj.Key != want.Key || obj.Size != want.Size || obj.Version != want.Version || !obj.ModTime.Equal(listed.ModTime) {
			t.Errorf("an object is %+v, where Put has given %+v, and List %+v", obj, want, listed)
		}
	}
	// Stores whose listing has no versions leave it empty.
	if listed.Version == "" {
		listed.Version = want.Version
	}
	if listed.Key != want.Key || listed.Size != want.Size || listed.Version != want.Version || listed.ModTime.IsZero() {
		t.Errorf("List gives %+v, where Put has given %+v", listed, want)
	}
}

func (s suite) race(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"if absent":       func(t *testing.T, b storage.Bucket) { raceIfAbsent(t, b, 1000) },
		"if absent large": func(t *testing.T, b storage.Bucket) { raceIfAbsent(t, b, s.o.PartSizes[0]+1) },
		"replace":         raceReplace,
		"neighbours":      raceNeighbours,
		"readers":         raceReaders,
	})
}

// atOnce runs n functions at once and returns their errors.
func atOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	running.Wait()
	return errs
}

// onlyWinner returns the index of the only nil in errs. It fails the test unless all others match lost.
func onlyWinner(t *testing.T, errs []error, lost error) int {
	t.Helper()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("both %d and %d have won", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, lost):
			t.Errorf("a loser has %v", err)
		}
	}
	if winner < 0 {
		t.Fatal("no writer has won")
	}
	return winner
}

func raceIfAbsent(t *testing.T, b storage.Bucket, size int) {
	errs := atOnce(16, func(i int) error {
		r := bytes.NewReader(content(i, size))
		_, err := b.Put(t.Context(), "a/b/key", r, storage.PutOptions{IfAbsent: true})
		return err
	})
	winner := onlyWinner(t, errs, storage.ErrExist)
	wantContent(t, b, "a/b/key", storage.OpenOptions{}, content(winner, size))
	wantNoLeftovers(t, b)
}

// raceReplace checks that a reader sees the old object or the new one, never a mixture and never none.
func raceReplace(t *testing.T, b storage.Bucket) {
	const size, writers = 10_000, 4
	put(t, b, "dir/key", content(0, size))
	errs := atOnce(2*writers, func(i int) error {
		for range 10 {
			err := replaceOrCheck(t.Context(), b, i, writers, size)
			if err != nil {
				return err
			}
		}
		return nil
	})
	err := errors.Join(errs...)
	if err != nil {
		t.Fatal(err)
	}
	wantNoLeftovers(t, b)
}

func replaceOrCheck(ctx context.Context, b storage.Bucket, i, writers, size int) error {
	if i < writers {
		_, err := b.Put(ctx, "dir/key", bytes.NewReader(content(i, size)), storage.PutOptions{})
		return err
	}
	p, err := get(ctx, b, "dir/key", storage.OpenOptions{})
	if err != nil {
		return err
	}
	for seed := range writers {
		if bytes.Equal(p, content(seed, size)) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes that nobody has written", len(p))
}

// raceNeighbours checks that creating and deleting keys with a common prefix does not affect the others.
func raceNeighbours(t *testing.T, b storage.Bucket) {
	errs := atOnce(4, func(i int) error {
		key := fmt.Sprintf("a/b/%d", i)
		for range 20 {
			_, err := b.Put(t.Context(), key, bytes.NewReader(nil), storage.PutOptions{IfAbsent: true})
			if err != nil {
				return err
			}
			_, err = b.Stat(t.Context(), key)
			if err != nil {
				return err
			}
			err = b.Delete(t.Context(), key, storage.DeleteOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	err := errors.Join(errs...)
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, b, storage.ListOptions{})
}

func raceReaders(t *testing.T, b storage.Bucket) {
	p := content(1, 100_000)
	put(t, b, "key", p)
	errs := atOnce(8, func(i int) error {
		part, err := get(t.Context(), b, "key", storage.OpenOptions{Offset: int64(i * 1000)})
		if err == nil && !bytes.Equal(part, p[i*1000:]) {
			err = fmt.Errorf("reader %d has something else", i)
		}
		return err
	})
	err := errors.Join(errs...)
	if err != nil {
		t.Fatal(err)
	}
}
