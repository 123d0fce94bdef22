package seal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
)

// Recipients are the public halves of the keys that may open what is sealed for them. The zero value seals without
// encryption.
type Recipients struct {
	recipients   []func() age.Recipient // hidden: one may hold a passphrase
	fingerprints []string
}

// hidden keeps v from fmt, which prints what is in unexported fields and behind pointers too, and calls no String
// method there: no verb looks into a func.
func hidden[T any](v T) func() T { return func() T { return v } }

// ParseRecipients reads age recipients, one a line; empty lines and lines that start with "#" are skipped.
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

// PassphraseRecipient seals with a passphrase (scrypt). age allows no other recipient beside it.
func PassphraseRecipient(passphrase string) (Recipients, error) {
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return Recipients{}, fmt.Errorf("use the passphrase: %w", err)
	}
	return Recipients{}.with(r, passphraseFingerprint), nil
}

// And joins two sets of recipients. A passphrase joins nothing: age refuses it.
func (r Recipients) And(more Recipients) (Recipients, error) {
	for i, recipient := range more.recipients {
		r = r.with(recipient(), more.fingerprints[i])
	}
	if r.Passphrase() && len(r.fingerprints) > 1 {
		return Recipients{}, errors.New("a passphrase allows no other recipient beside it: use one or the other")
	}
	return r, nil
}

// Passphrase reports whether r is a passphrase: each seal with it takes about a second of CPU.
func (r Recipients) Passphrase() bool { return slices.Contains(r.fingerprints, passphraseFingerprint) }

// Seal describes what New makes for these recipients.
func (r Recipients) Seal() Seal {
	s := Seal{Compression: "zstd"}
	if len(r.recipients) > 0 {
		s.Encryption, s.Recipients = "age", r.fingerprints
	}
	return s
}

func (r Recipients) with(recipient age.Recipient, fingerprint string) Recipients {
	return Recipients{
		recipients:   append(r.recipients[:len(r.recipients):len(r.recipients)], hidden(recipient)),
		fingerprints: append(r.fingerprints[:len(r.fingerprints):len(r.fingerprints)], fingerprint),
	}
}

func (r Recipients) unhidden() []age.Recipient {
	all := make([]age.Recipient, len(r.recipients))
	for i, recipient := range r.recipients {
		all[i] = recipient()
	}
	return all
}

const passphraseFingerprint = "passphrase"

// Fingerprint shortens an age recipient to its first 16 characters: 55 random bits after "age1", enough to tell keys
// apart, and a person can compare it with a public key by eye.
func Fingerprint(recipient string) string {
	return recipient[:min(16, len(recipient))]
}

// Keys are the secret halves. They never print themselves.
type Keys struct{ keys []key }

type key struct {
	identity    func() age.Identity
	secret      func() string // the text it was parsed from, for Secrets
	fingerprint string
}

func newKey(identity age.Identity, secret, fingerprint string) key {
	return key{hidden(identity), hidden(secret), fingerprint}
}

// ParseKeys reads age identities as age-keygen writes them: one a line, comments start with "#".
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
			// The line itself stays out of the error: it may be a secret with a slip of the pen.
			return Keys{}, errors.New("read keys: a line is no age identity (it should start with AGE-SECRET-KEY-1)")
		}
		keys.keys = append(keys.keys, parsed)
	}
	if len(keys.keys) == 0 {
		return Keys{}, errors.New("read keys: no age identity in it")
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

// Passphrase is the key for what PassphraseRecipient sealed.
func Passphrase(passphrase string) (Keys, error) {
	i, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return Keys{}, fmt.Errorf("use the passphrase: %w", err)
	}
	return Keys{[]key{newKey(i, passphrase, passphraseFingerprint)}}, nil
}

// And joins two sets of keys.
func (k Keys) And(more Keys) Keys {
	return Keys{append(k.keys[:len(k.keys):len(k.keys)], more.keys...)}
}

// None reports whether there is no key at all.
func (k Keys) None() bool { return len(k.keys) == 0 }

// among finds a key that ought to fit. A passphrase never does: any two have the same fingerprint.
func (k Keys) among(recipients []string) (fingerprint string, ok bool) {
	for _, key := range k.keys {
		if key.fingerprint != passphraseFingerprint && slices.Contains(recipients, key.fingerprint) {
			return key.fingerprint, true
		}
	}
	return "", false
}

// String hides the keys from %v and from logs.
func (k Keys) String() string { return fmt.Sprintf("%d keys", len(k.keys)) }

// Secrets are the keys as text, for handing them to a child process through a pipe: age identities and passphrases
// apart. They must reach neither argv nor a log.
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

// Generate makes a new X25519 pair: the identity to keep secret and the recipient to seal for.
func Generate() (identity, recipient string, err error) {
	i, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("generate a key: %w", err)
	}
	return i.String(), i.Recipient().String(), nil
}

// identities wraps the keys so that the one which fits leaves its fingerprint in used.
func (k Keys) identities(used *string) []age.Identity {
	wrapped := make([]age.Identity, len(k.keys))
	for i, key := range k.keys {
		wrapped[i] = recorder{key, used}
	}
	return wrapped
}

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
