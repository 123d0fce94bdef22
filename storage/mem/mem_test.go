package mem_test

import (
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

func TestContract(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Bucket { return mem.New() },
		storagetest.Options{PartSizes: []int{64 << 10}})
}

func put(t *testing.T, b storage.Bucket, content string, o storage.PutOptions) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), "key", strings.NewReader(content), o)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func wantContent(t *testing.T, b storage.Bucket, version, want string) {
	t.Helper()
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if string(got) != want || err != nil {
		t.Errorf("version %q is %q, %v, want %q", version, got, err, want)
	}
}

func TestDeleteHidesAndVersionsStay(t *testing.T) {
	b := mem.New()
	one := put(t, b, "one", storage.PutOptions{})
	two := put(t, b, "two", storage.PutOptions{})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), "key")
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("Stat of a hidden key: %v", err)
	}
	wantContent(t, b, one.Version, "one")
	wantContent(t, b, two.Version, "two")
	put(t, b, "three", storage.PutOptions{IfAbsent: true})
	wantContent(t, b, "", "three")
}

func TestDeleteOfTheNewestShowsTheOneBefore(t *testing.T) {
	b := mem.New()
	put(t, b, "one", storage.PutOptions{})
	two := put(t, b, "two", storage.PutOptions{})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{Version: two.Version})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, b, "", "one")
}

func TestLockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		locked := put(t, b, "locked", storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)})
		put(t, b, "over it", storage.PutOptions{})
		this := storage.DeleteOptions{Version: locked.Version}
		time.Sleep(time.Hour - time.Nanosecond)
		err := b.Delete(t.Context(), "key", this)
		if !errors.Is(err, storage.ErrLocked) {
			t.Errorf("just before the end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		err = b.Delete(t.Context(), "key", this)
		if err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
