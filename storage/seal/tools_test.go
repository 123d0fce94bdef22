package seal_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// skip fails the test in CI, which has everything that the tests need.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"age", "zstd"} {
		_, err := exec.LookPath(tool)
		if err != nil {
			skip(t, err.Error())
		}
	}
}

// pipe returns the output of in | commands[0] | commands[1] ... in a shell.
func pipe(t *testing.T, in []byte, commands ...[]string) []byte {
	t.Helper()
	for _, c := range commands {
		cmd := exec.CommandContext(t.Context(), c[0], c[1:]...)
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", c, err, errs.Bytes())
		}
		in = out
	}
	return in
}

// TestPublicTools checks that a backup can be opened without dr.
func TestPublicTools(t *testing.T) {
	needTools(t)
	key := newPair(t)
	file := filepath.Join(t.TempDir(), "key")
	err := os.WriteFile(file, []byte("# created by a test\n"+key.identity+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{nil, text(10), append(noise(1<<20), text(5<<20)...)} {
		ours := pipe(t, sealed(t, content, key.to), []string{"age", "-d", "-i", file}, []string{"zstd", "-d", "-q"})
		if !bytes.Equal(ours, content) {
			t.Errorf("age -d | zstd -d of %d bytes gives %d others", len(content), len(ours))
		}
		got := pipe(t, sealed(t, content, seal.Recipients{}), []string{"zstd", "-d", "-q"})
		if !bytes.Equal(got, content) {
			t.Errorf("zstd -d of %d bytes gives %d others", len(content), len(got))
		}
		for _, level := range []string{"-1", "-19"} {
			theirs := pipe(t, content, []string{"zstd", "-q", "-c", level}, []string{"age", "-r", key.recipient})
			got, used := mustOpen(t, theirs, key.to.Seal(), key.keys)
			if !bytes.Equal(got, content) || used != key.fingerprint() {
				t.Errorf("zstd %s | age of %d bytes opens with %q as %d others", level, len(content), used, len(got))
			}
		}
	}
}

// encryptedOnly returns content encrypted with age and not compressed.
func encryptedOnly(t *testing.T, key pair, content []byte) []byte {
	t.Helper()
	to, err := age.ParseX25519Recipient(key.recipient)
	if err != nil {
		t.Fatal(err)
	}
	return encryptedFor(t, to, content)
}

func encryptedFor(t *testing.T, to age.Recipient, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(content)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// weaklySealed returns content sealed with a passphrase at a low scrypt cost.
func weaklySealed(t *testing.T, content []byte, phrase string) []byte {
	t.Helper()
	to, err := age.NewScryptRecipient(phrase)
	if err != nil {
		t.Fatal(err)
	}
	to.SetWorkFactor(10)
	return encryptedFor(t, to, sealed(t, content, seal.Recipients{}))
}

func twice(t *testing.T, key pair) []byte {
	t.Helper()
	return encryptedOnly(t, key, sealed(t, text(100), key.to))
}
