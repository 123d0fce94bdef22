package seal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
)

// Recipients are the public keys for which a stream is sealed. The zero value seals without encryption.
type Recipients struct {
	recipients   []func() age.Recipient // hidden: one may hold a passphrase
	fingerprints []string
}

// hidden hides v from fmt. fmt prints unexported fields and follows pointers without calling a String method there, but
// it cannot print the result of a func.
func hidden[T any](v T) func() T { return func() T { return v } }

// ParseRecipients parses age recipients, one a line. It skips empty lines and lines that start with "#".
func ParseRecipients(r io.Reader) (Recipients, error) {
	parsed, err := age.ParseRecipients(r)
	if err != nil {
		return Recipients{}, fmt.Errorf("read recipients: %w", err)
	}
	var to Recipients
	for _, p := range parsed {
		text, ok := p.(fmt.Stringer)
		if !ok {
			return Recipients{}, errors.New("read recipients: a recipient of an unknown kind")
		}
		to = to.with(p, Fingerprint(text.String()))
	}
	return to, nil
}

// PassphraseRecipient returns a recipient that seals with a passphrase (scrypt). age allows no other recipient next to
// it.
func PassphraseRecipient(passphrase string) (Recipients, error) {
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return Recipients{}, fmt.Errorf("use the passphrase: %w", err)
	}
	return Recipients{}.with(r, passphraseFingerprint), nil
}

// And returns the union of two sets of recipients. It returns an error for a passphrase with another recipient, which
// age refuses.
func (r Recipients) And(more Recipients) (Recipients, error) {
	for i, recipient := range more.recipients {
		r = r.with(recipient(), more.fingerprints[i])
	}
	if r.Passphrase() && len(r.fingerprints) > 1 {
		return Recipients{}, errors.New("a passphrase allows no other recipient next to it: use one or the other")
	}
	return r, nil
}

// Passphrase reports whether r is a passphrase. Each seal with a passphrase takes about a second of CPU.
func (r Recipients) Passphrase() bool { return slices.Contains(r.fingerprints, passphraseFingerprint) }

// Seal returns the description of streams that New seals for r.
func (r Recipients) Seal() Seal {
	s := Seal{Compression: "zstd"}
	if len(r.recipients) > 0 {
		s.Encryption, s.Recipients = "age", r.fingerprints
	}
	return s
}

// with returns r and one more recipient. r stays unchanged.
func (r Recipients) with(recipient age.Recipient, fingerprint string) Recipients {
	return Recipients{
		recipients:   append(r.recipients[:len(r.recipients):len(r.recipients)], hidden(recipient)),
		fingerprints: append(r.fingerprints[:len(r.fingerprints):len(r.fingerprints)], fingerprint),
	}
}

// unhidden returns the recipients themselves.
func (r Recipients) unhidden() []age.Recipient {
	all := make([]age.Recipient, len(r.recipients))
	for i, recipient := range r.recipients {
		all[i] = recipient()
	}
	return all
}

const passphraseFingerprint = "passphrase"

// Fingerprint returns the first 16 characters of an age recipient: "age1" and 55 random bits, enough to distinguish
// keys, and short enough to compare with a public key by eye.
func Fingerprint(recipient string) string {
	return recipient[:min(16, len(recipient))]
}

// Keys are the secret keys. No fmt verb prints them.
type Keys struct{ keys []key }

type key struct {
	identity    func() age.Identity
	secret      func() string // the text from which identity was parsed, for Secrets
	fingerprint string
}

func newKey(identity age.Identity, secret, fingerprint string) key {
	return key{hidden(identity), hidden(secret), fingerprint}
}

// ParseKeys parses age identities in the format of age-keygen: one a line, comments start with "#".
func ParseKeys(r io.Reader) (Keys, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Keys{}, fmt.Errorf("read keys: %w", err)
	}
	var keys Keys
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parsed, err := parseKey(line)
		if err != nil {
			// The error must not contain the line, which may be a secret with a typing error.
			return Keys{}, errors.New("read keys: a line is not an age identity (it should start with AGE-SECRET-KEY-1)")
		}
		keys.keys = append(keys.keys, parsed)
	}
	if len(keys.keys) == 0 {
		return Keys{}, errors.New("read keys: the file contains no age identity")
	}
	return keys, nil
}

func parseKey(line string) (key, error) {
	identities, err := age.ParseIdentities(strings.NewReader(line))
	if err != nil {
		return key{}, err
	}
	switch i := identities[0].(type) {
	case *age.X25519Identity:
		return newKey(i, line, Fingerprint(i.Recipient().String())), nil
	case *age.HybridIdentity:
		return newKey(i, line, Fingerprint(i.Recipient().String())), nil
	}
	return key{}, errors.New("unknown kind")
}

// Passphrase returns the key for streams that PassphraseRecipient sealed.
func Passphrase(passphrase string) (Keys, error) {
	i, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return Keys{}, fmt.Errorf("use the passphrase: %w", err)
	}
	return Keys{[]key{newKey(i, passphrase, passphraseFingerprint)}}, nil
}

// And returns the union of two sets of keys.
func (k Keys) And(more Keys) Keys {
	return Keys{append(k.keys[:len(k.keys):len(k.keys)], more.keys...)}
}

// None reports whether there is no key at all.
func (k Keys) None() bool { return len(k.keys) == 0 }

// keyFor returns the fingerprint of a key that should open a stream for the recipients, and reports whether there is one.
// It ignores passphrases, because all of them have the same fingerprint.
func (k Keys) keyFor(recipients []string) (fingerprint string, ok bool) {
	for _, key := range k.keys {
		if key.fingerprint != passphraseFingerprint && slices.Contains(recipients, key.fingerprint) {
			return key.fingerprint, true
		}
	}
	return "", false
}

// String returns the number of keys, so that %v and logs do not show them.
func (k Keys) String() string { return fmt.Sprintf("%d keys", len(k.keys)) }

// Secrets returns the keys as text, age identities apart from passphrases, to send them to a child process through a
// pipe. They must appear neither in argv nor in a log.
func (k Keys) Secrets() (identities, passphrases []string) {
	for _, key := range k.keys {
		if key.fingerprint == passphraseFingerprint {
			passphrases = append(passphrases, key.secret())
		} else {
			identities = append(identities, key.secret())
		}
	}
	return identities, passphrases
}

// Generate returns a new X25519 pair: the identity, which is secret, and the recipient to seal for.
func Generate() (identity, recipient string, err error) {
	i, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("generate a key: %w", err)
	}
	return i.String(), i.Recipient().String(), nil
}

// identities returns the keys as age identities. The one that opens the stream writes its fingerprint to used.
func (k Keys) identities(used *string) []age.Identity {
	wrapped := make([]age.Identity, len(k.keys))
	for i, key := range k.keys {
		wrapped[i] = recorder{key, used}
	}
	return wrapped
}

// recorder is an age.Identity that writes the fingerprint of key to used when key has opened a stream.
type recorder struct {
	key  key
	used *string
}

func (r recorder) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	fileKey, err := r.key.identity().Unwrap(stanzas)
	if err == nil {
		*r.used = r.key.fingerprint
	}
	return fileKey, err
}
