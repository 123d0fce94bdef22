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

// patience is for tests in which nothing gets better by waiting.
const patience = 300 * time.Millisecond

// The requests of an upload: all of a small object, or the beginning of a session, its chunks, the last of which
// commits.
func isWhole(r *http.Request) bool { return r.URL.Query().Get("uploadType") == "multipart" }

func isBegin(r *http.Request) bool {
	return r.URL.Query().Get("uploadType") == "resumable" && r.URL.Query().Get("upload_id") == ""
}

func isChunk(r *http.Request) bool { return r.URL.Query().Get("upload_id") != "" }

func isCommit(r *http.Request) bool {
	return isWhole(r) || isChunk(r) && !strings.HasSuffix(r.Header.Get("Content-Range"), "/*")
}

// versions is how many versions of key there are.
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

// TestLostRequestsAndAnswers fails each request of an upload, before the store hears of it and after it has answered.
// Put tells the truth each time, and when it is done again there is one object of one version.
func TestLostRequestsAndAnswers(t *testing.T) {
	s := server(t)
	for _, c := range lostCases() {
		name := fmt.Sprintf("%s/size=%d/nth=%d/after=%t/ifAbsent=%t", c.request, c.size, c.nth, c.after, c.ifAbsent)
		t.Run(name, func(t *testing.T) { putOverFailing(t, s, c) })
	}
}

// lostCase is one Put and the failures on its way.
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

// mustSucceed: one failure of what may be repeated is made good, and a commit that took effect is known to have.
func (c lostCase) mustSucceed() bool {
	return c.nth > 0 && (c.ifAbsent || c.size > chunk) || c.after && (c.request == "whole" || c.request == "commit")
}

func putOverFailing(t *testing.T, s *objectstores.GCSServer, c lostCase) {
	failing := &objectstores.FailingTransport{Base: connections, Match: c.match, Nth: c.nth, AfterAnswer: c.after}
	name := s.Bucket(t, objectstores.Versioned)
	steady := open(t, s, name, gcs.Config{})
	b := open(t, s, name, gcs.Config{Transport: failing, Patience: patience})
	p, o := content(1, c.size), storage.PutOptions{IfAbsent: c.ifAbsent}
	obj, err := b.Put(t.Context(), "key", bytes.NewReader(p), o)
	if err == nil {
		if got := get(t, steady, "key", storage.OpenOptions{Version: obj.Version}); !bytes.Equal(got, p) {
			t.Errorf("stored are %d bytes that are not the %d that were sent", len(got), len(p))
		}
	} else {
		wantError(t, err, nil, "no answer from the store")
		wantAbsent(t, steady, "key")
		put(t, steady, "key", p, o)
		wantContent(t, steady, "key", p)
	}
	if n := versions(t, steady, "key"); n != 1 {
		t.Errorf("there are %d versions", n)
	}
	if err != nil && c.mustSucceed() {
		t.Errorf("Put gave up: %v", err)
	}
}

// TestNobodyToAsk: the answer to the commit is lost, and then the store cannot be reached. Put says that it does not
// know.
func TestNobodyToAsk(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	lost := &objectstores.FailingTransport{Base: connections, Match: isWhole, AfterAnswer: true}
	gone := &objectstores.FailingTransport{Base: lost, Match: func(*http.Request) bool { return lost.Failed() > 0 }}
	b := open(t, s, name, gcs.Config{Transport: gone, Patience: patience})
	_, err := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{})
	wantError(t, err, nil, "whether it is stored cannot be asked")
}

// tripper is a function as an http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCancelledCommit cancels a Put while its commit is on the way: the store has not heard of it, or it goes on and
// makes the object although nobody waits. Nothing is there, or Put says that it is.
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

// TestPutRemovesWhatIsNotWhatWasSent: the store says that it has other bytes than were sent.
func TestPutRemovesWhatIsNotWhatWasSent(t *testing.T) {
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
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	p = change(p)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(p)), int64(len(p))
	answer.Header.Del("Content-Length")
	return nil
}

// TestOpenChecksTheSum: a bit has changed on the way.
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

// TestOpenChecksTheLength: an answer is shorter than the object, and says so of itself.
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

// TestOpenChecksTheRange: a store, or a cache before it, gives the whole object where a part was asked for.
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

// through sends everything to proxy: the URL of an upload's session, which the server gives, names the server.
func through(p *objectstores.Proxy) http.RoundTripper {
	address := p.Address
	return tripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = address
		return connections.RoundTrip(r)
	})
}

// TestConnectionsCutOnTheWayUp: connections end after some bytes, again and again. Either the upload gets through in
// pieces, or nothing of it is there.
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
				if _, err := b.Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{}); err != nil {
					wantAbsent(t, steady, "key")
					proxy.Clear()
					put(t, b, "key", p, storage.PutOptions{IfAbsent: true})
				}
				wantContent(t, steady, "key", p)
				if n := versions(t, steady, "key"); n != 1 {
					t.Errorf("there are %d versions", n)
				}
			})
		}
	}
}

// TestConnectionCutOnce: the store is away for a moment in the middle of an upload, which goes on where it was.
func TestConnectionCutOnce(t *testing.T) {
	s := server(t)
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, s, s.Bucket(t), gcs.Config{Transport: through(proxy)})
	p := content(1, 4*chunk+5)
	r := io.MultiReader(bytes.NewReader(p[:2*chunk]), tap(func() {
		proxy.Cut()
		time.AfterFunc(300*time.Millisecond, proxy.Restore)
	}), bytes.NewReader(p[2*chunk:]))
	if _, err := b.Put(t.Context(), "key", r, storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	wantContent(t, b, "key", p)
}

// tap is an empty source that does something when it is reached.
type tap func()

func (f tap) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// TestBlackHole: a network that swallows all is left when the caller has had enough.
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

// TestConnectionsCutOnTheWayDown: a stream that is cut is an error, and with retries it goes on where it was.
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
	if got, err := io.ReadAll(r); err == nil || !bytes.HasPrefix(p, got) || len(got) == len(p) {
		t.Errorf("of a connection cut after %d bytes come %d of %d, error %v", chunk, len(got), len(p), err)
	}
	policy := storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond}
	wantContent(t, storage.WithRetry(b, policy), "key", p)
}

// TestLostRefusal: somebody else takes the key while Put works, and the store's refusal of a large request is lost with
// its connection. It is a taken key all the same, and is left as it is.
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

// TestSmallObjectIsOneRequest: what goes out in one request, and must not replace anything, is not asked for first.
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
