package seal_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// pair is a key and its recipient, in every form that the tests need.
type pair struct {
	identity, recipient string
	keys                seal.Keys
	to                  seal.Recipients
}

func newPair(tb testing.TB) pair {
	tb.Helper()
	identity, recipient, err := seal.Generate()
	if err != nil {
		tb.Fatal(err)
	}
	return pair{identity, recipient, parseKeys(tb, identity), parseRecipients(tb, recipient)}
}

func (p pair) fingerprint() string { return seal.Fingerprint(p.recipient) }

func parseKeys(tb testing.TB, lines ...string) seal.Keys {
	tb.Helper()
	keys, err := seal.ParseKeys(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func parseRecipients(tb testing.TB, lines ...string) seal.Recipients {
	tb.Helper()
	to, err := seal.ParseRecipients(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		tb.Fatal(err)
	}
	return to
}

// noise returns n bytes that do not compress, the same ones each time.
func noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(p) // never fails
	return p
}

// text returns n bytes that compress well.
func text(n int) []byte {
	const line = "/registry/pods/default/web-0 is running, and so is its neighbour; "
	return []byte(strings.Repeat(line, n/len(line)+1)[:n])
}

func sealed(tb testing.TB, plain []byte, to seal.Recipients) []byte {
	tb.Helper()
	stream, err := seal.New(bytes.NewReader(plain), to)
	if err != nil {
		tb.Fatal(err)
	}
	defer stream.Close()
	p, err := io.ReadAll(stream)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// open reads the whole stream. It returns the error of Open or of the first Read that failed, and nil for io.EOF.
func open(src io.Reader, s seal.Seal, keys seal.Keys) (plain []byte, key string, err error) {
	opened, err := seal.Open(src, s, keys)
	if err != nil {
		return nil, "", err
	}
	plain, err = io.ReadAll(opened)
	return plain, opened.Key, errors.Join(err, opened.Close())
}

func mustOpen(tb testing.TB, sealed []byte, s seal.Seal, keys seal.Keys) (plain []byte, key string) {
	tb.Helper()
	plain, key, err := open(bytes.NewReader(sealed), s, keys)
	if err != nil {
		tb.Fatal(err)
	}
	return plain, key
}

// source yields data and then err, in a Read of its own or together with the last bytes. After that it yields io.EOF:
// its reader must remember err.
type source struct {
	data     []byte
	err      error
	together bool
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.data)
	s.data = s.data[n:]
	if len(s.data) > 0 || n > 0 && !s.together {
		return n, nil
	}
	err := s.err
	s.err = io.EOF
	return n, err
}
