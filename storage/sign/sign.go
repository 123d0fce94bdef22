// Package sign makes and checks signatures in minisign's format (https://jedisct1.github.io/minisign), so that its own
// tool checks ours.
//
// Encryption hides what is stored, and anybody can encrypt for a recipient; only a signature tells who wrote it.
package sign

import (
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrUntrusted: nobody who is trusted has signed this.
	ErrUntrusted = errors.New("not signed by a trusted key")
	// ErrKey: a key cannot be used as it is.
	ErrKey = errors.New("bad signing key")
)

// Key signs. The zero Key signs nothing.
type Key struct {
	private minisign.PrivateKey
	some    bool
}

// Generate makes a key pair: secret is what `minisign -G -W` writes, a file without a password, and public one line of
// base64 as `minisign -V -P` takes it.
func Generate() (secret []byte, public string, err error) {
	pub, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return nil, "", err
	}
	secret, err = private.MarshalText()
	return secret, pub.String(), err
}

// ParseKey reads the text of a secret key's file. One with a password is refused: nobody is there to type it when a
// backup is due. Errors match ErrKey and hold nothing of the key.
func ParseKey(text []byte) (Key, error) {
	if minisign.IsEncrypted(text) {
		return Key{}, fmt.Errorf("%w: it has a password: make one without by dr keygen --signing or minisign -G -W", ErrKey)
	}
	k := Key{some: true}
	if err := k.private.UnmarshalText(text); err != nil {
		return Key{}, fmt.Errorf("%w: it is no secret key of minisign", ErrKey)
	}
	return k, nil
}

// None says that nothing will be signed.
func (k Key) None() bool { return !k.some }

// Sign is the signature of message: the text of a .minisig file, or "" without a key.
func (k Key) Sign(message []byte) string {
	if k.None() {
		return ""
	}
	return string(minisign.SignWithComments(k.private, message, "written by dr", "signature of dr"))
}

// Trust is the set of k's own public key alone, empty without a key.
func (k Key) Trust() Trust {
	if k.None() {
		return Trust{}
	}
	public := k.private.Public().(minisign.PublicKey) // as minisign documents it
	return Trust{keys: []minisign.PublicKey{public}, texts: []string{public.String()}}
}

// MaxSignature is how many bytes a signature that this package makes has at most.
const MaxSignature = 512

// Trust is a set of public keys. The zero Trust asks for no signature.
type Trust struct {
	keys  []minisign.PublicKey
	texts []string
}

// ParseTrust reads public keys, each the text of a .pub file or its line of base64. Errors match ErrKey, and do not repeat
// a text: it may be another kind of key, given by mistake.
func ParseTrust(texts ...string) (Trust, error) {
	var t Trust
	for i, text := range texts {
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
			return Trust{}, fmt.Errorf("%w: key %d is no public key of minisign, one line that begins with RW, nor a file of one",
				ErrKey, i+1)
		}
		t.keys = append(t.keys, key)
		t.texts = append(t.texts, key.String())
	}
	return t, nil
}

// None says that no signature is asked for.
func (t Trust) None() bool { return len(t.keys) == 0 }

// Keys are the public keys, as ParseTrust takes them.
func (t Trust) Keys() []string { return t.texts }

// Check returns an error that matches ErrUntrusted unless signature is one of message by one of the keys. The zero Trust
// checks nothing.
func (t Trust) Check(message []byte, signature string) error {
	if t.None() {
		return nil
	}
	if signature == "" {
		return fmt.Errorf("%w: it has no signature", ErrUntrusted)
	}
	var parsed minisign.Signature
	if err := parsed.UnmarshalText([]byte(signature)); err != nil {
		return fmt.Errorf("%w: its signature is none of minisign's", ErrUntrusted)
	}
	for _, key := range t.keys {
		if key.ID() == parsed.KeyID && minisign.Verify(key, message, []byte(signature)) {
			return nil
		}
	}
	return fmt.Errorf("%w: key %016X has signed it, or somebody who says so", ErrUntrusted, parsed.KeyID)
}
