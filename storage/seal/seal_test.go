package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	a, b := newPair(t), newPair(t)
	kinds := []struct {
		name      string
		to        seal.Recipients
		keys      seal.Keys
		extension string
	}{
		{"plain", seal.Recipients{}, seal.Keys{}, ".zst"},
		{"one", a.to, a.keys, ".zst.age"},
		{"two", parseRecipients(t, a.recipient, b.recipient), b.keys, ".zst.age"},
	}
	for _, kind := range kinds {
		for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 3<<20 + 7} {
			for name, content := range map[string][]byte{"noise": noise(size), "text": text(size)} {
				t.Run(fmt.Sprintf("%s/%s/%d", kind.name, name, size), func(t *testing.T) {
					got := kind.to.Seal().Extension()
					if got != kind.extension {
						t.Errorf("extension %q, want %q", got, kind.extension)
					}
					stored := sealed(t, content, kind.to)
					if name == "text" && size > 1<<20 && len(stored) > size/10 {
						t.Errorf("%d bytes of text have become %d", size, len(stored))
					}
					plain, _ := mustOpen(t, stored, kind.to.Seal(), kind.keys)
					if !bytes.Equal(plain, content) {
						t.Errorf("%d other bytes came out", len(plain))
					}
				})
			}
		}
	}
}

// TestRoundTripInPieces checks that streams may be cut anywhere.
func TestRoundTripInPieces(t *testing.T) {
	key, content := newPair(t), text(10_000)
	stream, err := seal.New(iotest.DataErrReader(iotest.OneByteReader(bytes.NewReader(content))), key.to)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	stored, err := io.ReadAll(iotest.HalfReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := open(iotest.DataErrReader(iotest.OneByteReader(bytes.NewReader(stored))), key.to.Seal(), key.keys)
	if err != nil || !bytes.Equal(plain, content) {
		t.Errorf("%d bytes, %v", len(plain), err)
	}
}

// TestPassphrase runs scrypt twice, which takes seconds by design.
func TestPassphrase(t *testing.T) {
	if testing.Short() {
		t.Skip("scrypt takes seconds")
	}
	t.Parallel()
	to, err := seal.PassphraseRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	got := to.Seal()
	if got.Encryption != "age" || !slices.Equal(got.Recipients, []string{"passphrase"}) {
		t.Errorf("seal %+v", got)
	}
	plain, key := mustOpen(t, sealed(t, text(100), to), to.Seal(), passphrase(t, "correct horse"))
	if key != "passphrase" || !bytes.Equal(plain, text(100)) {
		t.Errorf("opened with %q: %q", key, plain)
	}
}

func TestPassphraseAmongKeys(t *testing.T) {
	const phrase = "correct horse"
	stored, other := weaklySealed(t, text(100), phrase), newPair(t)
	s := seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"passphrase"}}
	plain, key := mustOpen(t, stored, s, other.keys.And(passphrase(t, phrase)))
	if key != "passphrase" || !bytes.Equal(plain, text(100)) {
		t.Errorf("opened with %q: %q", key, plain)
	}
	for name, keys := range map[string]seal.Keys{"passphrase": passphrase(t, "battery staple"), "identity": other.keys} {
		_, _, err := open(bytes.NewReader(stored), s, keys)
		wantWrongKey(t, name, err, "passphrase")
		if err != nil && strings.Contains(err.Error(), "staple") {
			t.Errorf("the error tells the passphrase: %v", err)
		}
	}
}

func passphrase(t *testing.T, text string) seal.Keys {
	t.Helper()
	keys, err := seal.Passphrase(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// wantWrongKey fails unless err is ErrWrongKey, not ErrDamaged, and names the recipients.
func wantWrongKey(t *testing.T, what string, err error, names ...string) {
	t.Helper()
	if !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, seal.ErrDamaged) {
		t.Errorf("%s: %v, want one that is %v", what, err, seal.ErrWrongKey)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v does not name %s", what, err, name)
		}
	}
}

