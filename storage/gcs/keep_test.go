package gcs_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cloud "cloud.google.com/go/storage"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

func TestListManyPages(t *testing.T) {
	s := server(t)
	b := open(t, s, s.Bucket(t), gcs.Config{PageSize: 400})
	var want []string
	var putting errgroup.Group
	putting.SetLimit(8)
	for i := range 2500 {
		key := fmt.Sprintf("prefix/%04d", i)
		want = append(want, key)
		putting.Go(func() error {
			_, err := b.Put(t.Context(), key, bytes.NewReader(nil), storage.PutOptions{})
			return err
		})
	}
	err := putting.Wait()
	if err != nil {
		t.Fatal(err)
	}
	got := keys(t, b, storage.ListOptions{Prefix: "prefix/"})
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	got = keys(t, b, storage.ListOptions{After: want[1999]})
	if !slices.Equal(got, want[2000:]) {
		t.Errorf("%d keys after the 2000th, want 500", len(got))
	}
}

// TestListPassesOverFolders uses the object "dir/" that consoles create for a folder.
func TestListPassesOverFolders(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	b := open(t, s, name, gcs.Config{})
	w := s.Client(t).Bucket(name).Object("dir/").NewWriter(t.Context())
	err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, "dir/key", nil, storage.PutOptions{})
	got := keys(t, b, storage.ListOptions{})
	if !slices.Equal(got, []string{"dir/key"}) {
		t.Errorf("keys %q", got)
	}
}

// TestEveryPutHasAnIdOfItsOwn checks the id by which a Put recognizes its own object.
func TestEveryPutHasAnIdOfItsOwn(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	b := open(t, s, name, gcs.Config{})
	seen := map[string]bool{"": true}
	for i := range 3 {
		put(t, b, "key", content(byte(i), i*chunk), storage.PutOptions{})
		attrs, err := s.Client(t).Bucket(name).Object("key").Attrs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id := attrs.Metadata["dr-put"]
		if seen[id] {
			t.Errorf("the id %q is none, or comes again", id)
		}
		seen[id] = true
	}
}

func TestLocks(t *testing.T) {
	s := server(t)
	name := s.Bucket(t, objectstores.Locks)
	b := open(t, s, name, gcs.Config{})
	until := time.Now().Add(time.Hour)
	for mode, compliance := range map[string]bool{"Unlocked": false, "Locked": true} {
		key := strings.ToLower(mode)
		obj := put(t, b, key, content(1, 2*chunk), storage.PutOptions{RetainUntil: until, Compliance: compliance})
		if obj.RetainUntil.Before(until) || obj.RetainUntil.Sub(until) > time.Second {
			t.Errorf("locked until %v, want %v, up to the next second", obj.RetainUntil, until)
		}
		attrs, err := s.Client(t).Bucket(name).Object(key).Attrs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if attrs.Retention == nil || attrs.Retention.Mode != mode {
			t.Errorf("the retention is %+v, want mode %s", attrs.Retention, mode)
		}
		date := "locked until " + obj.RetainUntil.Format(time.RFC3339)
		for _, version := range []string{"", obj.Version} {
			err = b.Delete(t.Context(), key, storage.DeleteOptions{Version: version})
			wantError(t, err, storage.ErrLocked, date)
		}
		err = b.Delete(t.Context(), key, storage.DeleteOptions{SkipLockCheck: true})
		wantError(t, err, storage.ErrLocked, "retention") // the store's own word
		_, err = b.Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{})
		wantError(t, err, storage.ErrLocked, date)
		wantContent(t, b, key, content(1, 2*chunk))
	}
}

func TestHold(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	b := open(t, s, name, gcs.Config{})
	put(t, b, "key", nil, storage.PutOptions{})
	object := s.Client(t).Bucket(name).Object("key")
	_, err := object.Update(t.Context(), cloud.ObjectAttrsToUpdate{TemporaryHold: true})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{})
	wantError(t, err, storage.ErrLocked, "which has no end")
	put(t, b, "other", nil, storage.PutOptions{})
	got := keys(t, b, storage.ListOptions{})
	if !slices.Equal(got, []string{"key", "other"}) {
		t.Errorf("keys %q", got)
	}
}

func TestLockWhereTheBucketHasNone(t *testing.T) {
	s := server(t)
	b := open(t, s, s.Bucket(t), gcs.Config{})
	for _, size := range []int{10, 2 * chunk} {
		_, err := b.Put(t.Context(), "key", bytes.NewReader(content(1, size)),
			storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)})
		wantError(t, err, storage.ErrUnsupported, "--enable-per-object-retention")
		wantAbsent(t, b, "key")
	}
}

// TestAsOf replaces and deletes objects, and reads the bucket as it was before.
func TestAsOf(t *testing.T) {
	s := server(t)
	var b storage.Bucket = open(t, s, s.Bucket(t, objectstores.Versioned), gcs.Config{PageSize: 2})
	put(t, b, "a/key", []byte("old"), storage.PutOptions{})
	put(t, b, "a/gone", []byte("gone"), storage.PutOptions{})
	before := pass()
	put(t, b, "a/key", []byte("new"), storage.PutOptions{})
	put(t, b, "a/later", []byte("later"), storage.PutOptions{})
	err := b.Delete(t.Context(), "a/gone", storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after := pass()
	for _, c := range []struct {
		at   time.Time
		want map[string]string
	}{
		{before, map[string]string{"a/gone": "gone", "a/key": "old"}},
		{after, map[string]string{"a/key": "new", "a/later": "later"}},
	} {
		past, err := storage.AsOf(b, c.at)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range c.want {
			wantContent(t, past, key, []byte(want))
		}
		got := keys(t, past, storage.ListOptions{})
		if len(got) != len(c.want) {
			t.Errorf("keys %q, want those of %q", got, c.want)
		}
	}
	got := keys(t, b, storage.ListOptions{Prefix: "a/", After: "a/key"})
	if !slices.Equal(got, []string{"a/later"}) {
		t.Errorf("keys %q", got)
	}
}

// pass returns a time between the calls before and after it, by the store's clock, which is this machine's.
func pass() time.Time {
	time.Sleep(20 * time.Millisecond)
	defer time.Sleep(20 * time.Millisecond)
	return time.Now()
}

// TestVersionsThatAreNone checks that a Version which is not a generation is missing.
func TestVersionsThatAreNone(t *testing.T) {
	s := server(t)
	b := open(t, s, s.Bucket(t), gcs.Config{})
	obj := put(t, b, "key", nil, storage.PutOptions{})
	generation, err := strconv.ParseInt(obj.Version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"x", "0", "-1", "1", "99999999999999999999", strconv.FormatInt(generation+1, 10)} {
		_, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Version: version})
		wantError(t, err, storage.ErrNotExist, "key")
		err = b.Delete(t.Context(), "key", storage.DeleteOptions{Version: version})
		if err != nil {
			t.Error(err)
		}
	}
	wantContent(t, b, "key", nil)
}
