package azure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// noise returns n random bytes, so that neither compression nor a wrong offset goes unnoticed.
func noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{7}).Read(p)
	return p
}

// The matchers of a Put's requests.
func isWhole(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Get("comp") == ""
}
func isBlock(r *http.Request) bool  { return r.URL.Query().Get("comp") == "block" }
func isCommit(r *http.Request) bool { return isPutList(r) && !isEmptyList(r) }
func isPutList(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Get("comp") == "blocklist"
}

// isEmptyList matches the commit that abandons blocks.
func isEmptyList(r *http.Request) bool {
	return isPutList(r) && header(r, "x-ms-meta-drput") == "abandoned"
}

// header returns a header that the SDK has set under a name that is not canonical.
func header(r *http.Request, name string) string {
	for k, v := range r.Header {
		if strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// putFault is a request of a Put that fails once or always.
type putFault struct {
	name  string
	size  int
	match func(*http.Request) bool
	nth   int64
}

var putFaults = []putFault{
	{"the whole object", 1000, isWhole, 1},
	{"the first block", 3 * small.Size, isBlock, 1},
	{"a block in the middle", 3 * small.Size, isBlock, 2},
	{"a last block that is full", 3 * small.Size, isBlock, 3},
	{"a last block that is short", 3*small.Size + 1, isBlock, 4},
	{"the commit", 3 * small.Size, isCommit, 1},
}

// options are the two kinds of Put.
var options = map[string]storage.PutOptions{"replace": {}, "if absent": {IfAbsent: true}}

// TestRequestFailsOnce checks that the SDK's repetition succeeds and does not report the first try's result as a
// conflict.
func TestRequestFailsOnce(t *testing.T) {
	for _, f := range putFaults {
		for _, late := range []bool{false, true} {
			for way, o := range options {
				t.Run(fmt.Sprintf("%s/answer lost %v/%s", f.name, late, way), func(t *testing.T) {
					c, _, look := plain(t)
					failing := &objectstores.FailingTransport{Base: c.Transport, Match: f.match, Nth: f.nth, AfterAnswer: late}
					c.Transport = failing
					b, p := open(t, c), noise(f.size)
					obj, err := b.Put(t.Context(), "dir/key", bytes.NewReader(p), o)
					if err != nil {
						t.Fatal(err)
					}
					if failing.Failed() != 1 {
						t.Fatalf("%d requests have failed", failing.Failed())
					}
					wantStored(t, b, look, obj, p)
				})
			}
		}
	}
}

// TestRequestFailsAlways checks that nothing is left and that the next Put succeeds. If all answers to a commit are
// lost, Put finds out that it was executed.
func TestRequestFailsAlways(t *testing.T) {
	for _, f := range putFaults {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answer lost %v", f.name, late), func(t *testing.T) {
				c, healthy, look := plain(t)
				c.Transport = &objectstores.FailingTransport{Base: c.Transport, Match: f.match, AfterAnswer: late}
				p := noise(f.size)
				obj, err := open(t, c).Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
				if late && !strings.Contains(f.name, "block") {
					if err != nil {
						t.Fatal(err)
					}
					wantStored(t, healthy, look, obj, p)
					return
				}
				if err == nil {
					t.Fatalf("Put has stored %+v", obj)
				}
				wantPutAgain(t, healthy, look, p)
			})
		}
	}
}

// TestNoAnswerAfterTheCommit checks that a Put does not report a conflict if it cannot find out the result.
func TestNoAnswerAfterTheCommit(t *testing.T) {
	c, healthy, _ := plain(t)
	var committed atomic.Bool
	c.Transport = &objectstores.FailingTransport{Base: c.Transport, AfterAnswer: true, Match: func(r *http.Request) bool {
		return isCommit(r) || committed.Load()
	}}
	c.Transport = &interfering{c.Transport, isCommit, func() { committed.Store(true) }}
	p := noise(2 * small.Size)
	_, err := open(t, c).Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
	if err == nil || errors.Is(err, storage.ErrExist) {
		t.Fatalf("error %v", err)
	}
	got, err := read(t, healthy, "key", storage.OpenOptions{})
	if err != nil || !bytes.Equal(got, p) {
		t.Errorf("%d bytes, error %v, where the commit was done", len(got), err)
	}
}

