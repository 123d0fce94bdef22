package sign_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/sign"
)

func pair(tb testing.TB) (sign.Key, string) {
	tb.Helper()
	secret, public, err := sign.Generate()
	if err != nil {
		tb.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return key, public
}

func trust(tb testing.TB, texts ...string) sign.Trust {
	tb.Helper()
	t, err := sign.ParseTrust(texts...)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestCheck(t *testing.T) {
	key, public := pair(t)
	other, otherPublic := pair(t)
	message := []byte("a message\n")
	signature := key.Sign(message)
	if len(signature) > sign.MaxSignature {
		t.Errorf("a signature has %d bytes", len(signature))
	}
	for name, good := range map[string]sign.Trust{
		"the key": trust(t, public), "as a file": trust(t, "untrusted comment: x\n"+public+"\n"), "one of two": trust(t, otherPublic, public),
		"its own": key.Trust(), "nobody": {},
	} {
		err := good.Check(message, signature)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	tampered := strings.Replace(signature, "written by dr", "written by me", 1)
	for name, bad := range map[string]error{
		"another key":      trust(t, otherPublic).Check(message, signature),
		"another message":  trust(t, public).Check([]byte("another"), signature),
		"no signature":     trust(t, public).Check(message, ""),
		"junk":             trust(t, public).Check(message, "junk"),
		"a signed comment": trust(t, public).Check(message, tampered),
		"another's":        trust(t, public).Check(message, other.Sign(message)),
	} {
		if !errors.Is(bad, sign.ErrUntrusted) {
			t.Errorf("%s: error %v", name, bad)
		}
	}
}

// TestKeysAreNotRepeated checks that an error does not show a key of the wrong kind, given by mistake.
func TestKeysAreNotRepeated(t *testing.T) {
	secret, _, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"AGE-SECRET-KEY-1SECRET", string(secret), "", "RWshort"} {
		_, err := sign.ParseTrust(text)
		if !errors.Is(err, sign.ErrKey) || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("ParseTrust: error %v", err)
		}
	}
	_, err = sign.ParseKey([]byte("AGE-SECRET-KEY-1SECRET"))
	if !errors.Is(err, sign.ErrKey) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("ParseKey: error %v", err)
	}
	if (sign.Key{}).Sign([]byte("x")) != "" || !(sign.Key{}).Trust().None() {
		t.Error("no key signs, or is trusted")
	}
}

// TestMinisign checks that the public tool accepts our keys and signatures, and we accept its.
func TestMinisign(t *testing.T) {
	_, err := exec.LookPath("minisign")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	minisign := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "minisign", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("minisign %q: %v: %s", args, err, out)
		}
	}
	message := []byte("what is signed\n")
	err = os.WriteFile(at("m"), message, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	minisign("-G", "-W", "-p", at("theirs.pub"), "-s", at("theirs.key"))
	secret, err := os.ReadFile(at("theirs.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(at("m.minisig"), []byte(key.Sign(message)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	minisign("-V", "-p", at("theirs.pub"), "-m", at("m"))

	ours, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(at("ours.key"), append(bytes.TrimSpace(ours), '\n'), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	minisign("-S", "-s", at("ours.key"), "-m", at("m"), "-x", at("theirs.minisig"))
	signature, err := os.ReadFile(at("theirs.minisig"))
	if err != nil {
		t.Fatal(err)
	}
	err = trust(t, public).Check(message, string(signature))
	if err != nil {
		t.Error(err)
	}
}

// FuzzCheck checks that only the true signature is valid, and that none causes a panic.
func FuzzCheck(f *testing.F) {
	key, public := pair(f)
	message := []byte("a message")
	good := key.Sign(message)
	trusted := trust(f, public)
	f.Add(good)
	f.Add("untrusted comment: x\nRWQ=\ntrusted comment: y\nAAAA\n")
	f.Fuzz(func(t *testing.T, signature string) {
		err := trusted.Check(message, signature)
		if err == nil && !strings.Contains(signature, strings.Split(good, "\n")[1]) {
			t.Errorf("%q is taken for a signature", signature)
		}
		if err != nil && !errors.Is(err, sign.ErrUntrusted) {
			t.Errorf("error %v", err)
		}
	})
}
