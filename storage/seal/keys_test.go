package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"filippo.io/age"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// TestKeysDoNotPrint tries every verb, also on a struct that contains keys, where fmt calls no methods.
func TestKeysDoNotPrint(t *testing.T) {
	const phrase = "correct horse battery"
	key, other := newPair(t), newPair(t)
	keys := key.keys.And(other.keys).And(passphrase(t, phrase))
	to, err := seal.PassphraseRecipient(phrase)
	if err != nil {
		t.Fatal(err)
	}
	type hidden struct {
		keys seal.Keys
		to   seal.Recipients
	}
	inside := hidden{keys, to}
	for _, v := range []any{keys, &keys, to, inside, &inside, []any{keys}, map[string]hidden{"a": inside}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "% x", "%T"} {
			wantHidden(t, fmt.Sprintf("%s of %T", verb, v), fmt.Sprintf(verb, v), key.identity, other.identity, phrase)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "keys", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "keys", v)
		_ = json.NewEncoder(&log).Encode(v)
		wantHidden(t, fmt.Sprintf("a log of %T", v), log.String(), key.identity, other.identity, phrase)
	}
	got := fmt.Sprint(keys)
	if got != "3 keys" {
		t.Errorf("keys print as %q", got)
	}
}

// wantHidden fails if out contains a part of a secret, as text or in hex.
func wantHidden(t *testing.T, what, out string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if len(secret) > 40 {
			secret = secret[20:40] // "AGE-SECRET-KEY-1" alone is no secret
		}
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("% x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
			if strings.Contains(strings.ToLower(out), strings.ToLower(form)) {
				t.Errorf("%s tells a secret: %s", what, out)
				return
			}
		}
	}
}

func TestParseKeys(t *testing.T) {
	a, b := newPair(t), newPair(t)
	file := "# created: 2026-11-21T09:24:33Z\n# public key: " + a.recipient + "\n" + a.identity + "\r\n\n  " + b.identity + " \n"
	keys, err := seal.ParseKeys(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	identities, passphrases := keys.And(passphrase(t, "x y")).Secrets()
	if !slices.Equal(identities, []string{a.identity, b.identity}) || !slices.Equal(passphrases, []string{"x y"}) {
		t.Errorf("%d identities, %d passphrases", len(identities), len(passphrases))
	}
	if keys.None() || !(seal.Keys{}).None() {
		t.Error("None is wrong")
	}
}

func TestParseKeysRefuses(t *testing.T) {
	key := newPair(t)
	slip := key.identity[:len(key.identity)-1] + "!"
	for name, file := range map[string]string{
		"empty":             "",
		"comments":          "# nothing\n\n",
		"a slip of the pen": slip,
		"cut":               key.identity[:len(key.identity)-3],
		"lower case head":   "age-secret-key-1" + key.identity[16:],
		"a word before":     "key: " + key.identity,
		"second is bad":     key.identity + "\n" + slip,
		"recipient":         key.recipient,
		"not UTF-8":         key.identity + "\xff",
		"twice in a line":   key.identity + " " + key.identity,
	} {
		_, err := seal.ParseKeys(strings.NewReader(file))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantHidden(t, name, err.Error(), key.identity)
	}
}

func TestParseSourceErrors(t *testing.T) {
	_, err := seal.ParseKeys(iotest.ErrReader(errSource))
	if !errors.Is(err, errSource) {
		t.Errorf("ParseKeys: %v", err)
	}
	_, err = seal.ParseRecipients(iotest.ErrReader(errSource))
	if err == nil {
		t.Error("ParseRecipients: no error")
	}
	for name, err := range map[string]error{
		"recipient": second(seal.PassphraseRecipient("")), "key": second(seal.Passphrase("")),
	} {
		if err == nil {
			t.Errorf("an empty passphrase is a %s", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestParseRecipientsRefuses checks that the error does not show a secret key that was put into the wrong file.
func TestParseRecipientsRefuses(t *testing.T) {
	key := newPair(t)
	for name, file := range map[string]string{
		"empty":    "",
		"comments": "# nothing",
		"garbage":  "somebody@example.com",
		"slip":     key.recipient[:20] + "!" + key.recipient[21:],
		"secret":   key.recipient + "\n" + key.identity,
		"lower":    strings.ToLower(key.identity),
		"ssh":      "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIIIIIII",
	} {
		_, err := seal.ParseRecipients(strings.NewReader(file))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantHidden(t, name, err.Error(), key.identity)
	}
}

func TestPassphraseExcludesRecipients(t *testing.T) {
	key := newPair(t)
	phrase, err := seal.PassphraseRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for name, sets := range map[string][2]seal.Recipients{
		"recipient first": {key.to, phrase}, "passphrase first": {phrase, key.to}, "two of them": {phrase, phrase},
	} {
		_, err := sets[0].And(sets[1])
		if err == nil || !strings.Contains(err.Error(), "use one or the other") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, sets := range map[string][2]seal.Recipients{"none first": {{}, phrase}, "none behind": {phrase, {}}} {
		got, err := sets[0].And(sets[1])
		if err != nil || !slices.Equal(got.Seal().Recipients, []string{"passphrase"}) {
			t.Errorf("%s: %v, %v", name, got.Seal(), err)
		}
	}
}

// TestPostQuantum checks age's hybrid keys, which cannot be combined with others.
func TestPostQuantum(t *testing.T) {
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	recipient := identity.Recipient().String()
	to, keys := parseRecipients(t, recipient), parseKeys(t, identity.String())
	plain, used := mustOpen(t, sealed(t, text(1000), to), to.Seal(), keys)
	if !bytes.Equal(plain, text(1000)) || used != seal.Fingerprint(recipient) {
		t.Errorf("opened with %q: %d bytes", used, len(plain))
	}
	mixed, err := to.And(newPair(t).to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = seal.New(strings.NewReader("x"), mixed)
	if err == nil || !strings.Contains(err.Error(), "incompatible recipients") {
		t.Errorf("mixed recipients: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	key := newPair(t)
	got := key.fingerprint()
	if len(got) != 16 || !strings.HasPrefix(key.recipient, got) {
		t.Errorf("%q of %q", got, key.recipient)
	}
	got = seal.Fingerprint("short")
	if got != "short" {
		t.Errorf("%q", got)
	}
	a, b := newPair(t), newPair(t)
	if a.identity == b.identity || a.fingerprint() == b.fingerprint() {
		t.Error("two generated keys are alike")
	}
}

var _ io.ReadCloser = seal.Opened{}
