package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// sizes has one object that is sent whole and one that is sent in three parts.
var sizes = map[string]int{"small": 1000, "large": 2*part + 1000}

// TestLostOnce loses one request or its answer, and checks that the object is stored exactly once, even if the store
// answers the second try with "exists".
func TestLostOnce(t *testing.T) {
	server := objectstores.Minio(t)
	for _, c := range []struct {
		size      string
		operation string
		nth       int64
	}{
		{"small", "put", 1}, {"small", "head", 1},
		{"large", "create", 1}, {"large", "part", 1}, {"large", "part", 3}, {"large", "complete", 1},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s %d after answer=%v", c.size, c.operation, c.nth, late), func(t *testing.T) {
				bucket := server.Bucket(t, objectstores.Locks)
				f := &objectstores.FailingTransport{Match: is(c.operation), Nth: c.nth, AfterAnswer: late}
				b := open(t, failing(config(t, server, bucket), f))
				p := content(1, sizes[c.size])
				obj, err := b.Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
				if err != nil || f.Failed() != 1 {
					t.Fatalf("%v, %d requests were failed", err, f.Failed())
				}
				wantStoredOnce(t, b, server, obj, p)
				n := versions(t, server, bucket, "dir/key")
				if n != 1 {
					t.Errorf("stored %d times", n)
				}
				wantAtMostEmptyUpload(t, b, c.operation == "create" && late)
			})
		}
	}
}

func wantStoredOnce(t *testing.T, b *s3.Bucket, server *objectstores.S3Server, obj storage.Object, p []byte) {
	t.Helper()
	wantContent(t, b, obj.Key, p)
	there, err := b.Stat(t.Context(), obj.Key)
	if err != nil || there.Version != obj.Version || there.Size != obj.Size {
		t.Errorf("Stat: %+v, %v, where Put gave %+v", there, err, obj)
	}
	_, err = b.Put(t.Context(), obj.Key, strings.NewReader("other"), storage.PutOptions{IfAbsent: true})
	wantError(t, "Put of a taken key", err, storage.ErrExist)
}

// wantAtMostEmptyUpload fails if anything is left. If may is set, uploads without parts may be, whose first request was
// lost.
func wantAtMostEmptyUpload(t *testing.T, b *s3.Bucket, may bool) {
	t.Helper()
	for piece, err := range b.Leftovers(t.Context(), "") {
		if err != nil || !may || piece.Size > 0 {
			t.Errorf("left over: %+v, %v", piece, err)
			continue
		}
		err = b.Sweep(t.Context(), piece)
		if err != nil {
			t.Error(err)
		}
	}
	wantNoParts(t, b)
}

// TestRequestLostForGood checks that a Put fails if one of its requests is never answered, and that it leaves nothing.
func TestRequestLostForGood(t *testing.T) {
	server := objectstores.S3(t)
	for size, operation := range map[string]string{"small": "put", "large": "part"} {
		t.Run(operation, func(t *testing.T) { lostForGood(t, server, size, operation) })
	}
	t.Run("complete", func(t *testing.T) { lostForGood(t, server, "large", "complete") })
}

func lostForGood(t *testing.T, server *objectstores.S3Server, size, operation string) {
	c := config(t, server, server.Bucket(t))
	f := &objectstores.FailingTransport{Match: is(operation)}
	src := bytes.NewReader(content(1, sizes[size]))
	_, err := open(t, failing(c, f)).Put(t.Context(), "dir/key", src, storage.PutOptions{})
	wantError(t, "Put", err, syscall.ECONNRESET)
	b := open(t, config(t, server, c.Bucket))
	wantNothing(t, b, "dir/key")
	wantContent(t, b, put(t, b, "dir/key", content(2, 100)).Key, content(2, 100))
}

