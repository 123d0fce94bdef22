package storage_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

var errStore = errors.New("the store is away")

func TestMeter(t *testing.T) {
	var got []storage.Usage
	below := storagetest.Faulty(mem.New())
	b := storage.WithMeter(below, func(u storage.Usage) { got = append(got, u) })

	put(t, b, "key", "0123456789")
	below.On(storage.VerbPut).Cut(4, errStore)
	_, _ = b.Put(t.Context(), "broken", strings.NewReader("0123456789"), storage.PutOptions{})
	readSome(t, b, 3)
	below.On(storage.VerbOpen).Cut(2, errStore)
	readSome(t, b, 2)
	below.On(storage.VerbStat).Fail(errStore)
	_, _ = b.Stat(t.Context(), "key")
	_, _ = b.Stat(t.Context(), "key")
	keys(t, b, storage.ListOptions{})
	below.On(storage.VerbList).Fail(errStore)
	for range b.List(t.Context(), storage.ListOptions{}) {
	}
	_ = b.Delete(t.Context(), "key", storage.DeleteOptions{})
	_, _, _ = b.Open(t.Context(), "key", storage.OpenOptions{})

	want := []storage.Usage{
		{Verb: storage.VerbPut, In: 10},
		{Verb: storage.VerbPut, In: 4, Err: errStore},
		{Verb: storage.VerbOpen, Out: 3},
		{Verb: storage.VerbOpen, Out: 2, Err: errStore},
		{Verb: storage.VerbStat, Err: errStore},
		{Verb: storage.VerbStat},
		{Verb: storage.VerbList},
		{Verb: storage.VerbList, Err: errStore},
		{Verb: storage.VerbDelete},
		{Verb: storage.VerbOpen, Err: storage.ErrNotExist},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		t.Error(diff)
	}
}

// readSome reads n bytes and the error after them, if any, and closes twice.
func readSome(t *testing.T, b storage.Bucket, n int) {
	t.Helper()
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Length: int64(n)})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r)
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
