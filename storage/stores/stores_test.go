package stores_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

func TestMain(m *testing.M) { os.Exit(objectstores.Main(m)) }

// place is a bucket of a store, whose credentials are in the environment of the test.
type place struct {
	url      func(bucket, prefix string) string
	bucket   string // with versions where the test's store has them
	versions bool
}

// places has one of each object store.
var places = map[string]func(t *testing.T) place{
	"s3": func(t *testing.T) place {
		s := objectstores.Minio(t) // versitygw dates a version by its replacement
		objectstores.Setenv(t, s.Env())
		return place{s.URL, s.Bucket(t, objectstores.Versioned), true}
	},
	"gs": func(t *testing.T) place {
		s := objectstores.GCS(t)
		objectstores.Setenv(t, s.Env(t))
		return place{s.URL, s.Bucket(t, objectstores.Versioned), true}
	},
	"azblob": func(t *testing.T) place {
		s := objectstores.Azure(t)
		objectstores.Setenv(t, s.Env())
		return place{s.URL, s.Bucket(t), false}
	},
}

func eachPlace(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	for name, find := range places {
		t.Run(name, func(t *testing.T) { test(t, find(t)) })
	}
}

func open(t *testing.T, text string) storage.Bucket {
	t.Helper()
	b, err := stores.Open(t.Context(), text, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b storage.Bucket, key, content string) {
	t.Helper()
	_, err := b.Put(t.Context(), key, strings.NewReader(content), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, b storage.Bucket, key, want string) {
	t.Helper()
	r, _, err := b.Open(t.Context(), key, storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	err = errors.Join(err, r.Close())
	if err != nil || string(got) != want {
		t.Fatalf("%q is %q, %v, want %q", key, got, err, want)
	}
}

func wantKeys(t *testing.T, b storage.Bucket, want ...string) {
	t.Helper()
	var got []string
	for obj, err := range b.List(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, obj.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

// TestOpen checks that an object below a prefix is visible both without the prefix and with it.
func TestOpen(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		b, err := stores.Create(t.Context(), p.url(p.bucket, "etcd/prod"), stores.Options{})
		if err != nil {
			t.Fatal(err)
		}
		put(t, b, "dir/key", "content")
		put(t, b, "dir/other", "other")
		wantContent(t, open(t, p.url(p.bucket, "etcd/prod/")), "dir/key", "content")
		wantContent(t, open(t, p.url(p.bucket, "")), "etcd/prod/dir/key", "content")
		wantKeys(t, open(t, p.url(p.bucket, "etcd")), "prod/dir/key", "prod/dir/other")
		wantKeys(t, open(t, p.url(p.bucket, "etc")))
		err = b.Delete(t.Context(), "dir/other", storage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantKeys(t, b, "dir/key")
	})
}

func TestOpenAsOf(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		b := open(t, p.url(p.bucket, "prefix"))
		put(t, b, "key", "old")
		put(t, b, "gone", "gone")
		time.Sleep(1100 * time.Millisecond) // some stores have times in whole seconds
		before := time.Now()
		time.Sleep(1100 * time.Millisecond)
		put(t, b, "key", "new")
		err := b.Delete(t.Context(), "gone", storage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		past, err := stores.Open(t.Context(), p.url(p.bucket, "prefix"), stores.Options{AsOf: before})
		if err != nil {
			t.Fatal(err)
		}
		if !p.versions { // the store knows only the objects that still exist
			_, err := past.Stat(t.Context(), "gone")
			if !errors.Is(err, storage.ErrNotExist) && !errors.Is(err, storage.ErrUnsupported) {
				t.Errorf("Stat of what is gone: %v", err)
			}
			return
		}
		wantContent(t, past, "key", "old")
		wantContent(t, past, "gone", "gone")
		wantKeys(t, past, "gone", "key")
		err = past.Delete(t.Context(), "key", storage.DeleteOptions{})
		if !errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("Delete in the past: %v", err)
		}
	})
}

func TestMissingBucket(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		b := open(t, p.url("no-such-bucket", "prefix"))
		_, err := b.Stat(t.Context(), "key")
		if !errors.Is(err, storage.ErrNoBucket) {
			t.Errorf("Stat: %v", err)
		}
		for _, err := range b.List(t.Context(), storage.ListOptions{}) {
			if !errors.Is(err, storage.ErrNoBucket) {
				t.Errorf("List: %v", err)
			}
		}
	})
}

