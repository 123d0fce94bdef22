package azure_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// verbs calls every method on a missing key and returns the errors by the method's name.
func verbs(t *testing.T, b *azure.Bucket) map[string]error {
	t.Helper()
	_, put := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{})
	_, create := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{IfAbsent: true})
	_, blocks := b.Put(t.Context(), "key", bytes.NewReader(noise(2*small.Size)), storage.PutOptions{})
	_, stat := b.Stat(t.Context(), "key")
	_, open := read(t, b, "key", storage.OpenOptions{})
	var list, versions error
	for _, err := range b.List(t.Context(), storage.ListOptions{}) {
		list = err
	}
	for _, err := range b.Versions(t.Context(), storage.ListOptions{}) {
		versions = err
	}
	return map[string]error{
		"put": put, "create": create, "blocks": blocks, "stat": stat, "open": open, "list": list, "versions": versions,
		"delete": b.Delete(t.Context(), "key", storage.DeleteOptions{}),
	}
}

// wantLine fails unless err matches want, has one line and the remedy, and does not contain the secret.
func wantLine(t *testing.T, verb string, err, want error, cure, secret string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: error %v, want one that is %v", verb, err, want)
		return
	}
	text := err.Error()
	if strings.Contains(text, "\n") || !strings.Contains(text, cure) || secret != "" && strings.Contains(text, secret) {
		t.Errorf("%s: not one line with %q: %s", verb, cure, text)
	}
}

func TestWrongKey(t *testing.T) {
	s := objectstores.Azure(t)
	name := s.Bucket(t)
	s.Key = "d3Jvbmcga2V5IHdyb25nIGtleQ=="
	for verb, err := range verbs(t, open(t, config(t, s, name))) {
		wantLine(t, verb, err, storage.ErrDenied, "AZURE_STORAGE_KEY", s.Key)
	}
}

func TestMissingContainer(t *testing.T) {
	b := open(t, config(t, objectstores.Azure(t), "no-such-container"))
	for verb, err := range verbs(t, b) {
		wantLine(t, verb, err, storage.ErrNoBucket, "create the container", "")
		if errors.Is(err, storage.ErrNotExist) {
			t.Errorf("%s: taken for an absent key: %v", verb, err)
		}
	}
	for _, err := range b.Leftovers(t.Context(), "") {
		wantLine(t, "leftovers", err, storage.ErrNoBucket, "create the container", "")
	}
}

// TestFewerRights checks the error for a signature that lacks a right, and that the error does not show the signature.
func TestFewerRights(t *testing.T) {
	s := objectstores.Azure(t)
	name := s.Bucket(t)
	owner := open(t, config(t, s, name))
	_, err := owner.Put(t.Context(), "there", strings.NewReader("x"), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reader := s.As(t, name, objectstores.ReadOnly)
	b := open(t, config(t, reader, name))
	_, err = read(t, b, "there", storage.OpenOptions{})
	if err != nil {
		t.Errorf("a reader cannot read: %v", err)
	}
	_, err = b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{})
	wantLine(t, "put", err, storage.ErrDenied, "lack the right", signature(reader))
	_, err = b.Put(t.Context(), "key", bytes.NewReader(noise(2*small.Size)), storage.PutOptions{})
	wantLine(t, "put in blocks", err, storage.ErrDenied, "lack the right", signature(reader))

	writer := s.As(t, name, objectstores.NoDelete)
	b = open(t, config(t, writer, name))
	for _, size := range []int{10, 2 * small.Size} {
		_, err := b.Put(t.Context(), "key", bytes.NewReader(noise(size)), storage.PutOptions{})
		if err != nil {
			t.Errorf("a writer cannot write: %v", err)
		}
	}
	err = b.Delete(t.Context(), "there", storage.DeleteOptions{})
	wantLine(t, "delete", err, storage.ErrDenied, "lack the right", signature(writer))
	_, err = owner.Stat(t.Context(), "there")
	if err != nil {
		t.Error(err)
	}
	nobody := s.As(t, name, objectstores.Nothing)
	for verb, err := range verbs(t, open(t, config(t, nobody, name))) {
		wantLine(t, verb, err, storage.ErrDenied, "lack the right", signature(nobody))
	}
}

