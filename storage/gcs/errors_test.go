package gcs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// wantError fails unless err is one line, matches is if that is not nil, contains say, and contains nothing that allows
// to write.
func wantError(t *testing.T, err, is error, say string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), say) {
		t.Fatalf("error %v, want one that is %v and says %q", err, is, say)
	}
	for _, bad := range []string{"\n", "upload_id", "fake-token", "fake-subject"} {
		if strings.Contains(err.Error(), bad) {
			t.Errorf("the error holds %q: %v", bad, err)
		}
	}
}

// verbs returns every kind of call by its name.
func verbs(t *testing.T, b *gcs.Bucket) map[string]func() error {
	ctx := t.Context()
	put := func(size int, ifAbsent bool) func() error {
		return func() error {
			_, err := b.Put(ctx, "new", strings.NewReader(strings.Repeat("x", size)), storage.PutOptions{IfAbsent: ifAbsent})
			return err
		}
	}
	return map[string]func() error{
		"put": put(10, false), "put if absent": put(10, true),
		"put large": put(2*chunk, false), "put large if absent": put(2*chunk, true),
		"open": func() error {
			_, _, err := b.Open(ctx, "key", storage.OpenOptions{})
			return err
		},
		"stat": func() error {
			_, err := b.Stat(ctx, "key")
			return err
		},
		"list": func() error {
			for _, err := range b.List(ctx, storage.ListOptions{}) {
				return err
			}
			return nil
		},
		"versions": func() error {
			for _, err := range b.Versions(ctx, storage.ListOptions{}) {
				return err
			}
			return nil
		},
		"delete":         func() error { return b.Delete(ctx, "key", storage.DeleteOptions{}) },
		"delete version": func() error { return b.Delete(ctx, "key", storage.DeleteOptions{Version: "1"}) },
	}
}

func wantEach(t *testing.T, b *gcs.Bucket, is error, say string, except ...string) {
	t.Helper()
	for name, call := range verbs(t, b) {
		t.Run(name, func(t *testing.T) {
			for _, allowed := range except {
				if strings.HasPrefix(name, allowed) {
					err := call()
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
			wantError(t, call(), is, say)
		})
	}
}

func TestMissingBucket(t *testing.T) {
	s := server(t)
	wantEach(t, open(t, s, "no-such-bucket", gcs.Config{Patience: patience}), storage.ErrNoBucket, "gs://no-such-bucket")
}

// TestBucketDeletedMeanwhile deletes a bucket after the first successful call.
func TestBucketDeletedMeanwhile(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	b := open(t, s, name, gcs.Config{Patience: patience})
	got := keys(t, b, storage.ListOptions{})
	if len(got) > 0 {
		t.Fatal(got)
	}
	_, err := b.Stat(t.Context(), "key")
	if !errors.Is(err, storage.ErrNotExist) {
		t.Fatal(err)
	}
	err = s.Client(t).Bucket(name).Delete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calls := verbs(t, b)
	for _, verb := range []string{"put", "put large", "put if absent", "list", "versions"} {
		wantError(t, calls[verb](), storage.ErrNoBucket, name)
	}
}

func TestRights(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	put(t, open(t, s, name, gcs.Config{}), "key", []byte("x"), storage.PutOptions{})
	as := func(rights objectstores.Rights) *gcs.Bucket {
		user := s.As(rights)
		objectstores.Setenv(t, user.Env(t))
		return open(t, user, name, gcs.Config{})
	}
	t.Run("nothing", func(t *testing.T) {
		wantEach(t, as(objectstores.Nothing), storage.ErrDenied, "roles/storage.objectAdmin")
	})
	readOnly := verbs(t, as(objectstores.ReadOnly))
	for _, verb := range []string{"put", "put large", "put if absent", "put large if absent"} {
		wantError(t, readOnly[verb](), storage.ErrDenied, "storage.objects.create")
	}
	wantError(t, readOnly["delete"](), storage.ErrDenied, "storage.objects.delete")
	noDelete := as(objectstores.NoDelete)
	wantError(t, verbs(t, noDelete)["delete"](), storage.ErrDenied, "storage.objects.delete")
	_, err := noDelete.Put(t.Context(), "key", strings.NewReader("y"), storage.PutOptions{})
	wantError(t, err, storage.ErrDenied, "storage.objects.delete") // replacing needs it
	for verb, call := range readOnly {
		if strings.HasPrefix(verb, "put") || verb == "delete" || verb == "delete version" {
			continue
		}
		err := call()
		if err != nil {
			t.Errorf("%s with the right to read: %v", verb, err)
		}
	}
	wantContent(t, as("all"), "key", []byte("x"))
}

func TestCredentials(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	t.Run("not accepted by the store", func(t *testing.T) {
		forging := tripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer wrong")
			return connections.RoundTrip(r)
		})
		b := open(t, s, name, gcs.Config{Transport: forging})
		wantEach(t, b, storage.ErrDenied, "GOOGLE_APPLICATION_CREDENTIALS")
	})
	t.Run("no token for them", func(t *testing.T) {
		objectstores.Setenv(t, s.As("somebody-else").Env(t))
		wantEach(t, open(t, s, name, gcs.Config{}), storage.ErrDenied, "no token for the credentials")
	})
	t.Run("no file", func(t *testing.T) {
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none"))
		_, err := gcs.Open(t.Context(), gcs.Config{Bucket: name, Endpoint: s.Endpoint})
		wantError(t, err, storage.ErrDenied, "GOOGLE_APPLICATION_CREDENTIALS")
	})
	t.Run("not a credentials file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		err := os.WriteFile(file, []byte(`{"type":"unknown"}`), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
		_, err = gcs.Open(t.Context(), gcs.Config{Bucket: name, Endpoint: s.Endpoint})
		wantError(t, err, storage.ErrDenied, "GOOGLE_APPLICATION_CREDENTIALS")
	})
}

