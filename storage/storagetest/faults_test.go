package storagetest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

var errFault = errors.New("fault")

func put(t *testing.T, b storage.Bucket) error {
	t.Helper()
	_, err := b.Put(t.Context(), "key", strings.NewReader("content"), storage.PutOptions{})
	return err
}

func exists(t *testing.T, b storage.Bucket) bool {
	t.Helper()
	_, err := b.Stat(t.Context(), "key")
	return err == nil
}

func TestFaultsHitTheirCalls(t *testing.T) {
	f := storagetest.Faulty(mem.New())
	f.On(storagetest.VerbPut).Nth(2).Times(2).Fail(errFault)
	f.On(storagetest.VerbPut).Nth(5).Always().Fail(errFault)
	got := ""
	for range 7 {
		if put(t, f) == nil {
			got += "+"
		} else {
			got += "-"
		}
	}
	if got != "+--+---" || f.Calls(storagetest.VerbPut) != 7 {
		t.Errorf("%s in %d calls", got, f.Calls(storagetest.VerbPut))
	}
}

func TestFaultsBeforeAndAfterTheEffect(t *testing.T) {
	below := mem.New()
	f := storagetest.Faulty(below)
	steps := []struct {
		name  string
		fault func(*storagetest.Fault)
		call  func() error
		verb  storagetest.Verb
		there bool
	}{
		{"put not done", fail, func() error { return put(t, f) }, storagetest.VerbPut, false},
		{"put cut", cut, func() error { return put(t, f) }, storagetest.VerbPut, false},
		{"put done", failLate, func() error { return put(t, f) }, storagetest.VerbPut, true},
		{"delete not done", fail, func() error { return remove(t, f) }, storagetest.VerbDelete, true},
		{"delete done", failLate, func() error { return remove(t, f) }, storagetest.VerbDelete, false},
	}
	for _, s := range steps {
		s.fault(f.On(s.verb))
		err := s.call()
		if !errors.Is(err, errFault) {
			t.Errorf("%s: %v", s.name, err)
		}
		if exists(t, below) != s.there {
			t.Errorf("%s: exists is %v", s.name, !s.there)
		}
	}
}

func fail(f *storagetest.Fault)     { f.Fail(errFault) }
func failLate(f *storagetest.Fault) { f.FailLate(errFault) }
func cut(f *storagetest.Fault)      { f.Cut(3, errFault) }

func remove(t *testing.T, b storage.Bucket) error {
	t.Helper()
	return b.Delete(t.Context(), "key", storage.DeleteOptions{})
}

func TestFaultsCutStreams(t *testing.T) {
	f := storagetest.Faulty(mem.New())
	err := put(t, f)
	if err != nil {
		t.Fatal(err)
	}
	f.On(storagetest.VerbOpen).Cut(3, errFault)
	r, _, err := f.Open(t.Context(), "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	if string(p) != "con" || !errors.Is(err, errFault) {
		t.Errorf("%q, %v", p, err)
	}
}

func TestFaultsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.Faulty(mem.New())
		f.On(storagetest.VerbStat).Always().Delay(time.Hour)
		start := time.Now()
		exists(t, f)
		took := time.Since(start)
		if took != time.Hour {
			t.Errorf("took %v of the bubble's clock", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := f.Stat(ctx, "key")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stat: %v", err)
		}
	})
}