// signature returns the secret part of a shared access signature.
func signature(s *objectstores.AzureServer) string {
	_, sig, _ := strings.Cut(s.SAS, "sig=")
	sig, _, _ = strings.Cut(sig, "&")
	return sig
}

// TestWriterWithoutDelete checks that a caller without the right to delete creates no empty blob to remove blocks.
func TestWriterWithoutDelete(t *testing.T) {
	s := objectstores.Azure(t)
	name := s.Bucket(t)
	owner, look := open(t, config(t, s, name)), s.Client(t).ServiceClient().NewContainerClient(name)
	b := open(t, config(t, s.As(t, name, objectstores.NoDelete), name))
	arrived := func() bool { return blocksOf(t, look, "key") == 2 }
	src := io.MultiReader(bytes.NewReader(noise(2*small.Size)), &waiting{arrived})
	_, err := b.Put(t.Context(), "key", src, storage.PutOptions{})
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	wantAbsent(t, owner, "key")
	n := blocksOf(t, look, "key")
	if n != 2 {
		t.Errorf("%d uncommitted blocks, where nothing could be done about two", n)
	}
	got := sweepAll(t, owner, "")
	if got != 1 {
		t.Errorf("%d leftovers for the owner to sweep", got)
	}
	wantAbsent(t, owner, "key")
	n = blocksOf(t, look, "key")
	if n > 0 {
		t.Errorf("%d uncommitted blocks", n)
	}
}

func TestUnknownAuthority(t *testing.T) {
	s := objectstores.Azure(t)
	name := s.Bucket(t)
	s.CAFile = ""
	t.Setenv("SSL_CERT_FILE", "") // the test must not depend on the machine's roots
	for verb, err := range verbs(t, open(t, config(t, s, name))) {
		wantLine(t, verb, err, nil, "ca=FILE", s.Key)
	}
}

func TestExpiredCertificate(t *testing.T) {
	expired, s := objectstores.S3Expired(t), objectstores.Azure(t)
	s.Endpoint, s.CAFile = expired.Endpoint, expired.CAFile
	for verb, err := range verbs(t, open(t, config(t, s, "container"))) {
		wantLine(t, verb, err, nil, "renew the endpoint's certificate", s.Key)
	}
}

// TestNoServerListens checks that the URL in net/http's error, which has the signature, is not shown.
func TestNoServerListens(t *testing.T) {
	s := objectstores.AzurePlain(t)
	user := s.As(t, s.Bucket(t), objectstores.ReadOnly)
	proxy := objectstores.NewProxy(t, s.Endpoint)
	b := open(t, config(t, user.Through(proxy), "container"))
	proxy.Cut()
	_, err := b.Stat(t.Context(), "key")
	wantLine(t, "stat", err, nil, "check the endpoint", signature(user))
}

func TestTLSWhereThereIsNone(t *testing.T) {
	s := objectstores.AzurePlain(t)
	s.Endpoint = strings.Replace(s.Endpoint, "http://", "https://", 1)
	_, err := open(t, config(t, s, "container")).Stat(t.Context(), "key")
	wantLine(t, "stat", err, nil, "does not speak TLS", s.Key)
}