// TestAnswerLostForGood checks that Put finds the object that it has stored although no answer ever arrives.
func TestAnswerLostForGood(t *testing.T) {
	server := objectstores.S3(t)
	for size, operation := range map[string]string{"small": "put", "large": "complete"} {
		for _, ifAbsent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s if absent=%v", operation, ifAbsent), func(t *testing.T) {
				f := &objectstores.FailingTransport{Match: is(operation), AfterAnswer: true}
				b := open(t, failing(config(t, server, server.Bucket(t)), f))
				p := content(1, sizes[size])
				_, err := b.Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{IfAbsent: ifAbsent})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, b, "key", p)
				wantNoParts(t, b)
			})
		}
	}
}

// TestUnknownOutcomeIsReported checks that a lost answer from a store that is unreachable abortPauses is neither a success nor
// ErrExist.
func TestUnknownOutcomeIsReported(t *testing.T) {
	server := objectstores.S3(t)
	isPut, isHead := is("put"), is("head")
	f := &objectstores.FailingTransport{
		Match: func(r *http.Request) bool { return isPut(r) || isHead(r) }, AfterAnswer: true,
	}
	b := open(t, failing(config(t, server, server.Bucket(t)), f))
	_, err := b.Put(t.Context(), "key", strings.NewReader("content"), storage.PutOptions{})
	wantError(t, "Put", err, syscall.ECONNRESET)
	if errors.Is(err, storage.ErrExist) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("%v does not say that nobody knows", err)
	}
}

// TestCommitTakenByAnother checks that an object wins that appears between the first check of the key and the commit.
func TestCommitTakenByAnother(t *testing.T) {
	server := objectstores.S3(t)
	for size, operation := range map[string]string{"small": "put", "large": "complete"} {
		t.Run(size, func(t *testing.T) {
			c := config(t, server, server.Bucket(t))
			other := open(t, c)
			rival := &rivalTransport{base: c.Transport, match: is(operation), before: func() {
				_, err := other.Put(t.Context(), "key", strings.NewReader("rival"), storage.PutOptions{IfAbsent: true})
				if err != nil {
					t.Error(err)
				}
			}}
			c.Transport = rival
			src := bytes.NewReader(content(1, sizes[size]))
			_, err := open(t, c).Put(t.Context(), "key", src, storage.PutOptions{IfAbsent: true})
			wantError(t, "Put", err, storage.ErrExist)
			wantContent(t, other, "key", []byte("rival"))
			wantNoParts(t, other)
		})
	}
}

// rivalTransport runs another Put just before it sends a request.
type rivalTransport struct {
	base   http.RoundTripper
	match  func(*http.Request) bool
	before func()
	once   sync.Once
}

func (r *rivalTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.match(request) {
		r.once.Do(r.before)
	}
	return r.base.RoundTrip(request)
}