func TestEachRecipientOpens(t *testing.T) {
	pairs := []pair{newPair(t), newPair(t), newPair(t)}
	var to seal.Recipients
	var names []string
	for _, p := range pairs {
		var err error
		to, err = to.And(p.to)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, p.fingerprint())
	}
	got := to.Seal().Recipients
	if !slices.Equal(got, names) {
		t.Errorf("recipients %q, want %q", got, names)
	}
	stored, stranger := sealed(t, text(1000), to), newPair(t)
	for i, p := range pairs {
		for name, keys := range map[string]seal.Keys{"alone": p.keys, "behind another": stranger.keys.And(p.keys)} {
			plain, key := mustOpen(t, stored, to.Seal(), keys)
			if key != p.fingerprint() || !bytes.Equal(plain, text(1000)) {
				t.Errorf("key %d %s: opened with %q, want %q; %d bytes", i, name, key, p.fingerprint(), len(plain))
			}
		}
	}
	_, _, err := open(bytes.NewReader(stored), to.Seal(), stranger.keys)
	wantWrongKey(t, "a stranger's key", err, names...)
	_, _, err = open(bytes.NewReader(stored), to.Seal(), seal.Keys{})
	wantWrongKey(t, "no key", err, append(names, "no key was given", "--identity")...)
}