// anyCredentials puts credentials into the environment, for tests that reach no store.
func anyCredentials(t *testing.T) {
	t.Helper()
	token := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"fake-token-all","token_type":"Bearer","expires_in":3600,` +
			`"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`)) // the client may have closed the connection
	}))
	t.Cleanup(token.Close)
	s := objectstores.GCSServer{Endpoint: token.URL}
	objectstores.Setenv(t, s.Env(t))
}

func TestUnreachable(t *testing.T) {
	anyCredentials(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	b := open(t, nil, "bucket", gcs.Config{Endpoint: closed.URL, Patience: patience})
	wantEach(t, b, nil, "check the endpoint")
}

// fakeTLS starts a fake store that speaks TLS and knows no bucket, with a certificate that is valid until until. ca is
// the certificate's file.
func fakeTLS(t *testing.T, until time.Time) (endpoint, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	fake := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"code":404,"message":"not here"}}`, http.StatusNotFound)
	}))
	fake.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	fake.Config.ErrorLog = log.New(io.Discard, "", 0)
	fake.StartTLS()
	t.Cleanup(fake.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	err = os.WriteFile(ca, text, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return fake.URL, ca
}

func TestCertificates(t *testing.T) {
	anyCredentials(t)
	bucket := func(t *testing.T, until time.Time, trust bool) (*gcs.Bucket, string) {
		endpoint, ca := fakeTLS(t, until)
		if !trust {
			ca = ""
		}
		trusting, err := transport.New(ca)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(trusting.CloseIdleConnections)
		return open(t, nil, "bucket", gcs.Config{Endpoint: endpoint, Transport: trusting, Patience: patience}), endpoint
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	t.Run("self-signed", func(t *testing.T) {
		b, _ := bucket(t, tomorrow, false)
		wantEach(t, b, nil, "ca=")
	})
	t.Run("self-signed and trusted", func(t *testing.T) {
		b, _ := bucket(t, tomorrow, true)
		_, err := b.Stat(t.Context(), "key")
		wantError(t, err, storage.ErrNoBucket, "bucket") // the fake's answer to everything
	})
	t.Run("expired", func(t *testing.T) {
		b, _ := bucket(t, time.Now().Add(-time.Hour), true)
		wantEach(t, b, nil, "renew the store's certificate")
	})
	t.Run("of another name", func(t *testing.T) {
		_, endpoint := bucket(t, tomorrow, true)
		_, ca := fakeTLS(t, tomorrow)
		trusting, err := transport.New(ca)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(trusting.CloseIdleConnections)
		other := strings.Replace(endpoint, "127.0.0.1", "localhost", 1)
		b := open(t, nil, "bucket", gcs.Config{Endpoint: other, Transport: trusting, Patience: patience})
		wantEach(t, b, nil, "the name in the certificate")
	})
}

// TestEmulatorVariable checks that the client library's variable for emulators neither redirects a backup nor removes
// its credentials.
func TestEmulatorVariable(t *testing.T) {
	s := server(t)
	name := s.Bucket(t)
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	b := open(t, s, name, gcs.Config{})
	for _, size := range []int{1000, 2*chunk + 5} {
		put(t, b, "key", content(1, size), storage.PutOptions{})
		wantContent(t, b, "key", content(1, size))
	}
}

func TestConfig(t *testing.T) {
	_, err := gcs.Open(t.Context(), gcs.Config{})
	wantError(t, err, storage.ErrNoBucket, "no bucket name")
	for _, endpoint := range []string{
		"host:9000", "ftp://host", "https://host/path", "https://user@host", "https://host?a=b", ":",
	} {
		_, err := gcs.Open(t.Context(), gcs.Config{Bucket: "bucket", Endpoint: endpoint})
		wantError(t, err, nil, "https://host:port")
	}
}
