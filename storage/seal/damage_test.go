package seal_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// object is a small sealed stream and the keys that open it.
type object struct {
	name    string
	content []byte
	stored  []byte
	seal    seal.Seal
	keys    seal.Keys
}

// objects returns small ones, plain and encrypted, with compressed and with raw blocks.
func objects(t *testing.T) []object {
	t.Helper()
	key, other := newPair(t), newPair(t)
	two := parseRecipients(t, key.recipient, other.recipient)
	var all []object
	for _, o := range []struct {
		name    string
		content []byte
		to      seal.Recipients
	}{
		{"plain text", text(300), seal.Recipients{}},
		{"plain noise", noise(100), seal.Recipients{}},
		{"plain empty", nil, seal.Recipients{}},
		{"encrypted text", text(300), key.to},
		{"encrypted for two", noise(50), two},
		{"encrypted empty", nil, key.to},
	} {
		all = append(all, object{o.name, o.content, sealed(t, o.content, o.to), o.to.Seal(), key.keys})
	}
	return all
}

// open opens stored, and fails the test if it succeeds with other content.
func (o object) open(t *testing.T, stored []byte) error {
	t.Helper()
	plain, _, err := open(bytes.NewReader(stored), o.seal, o.keys)
	if err == nil && !bytes.Equal(plain, o.content) {
		t.Errorf("%s: %d other bytes end as if they were whole", o.name, len(plain))
	}
	return err
}

func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	for _, o := range objects(t) {
		t.Run(o.name, func(t *testing.T) {
			for at := range o.stored {
				for _, mask := range []byte{0x01, 0x20, 0x80, 0xff} {
					stored := slices.Clone(o.stored)
					stored[at] ^= mask
					o.wantDamage(t, at, mask, o.open(t, stored))
				}
			}
		})
	}
}

func (o object) wantDamage(t *testing.T, at int, mask byte, err error) {
	t.Helper()
	// zstd can encode the same content differently, for example with another window size; o.open has compared the
	// content.
	sameContent := err == nil && o.seal.Encryption == ""
	if !errors.Is(err, seal.ErrDamaged) && !sameContent {
		t.Errorf("byte %d of %d ^ %#x: %v", at, len(o.stored), mask, err)
	}
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	for _, o := range objects(t) {
		t.Run(o.name, func(t *testing.T) {
			for size := range o.stored {
				err := o.open(t, o.stored[:size])
				if !errors.Is(err, seal.ErrDamaged) {
					t.Errorf("cut to %d of %d bytes: %v", size, len(o.stored), err)
				}
			}
		})
	}
}

// TestTruncatedLarge cuts at the borders of age's chunks and zstd's blocks.
func TestTruncatedLarge(t *testing.T) {
	t.Parallel()
	key := newPair(t)
	const chunk = 64<<10 + 16
	for _, to := range []seal.Recipients{{}, key.to} {
		o := object{"large", noise(400_000), nil, to.Seal(), key.keys}
		o.stored = sealed(t, o.content, to)
		begin := 0
		if o.seal.Encryption != "" {
			last := bytes.Index(o.stored, []byte("\n--- ")) + 1 // the last line of the header
			begin = last + bytes.IndexByte(o.stored[last:], '\n') + 1 + 16
		}
		for border := begin; border < len(o.stored); border += chunk {
			for _, size := range []int{border - 1, border, border + 1, border + 17} {
				if size < 0 || size >= len(o.stored) {
					continue
				}
				err := o.open(t, o.stored[:size])
				if !errors.Is(err, seal.ErrDamaged) {
					t.Errorf("%q cut to %d of %d bytes: %v", o.seal.Extension(), size, len(o.stored), err)
				}
			}
		}
	}
}

// TestAppended checks that nothing may follow the sealed stream. (A plain stream may be followed by another whole zstd
// frame, as with zstd -d; the digest in the manifest detects that.)
func TestAppended(t *testing.T) {
	for _, o := range objects(t) {
		for _, more := range [][]byte{{0}, {0x28}, {0, 0}, {0x28, 0xb5, 0x2f}, {0x28, 0xb5, 0x2f, 0xfd}, []byte("\n"), text(100), noise(70_000)} {
			err := o.open(t, slices.Concat(o.stored, more))
			if !errors.Is(err, seal.ErrDamaged) {
				t.Errorf("%s and %d bytes: %v", o.name, len(more), err)
			}
		}
		if o.seal.Encryption == "" {
			continue
		}
		err := o.open(t, slices.Concat(o.stored, o.stored))
		if !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("%s twice: %v", o.name, err)
		}
	}
}

// TestOtherKinds opens streams with the wrong Seal.
func TestOtherKinds(t *testing.T) {
	key := newPair(t)
	plain, encrypted := seal.Recipients{}.Seal(), key.to.Seal()
	for name, c := range map[string]struct {
		stored []byte
		s      seal.Seal
	}{
		"not sealed at all":             {text(100), plain},
		"not sealed at all, encrypted":  {text(100), encrypted},
		"plain, said to be encrypted":   {sealed(t, text(100), seal.Recipients{}), encrypted},
		"encrypted, said to be plain":   {sealed(t, text(100), key.to), plain},
		"encrypted twice":               {twice(t, key), encrypted},
		"encrypted but not compressed":  {encryptedOnly(t, key, text(100)), encrypted},
		"nothing but compressed before": {encryptedOnly(t, key, nil), encrypted},
	} {
		_, _, err := open(bytes.NewReader(c.stored), c.s, key.keys)
		if !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOpen checks that Open never panics, and that every error is damage or a wrong key.
func FuzzOpen(f *testing.F) {
	key := newPair(f)
	for _, to := range []seal.Recipients{{}, key.to} {
		f.Add(sealed(f, text(100), to), to.Seal().Encryption)
	}
	f.Fuzz(func(t *testing.T, stored []byte, encryption string) {
		s := seal.Seal{Compression: "zstd", Encryption: encryption}
		opened, err := seal.Open(bytes.NewReader(stored), s, key.keys)
		if err == nil {
			_, err = io.CopyN(io.Discard, opened, 1<<20) // a few sealed bytes may expand to gigabytes
			opened.Close()
		}
		known := err == nil || err == io.EOF || errors.Is(err, seal.ErrDamaged) || errors.Is(err, seal.ErrWrongKey)
		if !known && s.Validate() == nil {
			t.Error(err)
		}
	})
}
