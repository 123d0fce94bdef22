package gcs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// patience is for tests in which waiting does not help.
const patience = 300 * time.Millisecond

// The matchers of an upload's requests: a whole small object, or the beginning of a session and its chunks, of which
// the last one commits.
func isWhole(r *http.Request) bool { return r.URL.Query().Get("uploadType") == "multipart" }

func isBegin(r *http.Request) bool {
	return r.URL.Query().Get("uploadType") == "resumable" && r.URL.Query().Get("upload_id") == ""
}

func isChunk(r *http.Request) bool { return r.URL.Query().Get("upload_id") != "" }

func isCommit(r *http.Request) bool {
	return isWhole(r) || isChunk(r) && !strings.HasSuffix(r.Header.Get("Content-Range"), "/*")
}

// versions returns the number of versions of key.
func versions(t *testing.T, b *gcs.Bucket, key string) int {
	t.Helper()
	n := 0
	for kept, err := range b.Versions(t.Context(), storage.ListOptions{Prefix: key}) {
		if err != nil {
			t.Fatal(err)
		}
		if kept.Key == key {
			n++
		}
	}
	return n
}

// TestLostRequestsAndAnswers fails each request of an upload, before the store receives it and after it has answered.
// It checks that Put reports the truth each time, and that another Put leaves one object with one version.
func TestLostRequestsAndAnswers(t *testing.T) {
	s := server(t)
	for _, c := range lostCases() {
		name := fmt.Sprintf("%s/size=%d/nth=%d/after=%t/ifAbsent=%t", c.request, c.size, c.nth, c.after, c.ifAbsent)
		t.Run(name, func(t *testing.T) { putOverFailing(t, s, c) })
	}
}

// lostCase is one Put and its failing requests.
type lostCase struct {
	request  string
	match    func(*http.Request) bool
	size     int
	nth      int64
	after    bool
	ifAbsent bool
}

func lostCases() []lostCase {
	var cases []lostCase
	for _, c := range []lostCase{
		{request: "whole", match: isWhole, size: 1000},
		{request: "begin", match: isBegin, size: 3*chunk + 5},
		{request: "chunk", match: isChunk, size: 3*chunk + 5},
		{request: "commit", match: isCommit, size: 3*chunk + 5},
	} {
		for i := range 12 {
			c.nth, c.after, c.ifAbsent = int64(i/4), i%2 > 0, i/2%2 > 0
			cases = append(cases, c)
		}
	}
	return cases
}

// mustSucceed reports whether Put must succeed: one failure of a repeatable request is retried, and a commit that took
// effect is recognized.
func (c lostCase) mustSucceed() bool {
	return c.nth > 0 && (c.ifAbsent || c.size > chunk) || c.after && (c.request == "whole" || c.request == "commit")
}

func putOverFailing(t *testing.T, s *objectstores.GCSServer, c lostCase) {
	failing := &objectstores.FailingTransport{Base: connections, Match: c.match, Nth: c.nth, AfterAnswer: c.after}
	name := s.Bucket(t, objectstores.Versioned)
	steady := open(t, s, name, gcs.Config{})
	waits := patience
	if c.nth > 0 {
		waits = time.Minute // only one request fails, and its retry may be slow
	}
	b := open(t, s, name, gcs.Config{Transport: failing, Patience: waits})
	p, o := content(1, c.size), storage.PutOptions{IfAbsent: c.ifAbsent}
	obj, err := b.Put(t.Context(), "key", bytes.NewReader(p), o)
	if err == nil {
		got := get(t, steady, "key", storage.OpenOptions{Version: obj.Version})
		if !bytes.Equal(got, p) {
			t.Errorf("stored are %d bytes that are not the %d that were sent", len(got), len(p))
		}
	} else {
		wantError(t, err, nil, "no answer from the store")
		wantAbsent(t, steady, "key")
		put(t, steady, "key", p, o)
		wantContent(t, steady, "key", p)
	}
	n := versions(t, steady, "key")
	if n != 1 {
		t.Errorf("there are %d versions", n)
	}
	if err != nil && c.mustSucceed() {
		t.Errorf("Put gave up: %v", err)
	}
}

// TestNoAnswerToAnyRequest loses the answer to the commit and then all requests. It checks that Put reports an unknown result.
func TestNoAnswerToAnyRequest(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	lost := &objectstores.FailingTransport{Base: connections, Match: isWhole, AfterAnswer: true}
	gone := &objectstores.FailingTransport{Base: lost, Match: func(*http.Request) bool { return lost.Failed() > 0 }}
	b := open(t, s, name, gcs.Config{Transport: gone, Patience: patience})
	_, err := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{})
	wantError(t, err, nil, "unknown whether the object was stored")
}

