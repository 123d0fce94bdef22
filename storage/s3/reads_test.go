package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// changedAnswer is a transport that changes the answers to some requests.
type changedAnswer struct {
	base   http.RoundTripper
	match  func(*http.Request) bool
	change func(*http.Response)
}

func (c changedAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(r)
	if err == nil && c.match(r) {
		c.change(response)
	}
	return response, err
}

// flipped inverts the first bit of a body.
type flipped struct {
	io.ReadCloser
	done bool
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if n > 0 && !f.done {
		p[0] ^= 1
		f.done = true
	}
	return n, err
}

// TestChecksumIsVerified checks that reading a whole object with a wrong bit ends with an error, both for an object
// that was sent whole and for one that was sent in parts. The latter needs a checksum of the whole object.
func TestChecksumIsVerified(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	c.Checksums = s3.ChecksumsSupported
	whole := open(t, c)
	c.Transport = changedAnswer{c.Transport, is("get"), func(r *http.Response) { r.Body = &flipped{ReadCloser: r.Body} }}
	damaged := open(t, c)
	for size, n := range sizes {
		p := content(1, n)
		put(t, whole, size, p)
		wantContent(t, whole, size, p)
		got, err := get(t, damaged, size)
		if err == nil {
			t.Errorf("%s: %d damaged bytes passed", size, len(got))
		}
	}
}

// TestStreamKeepsItsLength checks that fewer bytes than announced, more bytes, and another range are errors.
func TestStreamKeepsItsLength(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	put(t, open(t, c), "key", content(1, 1000))
	for name, change := range map[string]func(*http.Response){
		"less":          func(r *http.Response) { r.Body = io.NopCloser(io.LimitReader(r.Body, 200)) },
		"none":          func(r *http.Response) { r.Body = http.NoBody },
		"more":          func(r *http.Response) { r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader("x"))) },
		"another range": func(r *http.Response) { r.Header.Set("Content-Range", "bytes 0-399/1000") },
		"another size":  func(r *http.Response) { r.Header.Set("Content-Range", "bytes 600-999/2000") },
		"no range":      func(r *http.Response) { r.Header.Del("Content-Range") },
	} {
		changed := c
		changed.Transport = changedAnswer{c.Transport, is("get"), change}
		r, _, err := open(t, changed).Open(t.Context(), "key", storage.OpenOptions{Offset: 600})
		if err != nil {
			continue
		}
		p, err := io.ReadAll(r)
		if err == nil {
			t.Errorf("%s: %d bytes passed", name, len(p))
		}
		_, again := r.Read(make([]byte, 1))
		if again == nil || again == io.EOF {
			t.Errorf("%s: after %v comes %v", name, err, again)
		}
		r.Close()
	}
}

// recorder is a transport that records requests.
type recorder struct {
	base http.RoundTripper
	mu   sync.Mutex
	seen []*http.Request
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, request)
	r.mu.Unlock()
	return r.base.RoundTrip(request)
}

func (r *recorder) of(operation string) []*http.Request {
	return slices.DeleteFunc(slices.Clone(r.seen), func(q *http.Request) bool { return !is(operation)(q) })
}

// TestChecksumsAsConfigured checks that a store with an endpoint gets checksums only if the configuration asks for
// them, and that all requests of an upload then use the same algorithm.
func TestChecksumsAsConfigured(t *testing.T) {
	server := objectstores.S3(t)
	for _, c := range []struct {
		checksums s3.Checksums
		want      bool
	}{{"", false}, {s3.ChecksumsAuto, false}, {s3.ChecksumsRequired, false}, {s3.ChecksumsSupported, true}} {
		config := config(t, server, server.Bucket(t))
		seen := &recorder{base: config.Transport}
		config.Transport, config.Checksums = seen, c.checksums
		b := open(t, config)
		put(t, b, "small", content(1, 100))
		put(t, b, "large", content(1, part+1))
		for _, operation := range []string{"put", "part"} {
			for _, r := range seen.of(operation) {
				has := r.Header.Get("X-Amz-Trailer") == "x-amz-checksum-crc32c" || r.Header.Get("X-Amz-Checksum-Crc32c") != ""
				if has != c.want {
					t.Errorf("%q: %s has %v", c.checksums, operation, r.Header)
				}
			}
		}
		create, complete := seen.of("create")[0].Header, seen.of("complete")[0].Header
		full := create.Get("X-Amz-Checksum-Type") == "FULL_OBJECT" && complete.Get("X-Amz-Checksum-Type") == "FULL_OBJECT"
		if full != c.want || (create.Get("X-Amz-Checksum-Algorithm") == "CRC32C") != c.want {
			t.Errorf("%q: create has %v, complete %v", c.checksums, create, complete)
		}
		n := len(seen.of("part"))
		if n != 2 {
			t.Errorf("%d parts, want 2", n)
		}
	}
}