// TestCAAsBytes opens the stores of the other tests with the certificates in place of the file, which cannot be combined with it.
func TestCAAsBytes(t *testing.T) {
	for _, name := range []string{"s3", "azblob"} {
		t.Run(name, func(t *testing.T) {
			p := places[name](t)
			withFile := p.url(p.bucket, "")
			u, err := url.Parse(withFile)
			if err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			ca, err := os.ReadFile(query.Get("ca"))
			if err != nil {
				t.Fatal(err)
			}
			query.Del("ca")
			u.RawQuery = query.Encode()
			b, err := stores.Open(t.Context(), u.String(), stores.Options{CA: ca})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Stat(t.Context(), "none")
			if !errors.Is(err, storage.ErrNotExist) {
				t.Errorf("Stat: %v", err)
			}
			for text, ca := range map[string][]byte{withFile: ca, u.String(): []byte("none")} {
				_, err = stores.Open(t.Context(), text, stores.Options{CA: ca})
				if !errors.Is(err, stores.ErrURL) {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
}

// TestWithoutTheCA checks that the stores of the other tests are untrusted without the option.
func TestWithoutTheCA(t *testing.T) {
	for _, name := range []string{"s3", "azblob"} {
		t.Run(name, func(t *testing.T) {
			p := places[name](t)
			u, err := url.Parse(p.url(p.bucket, ""))
			if err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Del("ca")
			u.RawQuery = query.Encode()
			_, err = bare(t, u.String()).Stat(t.Context(), "key")
			if err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("Stat: %v", err)
			}
		})
	}
}

// bare opens the store without retries, which only take time here.
func bare(t *testing.T, text string) storage.Bucket {
	t.Helper()
	b := open(t, text)
	for {
		u, ok := b.(interface{ Unwrap() storage.Bucket })
		if !ok {
			return b
		}
		b = u.Unwrap()
	}
}

func TestBadCA(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	err := os.WriteFile(empty, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"s3://bucket", "gs://bucket", "azblob://box"} {
		for _, ca := range []string{empty, "/none/ca.pem"} {
			_, err := stores.Open(t.Context(), text+"?ca="+ca, stores.Options{})
			if !errors.Is(err, stores.ErrURL) || !strings.Contains(err.Error(), ca) {
				t.Errorf("Open(%q) with the CA %s: %v", text, ca, err)
			}
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repository")
	text := "file://" + dir
	_, err := stores.Open(t.Context(), text, stores.Options{})
	if !errors.Is(err, stores.ErrURL) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of an absent directory: %v", err)
	}
	_, err = os.Stat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open has made something: %v", err)
	}
	b, err := stores.Create(t.Context(), text, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, "key", "content")
	wantContent(t, open(t, text), "key", "content")
	_, err = stores.Open(t.Context(), text, stores.Options{AsOf: time.Now()})
	if !errors.Is(err, storage.ErrUnsupported) {
		t.Errorf("OpenAsOf: %v", err)
	}
}

// TestDirectoryThatMustHoldARepository uses create=false: only that shows a new process that an empty directory is a
// mount point without its file system.
func TestDirectoryThatMustHoldARepository(t *testing.T) {
	dir := t.TempDir()
	text := "file://" + dir + "?create=false"
	for _, empty := range []string{text, "file://" + dir + "/none?create=false"} {
		for verb, open := range map[string]func(context.Context, string, stores.Options) (storage.Bucket, error){"Open": stores.Open, "Create": stores.Create} {
			_, err := open(t.Context(), empty, stores.Options{})
			if !errors.Is(err, storage.ErrNoBucket) || !strings.Contains(err.Error(), "mount its file system") {
				t.Errorf("%s %s: %v", verb, empty, err)
			}
		}
	}
	_, err := os.Stat(filepath.Join(dir, "none"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create has made something: %v", err)
	}
	err = os.Mkdir(filepath.Join(dir, "lost+found"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = stores.Create(t.Context(), text, stores.Options{})
	if !errors.Is(err, storage.ErrNoBucket) {
		t.Errorf("an empty file system: %v", err)
	}
	put(t, open(t, "file://"+dir), "prod/repository.json", "marker")
	wantContent(t, open(t, text), "prod/repository.json", "marker")
}

func TestCredentialsInTheURL(t *testing.T) {
	const text = "s3://AKIA:Hunter2@bucket/prefix"
	for _, openIt := range []func() (storage.Bucket, error){
		func() (storage.Bucket, error) { return stores.Open(t.Context(), text, stores.Options{}) },
		func() (storage.Bucket, error) { return stores.Create(t.Context(), text, stores.Options{}) },
		func() (storage.Bucket, error) {
			return stores.Open(t.Context(), text, stores.Options{AsOf: time.Now()})
		},
	} {
		_, err := openIt()
		if !errors.Is(err, stores.ErrURL) || strings.Contains(err.Error(), "Hunter2") {
			t.Errorf("error %v", err)
		}
	}
	shown := stores.Shown(text)
	if strings.Contains(shown, "Hunter2") {
		t.Errorf("Shown: %s", shown)
	}
}

// TestGuardedStoreThatHangs checks that a store which accepts connections and never answers does not hold a guarded
// call, long before its client's tries are used up.
func TestGuardedStoreThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	guard := storage.GuardOptions{Limit: 50 * time.Millisecond, Most: 4, Failures: 1, Rest: time.Hour}
	b, err := stores.Open(t.Context(), "s3://bucket?endpoint=http://"+silent.Addr().String(), stores.Options{Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err = b.Stat(ctx, "key")
	if !errors.Is(err, storage.ErrNoAnswer) {
		t.Errorf("error %v", err)
	}
}