// TestCancelledAtCommit checks that a Put which is cancelled during its commit reports the truth: stored or missing.
func TestCancelledAtCommit(t *testing.T) {
	server := objectstores.S3(t)
	for size, operation := range map[string]string{"small": "put", "large": "complete"} {
		t.Run(size, func(t *testing.T) {
			c := config(t, server, server.Bucket(t))
			whole := open(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.Transport = &cancelTransport{base: c.Transport, match: is(operation), cancel: cancel}
			p := content(1, sizes[size])
			_, err := open(t, c).Put(ctx, "key", bytes.NewReader(p), storage.PutOptions{})
			if err != nil {
				t.Fatalf("what is stored is said not to be: %v", err)
			}
			wantContent(t, whole, "key", p)
			wantNoParts(t, whole)
		})
	}
}

// cancelTransport cancels the context when the server has executed a request, and drops the answer.
type cancelTransport struct {
	base   http.RoundTripper
	match  func(*http.Request) bool
	cancel func()
}

func (c *cancelTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(r)
	if err != nil || !c.match(r) {
		return response, err
	}
	c.cancel()
	_, err = io.Copy(io.Discard, response.Body)
	return nil, errors.Join(context.Canceled, err, response.Body.Close())
}

// TestConflictIsTriedAgain checks that 409 ConditionalRequestConflict means that another request was running, not that
// it has won.
func TestConflictIsTriedAgain(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	fake := &fakeAnswer{
		base: c.Transport, match: is("put"), times: 2, status: http.StatusConflict, code: "ConditionalRequestConflict",
	}
	c.Transport = fake
	b := open(t, c)
	_, err := b.Put(t.Context(), "key", strings.NewReader("content"), storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	if fake.times != 0 {
		t.Errorf("%d answers were not fetched", fake.times)
	}
	wantContent(t, b, "key", []byte("content"))
}

// fakeAnswer answers some requests itself, as a store would.
type fakeAnswer struct {
	base    http.RoundTripper
	match   func(*http.Request) bool
	times   int // below 0: always
	status  int
	code    string
	message string
	header  http.Header
}

func (f *fakeAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.times == 0 || !f.match(r) {
		return f.base.RoundTrip(r)
	}
	f.times--
	if r.Body != nil {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	body := fmt.Sprintf("<Error><Code>%s</Code><Message>%s</Message></Error>", f.code, f.message)
	if r.Method == http.MethodHead {
		body = ""
	}
	header := http.Header{}
	if f.header != nil {
		header = f.header
	}
	return &http.Response{
		StatusCode: f.status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// TestCutConnections breaks every connection after a number of bytes. It checks that no object is partly visible, that
// no parts are left, and that a Put succeeds once the network works again.
func TestCutConnections(t *testing.T) {
	server := objectstores.S3(t)
	for name, after := range map[string]struct {
		bytes     int64
		direction objectstores.Direction
	}{
		"at the start":       {0, objectstores.ToServer},
		"mid-part":           {part / 2, objectstores.ToServer},
		"at a part's end":    {part, objectstores.ToServer},
		"behind a part":      {part + 10_000, objectstores.ToServer},
		"answers":            {0, objectstores.ToClient},
		"answers after some": {4000, objectstores.ToClient},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := objectstores.NewProxy(t, server.Endpoint)
			c := config(t, server.Through(proxy), server.Bucket(t))
			b := open(t, c)
			for size, n := range sizes {
				proxy.CutAfter(after.bytes, after.direction)
				p := content(1, n)
				_, err := b.Put(within(t), size, bytes.NewReader(p), storage.PutOptions{})
				proxy.Clear()
				wantResolved(t, b, size, p, err)
				put(t, b, size, content(2, n))
				wantContent(t, b, size, content(2, n))
			}
		})
	}
}

// wantResolved fails unless key holds p if err is nil, and is missing otherwise. If err reports an unknown result, both
// are right. Parts may be left only if err says so.
func wantResolved(t *testing.T, b *s3.Bucket, key string, p []byte, err error) {
	t.Helper()
	if err == nil {
		wantContent(t, b, key, p)
		wantNoParts(t, b)
		return
	}
	_, serr := b.Stat(t.Context(), key)
	if serr == nil && strings.Contains(err.Error(), "unknown whether the object was stored") {
		wantContent(t, b, key, p)
	} else {
		wantError(t, "Stat after "+err.Error(), serr, storage.ErrNotExist)
	}
	for piece, perr := range b.Leftovers(t.Context(), "") {
		if perr != nil {
			t.Fatal(perr)
		}
		if piece.Size > 0 && !strings.Contains(err.Error(), "its parts are still there") {
			t.Errorf("left over: %+v, after %v", piece, err)
		}
		err := b.Sweep(t.Context(), piece)
		if err != nil {
			t.Error(err)
		}
	}
}

// atByte calls hook after a number of bytes.
type atByte struct {
	r    io.Reader
	left int
	hook func()
}

func (a *atByte) Read(p []byte) (int, error) {
	if a.left == 0 && a.hook != nil {
		a.hook()
		a.hook = nil
	}
	if a.left > 0 {
		p = p[:min(len(p), a.left)]
	}
	n, err := a.r.Read(p)
	a.left -= min(n, a.left)
	return n, err
}

// TestShortOutage interrupts the network during an upload and restores it before the tries are used up.
func TestShortOutage(t *testing.T) {
	server := objectstores.S3(t)
	proxy := objectstores.NewProxy(t, server.Endpoint)
	b := open(t, config(t, server.Through(proxy), server.Bucket(t)))
	p := content(1, 4*part)
	var back sync.WaitGroup
	src := &atByte{r: bytes.NewReader(p), left: 2 * part, hook: func() {
		proxy.Cut()
		back.Go(func() {
			time.Sleep(100 * time.Millisecond)
			proxy.Restore()
		})
	}}
	_, err := b.Put(within(t), "key", src, storage.PutOptions{IfAbsent: true})
	back.Wait()
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, b, "key", p)
	wantNoParts(t, b)
}

// TestSlowNetwork checks that a slow store does not count as a failed one.
func TestSlowNetwork(t *testing.T) {
	server := objectstores.S3(t)
	proxy := objectstores.NewProxy(t, server.Endpoint)
	b := open(t, config(t, server.Through(proxy), server.Bucket(t)))
	proxy.Slow(4 << 20)
	proxy.Latency(50 * time.Millisecond)
	p := content(1, part+1000)
	put(t, b, "key", p)
	wantContent(t, b, "key", p)
	wantNoParts(t, b)
}

// TestBlackHole checks that a Put into a network that swallows everything ends with the caller's context, and leaves
// nothing.
func TestBlackHole(t *testing.T) {
	server := objectstores.S3(t)
	for _, at := range []int{0, part / 2, 2 * part} {
		t.Run(fmt.Sprint("after ", at), func(t *testing.T) {
			proxy := objectstores.NewProxy(t, server.Endpoint)
			b := open(t, config(t, server.Through(proxy), server.Bucket(t)))
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			context.AfterFunc(ctx, proxy.Clear) // so that the abort reaches the store
			src := &atByte{r: bytes.NewReader(content(1, 3*part)), left: at, hook: proxy.BlackHole}
			_, err := b.Put(ctx, "key", src, storage.PutOptions{})
			wantError(t, "Put", err, context.DeadlineExceeded)
			wantNothing(t, b, "key")
		})
	}
}

// TestCutDownload checks that a cut stream ends with an error, and that a resumed stream has every byte once.
func TestCutDownload(t *testing.T) {
	server := objectstores.S3(t)
	proxy := objectstores.NewProxy(t, server.Endpoint)
	b := open(t, config(t, server.Through(proxy), server.Bucket(t)))
	p := content(1, 2*part)
	put(t, b, "key", p)
	proxy.CutAfter(3<<20, objectstores.ToClient)
	got, err := get(t, b, "key")
	if err == nil || !bytes.HasPrefix(p, got) || len(got) == len(p) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	retried := storage.WithRetry(b, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond})
	wantContent(t, retried, "key", p)
}

// TestCutWithinASmallObject checks that no object appears if the connection ends within the only request, at any byte.
// A TLS record has 16 KiB.
func TestCutWithinASmallObject(t *testing.T) {
	server := objectstores.S3(t)
	bucket := server.Bucket(t)
	direct := open(t, config(t, server, bucket))
	p := content(1, 60_000)
	for _, checksums := range []s3.Checksums{s3.ChecksumsAuto, s3.ChecksumsSupported} {
		for at := int64(2_000); at < 64_000; at += 4_000 {
			proxy := objectstores.NewProxy(t, server.Endpoint)
			c := config(t, server.Through(proxy), bucket)
			c.Checksums = checksums
			b := open(t, c)
			proxy.CutAfter(at, objectstores.ToServer)
			key := fmt.Sprint("cut/", checksums, at)
			_, err := b.Put(within(t), key, bytes.NewReader(p), storage.PutOptions{})
			proxy.Clear()
			wantResolved(t, direct, key, p, err)
		}
	}
}
