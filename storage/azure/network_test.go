package azure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// through is plain with a proxy between client and server.
func through(t *testing.T) (*objectstores.Proxy, azure.Config, *azure.Bucket, *container.Client) {
	t.Helper()
	c, b, look := plain(t)
	s := objectstores.AzurePlain(t)
	proxy := objectstores.NewProxy(t, s.Endpoint)
	c.Endpoint = s.Through(proxy).Endpoint
	return proxy, c, b, look
}

// TestConnectionsAreCut breaks every connection after some bytes: in the head of a request, in the middle of a block,
// at a block's end. Leftovers finds the blocks that Abort could not remove either, once the network is back.
func TestConnectionsAreCut(t *testing.T) {
	for _, n := range []int{0, 100, small.Size / 2, small.Size, small.Size + 1000, 2 * small.Size} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			proxy, c, healthy, look := through(t)
			c.Parts.Workers = 1
			p := noise(8 * small.Size)
			// A block larger than any connection can carry fails in every try.
			if n > small.Size {
				c.Parts.Size = 2 * small.Size
			}
			b := open(t, c)
			proxy.CutAfter(int64(n), objectstores.ToServer)
			obj, err := b.Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{})
			if err == nil {
				t.Fatalf("Put has stored %+v", obj)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %v", err)
			}
			proxy.Clear()
			wantAbsent(t, healthy, "dir/key")
			sweepAll(t, healthy, "")
			wantPutAgain(t, healthy, look, p)
		})
	}
}

// TestConnectionIsReset ends all connections in the middle of a Put and accepts new ones.
func TestConnectionIsReset(t *testing.T) {
	proxy, c, healthy, look := through(t)
	p := noise(8 * small.Size)
	src := &hooked{r: bytes.NewReader(p), at: 4 * small.Size, hook: func() {
		proxy.Cut()
		time.AfterFunc(100*time.Millisecond, proxy.Restore)
	}}
	obj, err := open(t, c).Put(t.Context(), "dir/key", src, storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	wantStored(t, healthy, look, obj, p)
}

// hooked is a reader that calls hook once, after at bytes.
type hooked struct {
	r    io.Reader
	at   int
	hook func()
}

func (h *hooked) Read(p []byte) (int, error) {
	if h.at <= 0 && h.hook != nil {
		h.hook()
		h.hook = nil
	}
	n, err := h.r.Read(p)
	h.at -= n
	return n, err
}

func TestSlowConnection(t *testing.T) {
	proxy, c, healthy, look := through(t)
	proxy.Slow(512 << 10)
	p := noise(4*small.Size + 1)
	slow := open(t, c)
	obj, err := slow.Put(t.Context(), "dir/key", bytes.NewReader(p), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantStored(t, slow, look, obj, p)
	wantStored(t, healthy, look, obj, p)
}

// TestBlackHole checks that a network which swallows everything does not hold a caller who gives up, and that nothing
// appears later.
func TestBlackHole(t *testing.T) {
	proxy, c, healthy, look := through(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := noise(8 * small.Size)
	src := &hooked{r: bytes.NewReader(p), at: 3 * small.Size, hook: func() {
		proxy.BlackHole()
		time.AfterFunc(100*time.Millisecond, cancel)
		time.AfterFunc(300*time.Millisecond, proxy.Clear)
	}}
	_, err := open(t, c).Put(ctx, "dir/key", src, storage.PutOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	wantAbsent(t, healthy, "dir/key")
	sweepAll(t, healthy, "")
	wantPutAgain(t, healthy, look, p)
}

// TestDownloadIsCut checks that a stream that ends early is an error, and that storage.WithRetry continues it where it
// was cut.
func TestDownloadIsCut(t *testing.T) {
	proxy, c, healthy, _ := through(t)
	p := noise(1 << 20)
	_, err := healthy.Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	proxy.CutAfter(300_000, objectstores.ToClient)
	b := open(t, c)
	got, err := read(t, b, "key", storage.OpenOptions{})
	if err == nil || len(got) >= len(p) || !bytes.HasPrefix(p, got) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
	retrying := storage.WithRetry(b, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond})
	got, err = read(t, retrying, "key", storage.OpenOptions{})
	if err != nil || !bytes.Equal(got, p) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}