// interfering is a transport that calls before once, just before it sends a matching request.
type interfering struct {
	http.RoundTripper
	match  func(*http.Request) bool
	before func()
}

func (i *interfering) RoundTrip(r *http.Request) (*http.Response, error) {
	before := i.before
	if before != nil && i.match(r) {
		i.before = nil
		before()
	}
	return i.RoundTripper.RoundTrip(r)
}

// TestAnotherWriterIsFaster lets another Put create the key between the check and the commit, which discards our blocks.
func TestAnotherWriterIsFaster(t *testing.T) {
	for name, size := range map[string]int{"blocks": 3 * small.Size, "whole": 1000} {
		t.Run(name, func(t *testing.T) {
			c, other, look := plain(t)
			theirs := noise(2 * small.Size)
			var obj storage.Object
			c.Transport = &interfering{c.Transport, func(r *http.Request) bool { return isCommit(r) || isWhole(r) }, func() {
				var err error
				obj, err = other.Put(t.Context(), "dir/key", bytes.NewReader(theirs), storage.PutOptions{})
				if err != nil {
					t.Error(err)
				}
			}}
			_, err := open(t, c).Put(t.Context(), "dir/key", bytes.NewReader(noise(size)), storage.PutOptions{IfAbsent: true})
			if !errors.Is(err, storage.ErrExist) {
				t.Fatalf("error %v", err)
			}
			wantStored(t, other, look, obj, theirs)
		})
	}
}

// TestBlocksOfOthersStay checks that a failing Put does not remove the blocks of one that is still running.
func TestBlocksOfOthersStay(t *testing.T) {
	c, b, look := plain(t)
	p := noise(3 * small.Size)
	c.Transport = &interfering{c.Transport, isCommit, func() {
		broken := io.MultiReader(bytes.NewReader(p), &waiting{func() bool { return blocksOf(t, look, "dir/key") == 6 }})
		_, err := b.Put(t.Context(), "dir/key", broken, storage.PutOptions{})
		if !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
	}}
	slow := open(t, c)
	obj, err := slow.Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	wantStored(t, b, look, obj, p)
}

// late is a network in which an abandoned block arrives after the first look for blocks, and before the second.
type late struct {
	http.RoundTripper
	looks  atomic.Int32
	looked chan struct{} // closed after the first look
	coming sync.WaitGroup
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Query().Get("comp") == "blocklist" {
		return l.look(r)
	}
	if !isBlock(r) {
		return l.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	<-r.Context().Done()
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(body))
	l.coming.Go(func() {
		<-l.looked
		resp, err := l.RoundTripper.RoundTrip(again)
		if err == nil {
			resp.Body.Close()
		}
	})
	return nil, r.Context().Err()
}

// look lists the blocks.
func (l *late) look(r *http.Request) (*http.Response, error) {
	if l.looks.Add(1) == 1 {
		defer close(l.looked)
	} else {
		l.coming.Wait()
	}
	return l.RoundTripper.RoundTrip(r)
}

func TestBlockComesLate(t *testing.T) {
	c, healthy, look := plain(t)
	network := &late{RoundTripper: c.Transport, looked: make(chan struct{})}
	c.Transport = network
	p := noise(2 * small.Size)
	src := io.MultiReader(bytes.NewReader(p), &waiting{func() bool { return true }})
	_, err := open(t, c).Put(t.Context(), "dir/key", src, storage.PutOptions{})
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	network.coming.Wait()
	wantPutAgain(t, healthy, look, p)
}

var errBroken = errors.New("the source is broken")

// waiting is a reader that fails once come reports true.
type waiting struct{ come func() bool }

func (w *waiting) Read([]byte) (int, error) {
	for !w.come() {
		time.Sleep(time.Millisecond)
	}
	return 0, errBroken
}