func TestManagedIdentity(t *testing.T) {
	s := objectstores.Azure(t)
	name := s.Bucket(t)
	c := config(t, s.AsIdentity(t), name)
	right := os.Getenv("IDENTITY_HEADER")
	t.Setenv("IDENTITY_HEADER", "wrong") // first, because the process caches a token once it has one
	_, err := open(t, c).Stat(t.Context(), "key")
	wantLine(t, "stat", err, storage.ErrDenied, "managed identity", "wrong")
	t.Setenv("IDENTITY_HEADER", right)
	p := noise(2 * small.Size)
	obj, err := open(t, c).Put(t.Context(), "key", bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
	if err != nil || obj.Size != int64(2*small.Size) {
		t.Fatalf("Put = %+v, %v", obj, err)
	}
}

func TestConnectionString(t *testing.T) {
	s := objectstores.AzurePlain(t)
	name := s.Bucket(t)
	c := config(t, s, name)
	reader := s.As(t, name, objectstores.ReadOnly)
	for kind, text := range map[string]string{
		"key": "AccountName=" + s.Account + ";AccountKey=" + s.Key + ";BlobEndpoint=" + s.Endpoint,
		"sas": "BlobEndpoint=" + s.Endpoint + "/;SharedAccessSignature=" + reader.SAS,
	} {
		clearEnvironment(t)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", text)
		b := open(t, azure.Config{Container: name, Transport: c.Transport})
		for _, err := range b.List(t.Context(), storage.ListOptions{}) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, bad := range []struct{ text, account, want string }{
		{"AccountName=a;AccountKey=%%;BlobEndpoint=" + s.Endpoint, "", "not base64"},
		{"AccountName=a;BlobEndpoint=" + s.Endpoint, "", "AccountKey"},
		{"AccountName=a;AccountKey=a2V5;BlobEndpoint=" + s.Endpoint, "other", "for the account a"},
		{"AccountName=a;AccountKey=a2V5;BlobEndpoint=https://user:secret@host", "", "credentials"},
		{"AccountKey=a2V5", "", "account is unknown"},
		{"AccountKey=a2V5;BlobEndpoint=" + s.Endpoint, "", "account is unknown"},
	} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", bad.text)
		_, err := azure.Open(t.Context(), azure.Config{Container: name, Account: bad.account, Transport: c.Transport})
		wantLine(t, bad.text, err, nil, bad.want, "secret")
	}
}

func TestLockIsRefusedWhereThereAreNone(t *testing.T) {
	_, b, look := plain(t)
	_, err := b.Put(t.Context(), "key", bytes.NewReader(noise(2*small.Size)), storage.PutOptions{RetainUntil: lockEnd})
	wantLine(t, "put", err, storage.ErrUnsupported, "version-level immutability", "")
	wantAbsent(t, b, "key")
	n := blocksOf(t, look, "key")
	if n > 0 {
		t.Errorf("%d uncommitted blocks", n)
	}
}

// fakeLocks is a transport that makes an Azurite container report locks and records the headers that request them.
// Azurite accepts and ignores these headers.
type fakeLocks struct {
	http.RoundTripper
	mode, until string
}

func (f *fakeLocks) RoundTrip(r *http.Request) (*http.Response, error) {
	if isWhole(r) || isCommit(r) {
		f.mode, f.until = header(r, "x-ms-immutability-policy-mode"), header(r, "x-ms-immutability-policy-until-date")
	}
	resp, err := f.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && r.URL.Query().Get("restype") == "container" {
		resp.Header.Set("x-ms-immutable-storage-with-versioning-enabled", "true")
	}
	return resp, err
}

func TestFakeLockIsAskedFor(t *testing.T) {
	c, _, _ := plain(t)
	asked := &fakeLocks{RoundTripper: c.Transport}
	c.Transport = asked
	b := open(t, c)
	for _, size := range []int{10, 2 * small.Size} {
		for mode, compliance := range map[string]bool{"Locked": true, "Unlocked": false} {
			o := storage.PutOptions{RetainUntil: lockEnd.Add(1), Compliance: compliance}
			obj, err := b.Put(t.Context(), "key", bytes.NewReader(noise(size)), o)
			if err != nil {
				t.Fatal(err)
			}
			// A header has whole seconds, and the lock must not end early.
			if !strings.EqualFold(asked.mode, mode) || asked.until != "Tue, 01 Dec 2026 00:00:01 GMT" {
				t.Errorf("%d bytes, compliance %v: asked for %q until %q", size, compliance, asked.mode, asked.until)
			}
			if obj.RetainUntil.Before(o.RetainUntil) {
				t.Errorf("Put says locked until %v", obj.RetainUntil)
			}
		}
		_, err := b.Put(t.Context(), "key", bytes.NewReader(noise(size)), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if asked.mode != "" || asked.until != "" {
			t.Errorf("%d bytes without a lock: asked for %q until %q", size, asked.mode, asked.until)
		}
	}
}