// tripper is a function that implements http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCancelledCommit cancels a Put during its commit, which the store either never receives or executes after the
// caller has left. It checks that the object is missing or that Put reports it.
func TestCancelledCommit(t *testing.T) {
	s := server(t)
	for _, size := range []int{1000, 2*chunk + 5} {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("size=%d/heard=%t", size, heard), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancelling := tripper(func(r *http.Request) (*http.Response, error) {
					if !isCommit(r) {
						return connections.RoundTrip(r)
					}
					if !heard {
						cancel()
						return nil, context.Canceled
					}
					answer, err := connections.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
					if err == nil {
						_, err = io.Copy(io.Discard, answer.Body)
					}
					cancel()
					return nil, errors.Join(err, context.Canceled)
				})
				b := open(t, s, s.Bucket(t), gcs.Config{Transport: cancelling})
				p := content(1, size)
				_, err := b.Put(ctx, "key", bytes.NewReader(p), storage.PutOptions{})
				if heard {
					if err != nil {
						t.Fatal(err)
					}
					wantContent(t, b, "key", p)
					return
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("Put: %v", err)
				}
				wantAbsent(t, b, "key")
			})
		}
	}
}

// TestPutRemovesCorruptedUploads has the store report other bytes than were sent.
func TestPutRemovesCorruptedUploads(t *testing.T) {
	s := server(t)
	for _, size := range []int{1000, 2*chunk + 5} {
		altering := tripper(func(r *http.Request) (*http.Response, error) {
			answer, err := connections.RoundTrip(r)
			if err == nil && isCommit(r) {
				err = alter(answer, func(p []byte) []byte {
					return regexp.MustCompile(`"crc32c": *"[^"]*"`).ReplaceAll(p, []byte(`"crc32c":"AAAAAA=="`))
				})
			}
			return answer, err
		})
		name := s.Bucket(t)
		b := open(t, s, name, gcs.Config{Transport: altering})
		_, err := b.Put(t.Context(), "key", bytes.NewReader(content(1, size)), storage.PutOptions{})
		wantError(t, err, nil, "CRC32C")
		wantAbsent(t, b, "key")
	}
}

func alter(answer *http.Response, change func([]byte) []byte) error {
	p, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err != nil {
		return err
	}
	p = change(p)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(p)), int64(len(p))
	answer.Header.Del("Content-Length")
	return nil
}

// TestOpenChecksTheSum changes a bit of the body.
func TestOpenChecksTheSum(t *testing.T) {
	s := server(t)
	altering := tripper(func(r *http.Request) (*http.Response, error) {
		answer, err := connections.RoundTrip(r)
		if err == nil && r.URL.Query().Get("alt") == "media" {
			err = alter(answer, func(p []byte) []byte { p[len(p)/2] ^= 1; return p })
		}
		return answer, err
	})
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: altering})
	put(t, b, "key", content(1, 1000), storage.PutOptions{})
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = io.ReadAll(r)
	wantError(t, err, nil, "CRC32C")
}

// TestOpenChecksTheLength shortens an answer and its Content-Length.
func TestOpenChecksTheLength(t *testing.T) {
	s := server(t)
	cutting := tripper(func(r *http.Request) (*http.Response, error) {
		answer, err := connections.RoundTrip(r)
		if err == nil && r.URL.Query().Get("alt") == "media" {
			err = alter(answer, func(p []byte) []byte { return p[:len(p)/2] })
		}
		return answer, err
	})
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: cutting})
	put(t, b, "key", content(1, 1000), storage.PutOptions{})
	for _, o := range []storage.OpenOptions{{}, {Offset: 10}, {Length: 500}} {
		r, _, err := b.Open(t.Context(), "key", o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(r)
		wantError(t, errors.Join(err, r.Close()), io.ErrUnexpectedEOF, "early")
	}
}

// TestOpenChecksTheRange has the store, or a cache in front of it, send the whole object instead of a range.
func TestOpenChecksTheRange(t *testing.T) {
	s := server(t)
	ignoring := tripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
		return connections.RoundTrip(r)
	})
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: ignoring})
	put(t, b, "key", content(1, 1000), storage.PutOptions{})
	_, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Offset: 10, Length: 5})
	wantError(t, err, nil, "bytes 10 to 14 with status 200")
}

// through sends all requests to the proxy, because the URL of an upload's session, which the server chooses, names the
// server.
func through(p *objectstores.Proxy) http.RoundTripper {
	address := p.Address
	return tripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = address
		return connections.RoundTrip(r)
	})
}