// TestAbandonedBlobIsNone checks the blob that remains if a process dies between the empty commit and its removal: no
// method shows it, it blocks no key, and it is swept.
func TestAbandonedBlobIsNone(t *testing.T) {
	c, b, look := plain(t)
	leave := func(key string) {
		t.Helper()
		leaving := c
		leaving.Transport = &objectstores.FailingTransport{Base: c.Transport, Match: func(r *http.Request) bool {
			return r.Method == http.MethodDelete
		}}
		arrived := func() bool { return blocksOf(t, look, key) == 2 }
		src := io.MultiReader(bytes.NewReader(noise(2*small.Size)), &waiting{arrived})
		_, err := open(t, leaving).Put(t.Context(), key, src, storage.PutOptions{})
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		_, err = look.NewBlobClient(key).GetProperties(t.Context(), nil)
		if err != nil {
			t.Fatalf("there is no abandoned blob to test with: %v", err)
		}
		wantAbsent(t, b, key)
	}
	for _, size := range []int{0, 100, 2 * small.Size} {
		key := fmt.Sprintf("taken/%d", size)
		leave(key)
		obj, err := b.Put(t.Context(), key, bytes.NewReader(noise(size)), storage.PutOptions{IfAbsent: true})
		if err != nil {
			t.Fatal(err)
		}
		wantStored(t, b, look, obj, noise(size))
	}
	leave("swept")
	got := sweepAll(t, b, "")
	if got != 1 {
		t.Errorf("%d leftovers", got)
	}
	_, err := look.NewBlobClient("swept").GetProperties(t.Context(), nil)
	if err == nil {
		t.Error("the abandoned blob is still there")
	}
	leave("deleted")
	err = b.Delete(t.Context(), "deleted", storage.DeleteOptions{})
	if err != nil {
		t.Error(err)
	}
}

func sweepAll(t *testing.T, b *azure.Bucket, prefix string) (n int) {
	t.Helper()
	for piece, err := range b.Leftovers(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		err := b.Sweep(t.Context(), piece)
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// wantStored fails unless obj with content p is under its key and no blocks are.
func wantStored(t *testing.T, b *azure.Bucket, look *container.Client, obj storage.Object, p []byte) {
	t.Helper()
	got, err := b.Stat(t.Context(), obj.Key)
	if err != nil || got.Version != obj.Version || got.Size != int64(len(p)) {
		t.Fatalf("Stat = %+v, %v, want %+v with %d bytes", got, err, obj, len(p))
	}
	content, err := read(t, b, obj.Key, storage.OpenOptions{})
	if err != nil || !bytes.Equal(content, p) {
		t.Fatalf("%d bytes, error %v, want the %d that were put", len(content), err, len(p))
	}
	n := blocksOf(t, look, obj.Key)
	if n > 0 {
		t.Fatalf("%d uncommitted blocks", n)
	}
}

func wantAbsent(t *testing.T, b *azure.Bucket, key string) {
	t.Helper()
	obj, err := b.Stat(t.Context(), key)
	if !errors.Is(err, storage.ErrNotExist) {
		t.Fatalf("Stat = %+v, %v", obj, err)
	}
	for _, o := range []storage.OpenOptions{{}, {Length: 1}, {Offset: 1}} {
		_, err := read(t, b, key, o)
		if !errors.Is(err, storage.ErrNotExist) {
			t.Fatalf("Open with %+v: %v", o, err)
		}
	}
	for obj, err := range b.List(t.Context(), storage.ListOptions{Prefix: key}) {
		t.Fatalf("List shows %+v, %v", obj, err)
	}
}

// wantPutAgain fails unless nothing is under the key and the same Put succeeds now.
func wantPutAgain(t *testing.T, b *azure.Bucket, look *container.Client, p []byte) {
	t.Helper()
	wantAbsent(t, b, "dir/key")
	n := blocksOf(t, look, "dir/key")
	if n > 0 {
		t.Errorf("%d uncommitted blocks", n)
	}
	obj, err := b.Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	wantStored(t, b, look, obj, p)
}
