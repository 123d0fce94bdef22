package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

func put(t *testing.T, b storage.Bucket, key, content string) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), key, strings.NewReader(content), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func keys(t *testing.T, b storage.Bucket, o storage.ListOptions) string {
	t.Helper()
	var all []string
	for obj, err := range b.List(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, obj.Key)
	}
	return strings.Join(all, " ")
}

func TestPrefixSeparates(t *testing.T) {
	below := mem.New()
	one := storage.WithPrefix(below, "cluster1") // without its slash
	ten := storage.WithPrefix(below, "cluster10/")
	put(t, one, "a", "1")
	put(t, one, "b/c", "1")
	put(t, ten, "a", "10")
	got := keys(t, one, storage.ListOptions{})
	if got != "a b/c" {
		t.Errorf("cluster1 has %q", got)
	}
	got = keys(t, one, storage.ListOptions{Prefix: "b", After: "a"})
	if got != "b/c" {
		t.Errorf("cluster1 has %q behind a", got)
	}
	got = keys(t, below, storage.ListOptions{})
	if got != "cluster1/a cluster1/b/c cluster10/a" {
		t.Errorf("the store has %q", got)
	}
}

func TestPrefixErrorsNameTheWholeKey(t *testing.T) {
	_, err := storage.WithPrefix(mem.New(), "etcd/prod/").Stat(t.Context(), "absent")
	if !errors.Is(err, storage.ErrNotExist) || !strings.Contains(err.Error(), `"etcd/prod/absent"`) {
		t.Errorf("error %v", err)
	}
}

func TestPrefixMalformed(t *testing.T) {
	for _, prefix := range []string{"/", "/a/", "a//", "../", "a/../b/", "a\n/"} {
		b := storage.WithPrefix(mem.New(), prefix)
		_, err := b.Stat(t.Context(), "key")
		if !errors.Is(err, storage.ErrKey) {
			t.Errorf("prefix %q, Stat: %v", prefix, err)
		}
		for _, err := range b.List(t.Context(), storage.ListOptions{}) {
			if !errors.Is(err, storage.ErrKey) {
				t.Errorf("prefix %q, List: %v", prefix, err)
			}
		}
	}
}