// TestConditionOnSmallRequests checks that no large request has a condition: an early refusal gets lost while a
// large body is being sent.
func TestConditionOnSmallRequests(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	seen := &recorder{base: c.Transport}
	c.Transport = seen
	b := open(t, c)
	for i, n := range []int{0, 1000, 1 << 20, 1<<20 + 1, 2 * part} {
		_, err := b.Put(t.Context(), fmt.Sprint("key", i), bytes.NewReader(content(1, n)), storage.PutOptions{IfAbsent: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	conditions := 0
	for _, r := range seen.seen {
		if r.Header.Get("If-None-Match") != "*" {
			continue
		}
		conditions++
		if r.ContentLength > 1<<20+1000 {
			t.Errorf("%s %s has a condition and %d bytes", r.Method, r.URL.Path, r.ContentLength)
		}
	}
	if conditions != 5 {
		t.Errorf("%d conditions for 5 objects", conditions)
	}
}

// TestPlainHTTP checks that bodies are sent without TLS, where the SDK cannot use trailing checksums.
func TestPlainHTTP(t *testing.T) {
	server := objectstores.S3Plain(t)
	for _, checksums := range []s3.Checksums{s3.ChecksumsRequired, s3.ChecksumsSupported} {
		c := config(t, server, server.Bucket(t))
		c.Checksums = checksums
		b := open(t, c)
		for size, n := range sizes {
			put(t, b, size, content(1, n))
			wantContent(t, b, size, content(1, n))
		}
	}
}

// TestCertificatesOfTheEnvironment checks that AWS_CA_BUNDLE is trusted if no transport is given, and that it does not
// disturb a given one.
func TestCertificatesOfTheEnvironment(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	t.Setenv("AWS_CA_BUNDLE", server.CAFile)
	put(t, open(t, c), "key", content(1, 10))
	c.Transport = nil
	wantContent(t, open(t, c), "key", content(1, 10))
	t.Setenv("AWS_CA_BUNDLE", "")
	_, err := get(t, open(t, c), "key")
	wantCure(t, "no certificates", err, "ca=FILE")
}

// TestManyPages lists 2,500 objects in pages of S3's maximum, and a few objects in pages of one.
func TestManyPages(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	b := open(t, c)
	want := make([]string, 2500)
	var writers sync.WaitGroup
	for i := range want {
		want[i] = fmt.Sprintf("dir %%/ü/%04d", i)
	}
	for worker := range 8 {
		writers.Go(func() {
			for i := worker; i < len(want); i += 8 {
				_, err := b.Put(t.Context(), want[i], bytes.NewReader(nil), storage.PutOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	wantKeys(t, b, storage.ListOptions{}, want)
	wantKeys(t, b, storage.ListOptions{Prefix: "dir %/ü/1", After: want[1234]}, want[1235:2000])
	c.PageSize = 1
	wantKeys(t, open(t, c), storage.ListOptions{After: want[2480]}, want[2481:])
}

func wantKeys(t *testing.T, b storage.Bucket, o storage.ListOptions, want []string) {
	t.Helper()
	var got []string
	for obj, err := range b.List(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, obj.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("List(%+v) gives %d keys, want %d", o, len(got), len(want))
	}
}

// TestListNeedsOrder checks that a listing ends with an error if the store repeats itself or is out of order.
func TestListNeedsOrder(t *testing.T) {
	server := objectstores.S3(t)
	for name, page := range map[string]string{
		"the same again": list(true, "b", "c"), "no order": list(false, "c", "b"), "nothing more": list(true),
	} {
		c := config(t, server, server.Bucket(t))
		c.Transport = changedAnswer{c.Transport, is("list"), func(r *http.Response) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(page)), int64(len(page))
		}}
		var last error
		for _, err := range open(t, c).List(within(t), storage.ListOptions{}) {
			last = err
		}
		if last == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func list(more bool, keys ...string) string {
	var contents strings.Builder
	for _, key := range keys {
		contents.WriteString("<Contents><Key>" + key + "</Key><Size>1</Size></Contents>")
	}
	return fmt.Sprintf("<ListBucketResult><IsTruncated>%v</IsTruncated>%s</ListBucketResult>", more, contents.String())
}

// TestForeignKeys checks that List omits the "folder" objects that a console creates.
func TestForeignKeys(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	for _, key := range []string{"dir/", "dir/key"} {
		_, err := server.Client(t).PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &c.Bucket, Key: aws.String(key)})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantKeys(t, open(t, c), storage.ListOptions{}, []string{"dir/key"})
}

// TestManyWriters checks that one of 32 concurrent creators of an object wins.
func TestManyWriters(t *testing.T) {
	for name, server := range both(t) {
		t.Run(name, func(t *testing.T) {
			b := open(t, config(t, server, server.Bucket(t)))
			errs := make([]error, 32)
			var writers sync.WaitGroup
			for i := range errs {
				writers.Go(func() {
					src := bytes.NewReader(content(byte(i), 1000))
					_, errs[i] = b.Put(t.Context(), "key", src, storage.PutOptions{IfAbsent: true})
				})
			}
			writers.Wait()
			won := 0
			for i, err := range errs {
				switch {
				case err == nil:
					won++
					wantContent(t, b, "key", content(byte(i), 1000))
				case !errors.Is(err, storage.ErrExist):
					t.Errorf("a loser has %v", err)
				}
			}
			if won != 1 {
				t.Errorf("%d have won", won)
			}
		})
	}
}

// TestSmallObjectIsOneRequest checks that Put sends a create-only object in its only request, without asking for the
// key first.
func TestSmallObjectIsOneRequest(t *testing.T) {
	server := objectstores.S3(t)
	config := config(t, server, server.Bucket(t))
	seen := &recorder{base: config.Transport}
	config.Transport = seen
	b := open(t, config)
	for n, want := range []error{nil, storage.ErrExist} {
		before := len(seen.seen)
		_, err := b.Put(t.Context(), "key", strings.NewReader("segment"), storage.PutOptions{IfAbsent: true, SizeHint: 7})
		if !errors.Is(err, want) {
			t.Fatalf("Put %d: error %v, want %v", n, err, want)
		}
		requests := len(seen.seen) - before
		if n == 0 && requests != 1 {
			t.Errorf("%d requests, want one", requests)
		}
	}
	wantContent(t, b, "key", []byte("segment"))
}
