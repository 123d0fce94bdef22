// Package sign creates and checks signatures in minisign's format (https://jedisct1.github.io/minisign), so that the
// minisign tool can check them too.
//
// Encryption hides the content, but any program can encrypt for a recipient. Only a signature identifies the writer.
package sign

import (
	"fmt"
	"strings"

	"aead.dev/minisign"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrUntrusted means that no trusted key has signed the message.
	ErrUntrusted = fault.New(fault.Damaged, "not signed by a trusted key")
	// ErrKey means that a key is not usable.
	ErrKey = fault.New(fault.Usage, "bad key for signatures")
)

// Key is a secret key. The zero Key signs nothing.
type Key struct {
	private minisign.PrivateKey
	some    bool // false in the zero Key
}

// Generate returns a new key pair. secret is a file without a password, as `minisign -G -W` writes it, and public is
// the line of base64 that `minisign -V -P` expects.
func Generate() (secret []byte, public string, err error) {
	pub, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return nil, "", err
	}
	secret, err = private.MarshalText()
	return secret, pub.String(), err
}

// ParseKey parses the text of a secret key's file. It refuses a key with a password, because no person is present to
// enter it when a backup is due. Errors match ErrKey and contain nothing of the key.
func ParseKey(text []byte) (Key, error) {
	if minisign.IsEncrypted(text) {
		return Key{}, fmt.Errorf("%w: it has a password: create one without a password with dr keygen --signing or minisign -G -W", ErrKey)
	}
	k := Key{some: true}
	err := k.private.UnmarshalText(text)
	if err != nil {
		return Key{}, fmt.Errorf("%w: it is not a minisign secret key: create one with dr keygen --signing", ErrKey)
	}
	return k, nil
}

// None reports whether k is the zero Key.
func (k Key) None() bool { return !k.some }

// Sign returns the signature of message: the text of a .minisig file, or "" without a key.
func (k Key) Sign(message []byte) string {
	if k.None() {
		return ""
	}
	return string(minisign.SignWithComments(k.private, message, "written by dr", "signature of dr"))
}

// Trust returns the set with only k's own public key. Without a key it is empty.
func (k Key) Trust() Trust {
	if k.None() {
		return Trust{}
	}
	public := k.private.Public().(minisign.PublicKey) // as minisign documents it
	return Trust{keys: []minisign.PublicKey{public}, texts: []string{public.String()}}
}

// MaxSignature is the largest size in bytes of a signature from this package.
const MaxSignature = 512

// Trust is a set of public keys. The zero Trust requires no signature.
type Trust struct {
	keys  []minisign.PublicKey
	texts []string // of the keys, for Keys
}

// ParseTrust parses public keys, each the text of a .pub file or its line of base64. Errors match ErrKey. They do not
// repeat the text, which may be another kind of key, given by mistake.
func ParseTrust(texts ...string) (Trust, error) {
	var t Trust
	for i, text := range texts {
		var key minisign.PublicKey
		err := key.UnmarshalText([]byte(strings.TrimSpace(text)))
		if err != nil {
			return Trust{}, fmt.Errorf("%w: key %d is not a minisign public key: use one line that begins with RW, or a file with one",
				ErrKey, i+1)
		}
		t.keys = append(t.keys, key)
		t.texts = append(t.texts, key.String())
	}
	return t, nil
}

// None reports whether no signature is required.
func (t Trust) None() bool { return len(t.keys) == 0 }

// Keys returns the public keys in the format of ParseTrust.
func (t Trust) Keys() []string { return t.texts }

// Check returns an error that matches ErrUntrusted unless signature is a signature of message by one of the keys. The
// zero Trust checks nothing.
func (t Trust) Check(message []byte, signature string) error {
	if t.None() {
		return nil
	}
	if signature == "" {
		return fmt.Errorf("%w: it has no signature", ErrUntrusted)
	}
	var parsed minisign.Signature
	err := parsed.UnmarshalText([]byte(signature))
	if err != nil {
		return fmt.Errorf("%w: its signature is not in minisign's format", ErrUntrusted)
	}
	for _, key := range t.keys {
		if key.ID() == parsed.KeyID && minisign.Verify(key, message, []byte(signature)) {
			return nil
		}
	}
	return fmt.Errorf("%w: its signature names key %016X, which is not trusted or did not sign it", ErrUntrusted, parsed.KeyID)
}