// TestConnectionsCutOnTheWayUp ends connections after some bytes, again and again. It checks that the upload arrives in
// pieces or leaves nothing.
func TestConnectionsCutOnTheWayUp(t *testing.T) {
	s := server(t)
	for _, size := range []int{1000, 4*chunk + 5} {
		for _, after := range []int64{0, 500, chunk / 2, chunk + 10<<10, 3 * chunk} {
			t.Run(fmt.Sprintf("size=%d/cut=%d", size, after), func(t *testing.T) {
				name := s.Bucket(t, objectstores.Versioned)
				steady := open(t, s, name, gcs.Config{})
				proxy := objectstores.NewProxy(t, s.Endpoint)
				b := open(t, s, name, gcs.Config{Transport: through(proxy), Patience: patience})
				proxy.CutAfter(after, objectstores.ToServer)
				p := content(1, size)
				_, err := b.Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{})
				if err != nil {
					wantAbsent(t, steady, "key")
					proxy.Clear()
					put(t, b, "key", p, storage.PutOptions{IfAbsent: true})
				}
				wantContent(t, steady, "key", p)
				n := versions(t, steady, "key")
				if n != 1 {
					t.Errorf("there are %d versions", n)
				}
			})
		}
	}
}

// TestConnectionCutOnce interrupts the network in the middle of an upload and checks that the upload continues.
func TestConnectionCutOnce(t *testing.T) {
	s := server(t)
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: through(proxy)})
	p := content(1, 4*chunk+5)
	r := io.MultiReader(bytes.NewReader(p[:2*chunk]), tap(func() {
		proxy.Cut()
		time.AfterFunc(300*time.Millisecond, proxy.Restore)
	}), bytes.NewReader(p[2*chunk:]))
	_, err := b.Put(t.Context(), "key", r, storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, b, "key", p)
}

// tap is an empty reader that calls a function when it is read.
type tap func()

func (f tap) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// TestBlackHole checks that Put ends with its caller's context if the network swallows everything.
func TestBlackHole(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	steady := open(t, s, name, gcs.Config{})
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, s, name, gcs.Config{Transport: through(proxy)})
	p := content(1, 8*chunk)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := b.Put(ctx, "key", io.MultiReader(bytes.NewReader(p[:2*chunk]), tap(proxy.BlackHole), bytes.NewReader(p)),
		storage.PutOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Put: %v", err)
	}
	proxy.Clear()
	wantAbsent(t, steady, "key")
	put(t, b, "key", p, storage.PutOptions{IfAbsent: true})
	wantContent(t, steady, "key", p)
}

func TestSlowConnection(t *testing.T) {
	s := server(t)
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: through(proxy)})
	proxy.Slow(1 << 20)
	p := content(1, 2*chunk+5)
	put(t, b, "key", p, storage.PutOptions{})
	wantContent(t, b, "key", p)
}

// TestConnectionsCutOnTheWayDown checks that a cut stream is an error, and that retries continue it.
func TestConnectionsCutOnTheWayDown(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	p := content(1, 4*chunk+5)
	put(t, open(t, s, name, gcs.Config{}), "key", p, storage.PutOptions{})
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, s, name, gcs.Config{Transport: through(proxy)})
	proxy.CutAfter(chunk, objectstores.ToClient)
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err == nil || !bytes.HasPrefix(p, got) || len(got) == len(p) {
		t.Errorf("of a connection cut after %d bytes come %d of %d, error %v", chunk, len(got), len(p), err)
	}
	policy := storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond}
	wantContent(t, storage.WithRetry(b, policy), "key", p)
}

// TestLostRefusal has another writer create the key during Put, and loses the store's refusal of a large request with
// its connection. It checks that Put reports ErrExist and leaves the key alone.
func TestLostRefusal(t *testing.T) {
	s := server(t)
	for _, size := range []int{1000, 2*chunk + 5} {
		name := s.Bucket(t)
		steady := open(t, s, name, gcs.Config{})
		taken := false
		losing := tripper(func(r *http.Request) (*http.Response, error) {
			if !isCommit(r) {
				return connections.RoundTrip(r)
			}
			if !taken {
				put(t, steady, "key", []byte("theirs"), storage.PutOptions{})
				taken = true
			}
			return nil, syscall.ECONNRESET
		})
		b := open(t, s, name, gcs.Config{Transport: losing, Patience: patience})
		_, err := b.Put(t.Context(), "key", bytes.NewReader(content(1, size)), storage.PutOptions{IfAbsent: true})
		wantError(t, err, storage.ErrExist, "key")
		wantContent(t, steady, "key", []byte("theirs"))
	}
}

// TestSmallObjectIsOneRequest checks that Put sends a create-only object in its only request, without asking for the
// key first.
func TestSmallObjectIsOneRequest(t *testing.T) {
	s := server(t)
	var requests atomic.Int64
	counting := tripper(func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		return connections.RoundTrip(r)
	})
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: counting})
	for n, want := range []error{nil, storage.ErrExist} {
		before := requests.Load()
		_, err := b.Put(t.Context(), "key", strings.NewReader("segment"), storage.PutOptions{IfAbsent: true, SizeHint: 7})
		if !errors.Is(err, want) {
			t.Fatalf("Put %d: error %v, want %v", n, err, want)
		}
		if n == 0 && requests.Load()-before != 1 {
			t.Errorf("%d requests, want one", requests.Load()-before)
		}
	}
}