// TestSameSetTwice checks that And does not change the sets that it joins, even if they share memory.
func TestSameSetTwice(t *testing.T) {
	a, b, c := newPair(t), newPair(t), newPair(t)
	both := parseRecipients(t, a.recipient, b.recipient)
	with, err := both.And(c.to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = both.And(a.to)
	if err != nil {
		t.Fatal(err)
	}
	got := with.Seal().Recipients
	if !slices.Equal(got, []string{a.fingerprint(), b.fingerprint(), c.fingerprint()}) {
		t.Errorf("recipients %q", got)
	}
	keys := a.keys.And(b.keys)
	withC, _ := keys.And(c.keys), keys.And(a.keys)
	got, _ = withC.Secrets()
	if !slices.Equal(got, []string{a.identity, b.identity, c.identity}) {
		t.Error("keys have changed under the set that holds them")
	}
}

func TestPlainNeedsNoKey(t *testing.T) {
	stored, key := sealed(t, text(100), seal.Recipients{}), newPair(t)
	for name, keys := range map[string]seal.Keys{"none": {}, "one": key.keys} {
		plain, used := mustOpen(t, stored, seal.Recipients{}.Seal(), keys)
		if used != "" || !bytes.Equal(plain, text(100)) {
			t.Errorf("%s: opened with %q: %q", name, used, plain)
		}
	}
}

func TestUnknownSealIsRefused(t *testing.T) {
	for _, s := range []seal.Seal{
		{}, {Compression: "lz4"}, {Compression: "zstd", Encryption: "rot13"}, {Encryption: "age"},
	} {
		if s.Validate() == nil {
			t.Errorf("%+v is valid", s)
		}
		_, err := seal.Open(strings.NewReader("x"), s, seal.Keys{})
		if err == nil || errors.Is(err, seal.ErrDamaged) || !strings.Contains(err.Error(), "version of dr") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

var errSource = errors.New("the source has failed")

// brokenSources calls do with sources that fail at various places, each with errors that a decoder might take for an
// end.
func brokenSources(data []byte, do func(name string, src io.Reader, want error)) {
	errs := []error{errSource, io.ErrUnexpectedEOF, fmt.Errorf("vetoed: %w", io.EOF), io.ErrClosedPipe}
	for _, at := range []int{0, 1, 20, len(data) / 2, len(data) - 1, len(data)} {
		for _, err := range errs {
			for _, together := range []bool{false, true} {
				name := fmt.Sprintf("%q at %d of %d, together %v", err, at, len(data), together)
				do(name, &source{data[:at], err, together}, err)
			}
		}
	}
}

func TestSourceErrorSealing(t *testing.T) {
	t.Parallel()
	key := newPair(t)
	for _, to := range []seal.Recipients{{}, key.to} {
		for _, content := range [][]byte{text(1000), noise(300_000)} {
			brokenSources(content, func(name string, src io.Reader, want error) {
				stream, err := seal.New(src, to)
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				for range 2 { // it stays broken
					_, err := io.ReadAll(stream)
					if err != want {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
}

func TestSourceErrorOpening(t *testing.T) {
	t.Parallel()
	key := newPair(t)
	for _, to := range []seal.Recipients{{}, key.to} {
		for _, content := range [][]byte{text(1000), noise(300_000)} {
			brokenSources(sealed(t, content, to), func(name string, src io.Reader, want error) {
				_, _, err := open(src, to.Seal(), key.keys)
				if !errors.Is(err, want) || errors.Is(err, seal.ErrDamaged) || errors.Is(err, seal.ErrWrongKey) {
					t.Errorf("%s with %q: %v", name, to.Seal().Extension(), err)
				}
			})
		}
	}
}

func TestErrorStays(t *testing.T) {
	stored := sealed(t, text(100_000), seal.Recipients{})
	for name, src := range map[string]io.Reader{
		"damage": bytes.NewReader(stored[:len(stored)-1]),
		"source": &source{data: stored[:len(stored)/2], err: errSource},
		"end":    bytes.NewReader(stored),
	} {
		opened, err := seal.Open(src, seal.Recipients{}.Seal(), seal.Keys{})
		if err != nil {
			t.Fatal(err)
		}
		_, first := io.Copy(io.Discard, opened)
		if first == nil {
			first = io.EOF
		}
		n, err := opened.Read(make([]byte, 10))
		if n != 0 || err == nil || err.Error() != first.Error() {
			t.Errorf("%s: first %v, then %d bytes, %v", name, first, n, err)
		}
		opened.Close()
		n, err = opened.Read(make([]byte, 10))
		if n != 0 || err == nil || err == io.EOF || errors.Is(err, seal.ErrDamaged) {
			t.Errorf("%s: a Read after Close gives %d bytes, %v", name, n, err)
		}
		err = opened.Close()
		if err != nil {
			t.Errorf("%s: second Close: %v", name, err)
		}
	}
}

// held is a source that hangs in its second Read until it is released.
type held struct {
	data              []byte
	reads             int
	inRead, released  chan struct{}
	readsAfterRelease int
}

func (h *held) Read(p []byte) (int, error) {
	h.reads++
	if h.reads == 2 {
		close(h.inRead)
		<-h.released
	}
	if h.reads > 2 {
		h.readsAfterRelease++
	}
	return copy(p, h.data), nil // never ends
}

// TestCloseWaits checks that the owner of the source may close it as soon as Close has returned. The bubble fails if a
// goroutine remains.
func TestCloseWaits(t *testing.T) {
	key := newPair(t)
	for name, to := range map[string]seal.Recipients{"plain": {}, "encrypted": key.to} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { closeWaits(t, to) })
		})
	}
}

func closeWaits(t *testing.T, to seal.Recipients) {
	src := &held{data: noise(1000), inRead: make(chan struct{}), released: make(chan struct{})}
	stream, err := seal.New(src, to)
	if err != nil {
		t.Fatal(err)
	}
	<-src.inRead
	closed := false
	go func() {
		err := stream.Close()
		if err != nil {
			t.Error(err)
		}
		closed = true
	}()
	synctest.Wait()
	if closed {
		t.Error("Close is back while the source is being read")
	}
	close(src.released)
	synctest.Wait()
	if !closed {
		t.Fatal("Close is not back")
	}
	after := src.reads
	_, err = io.Copy(io.Discard, stream)
	if err == nil {
		t.Error("a closed stream ends as if it were whole")
	}
	if src.reads != after {
		t.Error("the source was read after Close")
	}
}

// TestCloseUnread checks that both sides may be closed before their end.
func TestCloseUnread(t *testing.T) {
	key := newPair(t)
	stored := sealed(t, noise(2<<20), key.to)
	synctest.Test(t, func(t *testing.T) {
		for _, read := range []int{0, 1, 100_000} {
			stream, err := seal.New(bytes.NewReader(noise(2<<20)), key.to)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := seal.Open(bytes.NewReader(stored), key.to.Seal(), key.keys)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []io.ReadCloser{stream, opened} {
				_, err := io.CopyN(io.Discard, r, int64(read))
				if err != nil {
					t.Error(err)
				}
				for range 2 {
					err := r.Close()
					if err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

// rows is a source of left bytes that resembles a database: a quarter is noise, the rest compresses.
type rows struct {
	left  int
	noise *rand.ChaCha8
	text  []byte
}

func newRows(size int) *rows {
	return &rows{size, rand.NewChaCha8([32]byte{}), text(16 << 10)}
}

func (r *rows) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.left)], r.text)
	r.noise.Read(p[:n/4]) // never fails
	r.left -= n
	return n, nil
}

// TestMemory passes a quarter of a GiB through both sides and checks that neither keeps more than a few windows of it.
func TestMemory(t *testing.T) {
	if testing.Short() {
		return
	}
	const size, allowed = 256 << 20, 96 << 20
	key := newPair(t)
	stream, err := seal.New(newRows(size), key.to)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	start := heap()
	opened, err := seal.Open(stream, key.to.Seal(), key.keys)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var total int64
	for most := uint64(0); ; {
		n, err := io.CopyN(io.Discard, opened, 8<<20)
		total += n
		most = max(most, heap())
		if most > start+allowed {
			t.Fatalf("the heap has grown from %d to %d MiB after %d MiB", start>>20, most>>20, total>>20)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if total != size {
		t.Errorf("%d bytes of %d came out", total, size)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
