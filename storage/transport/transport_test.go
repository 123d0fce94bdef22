package transport_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	err := os.WriteFile(path, []byte(content), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// server starts a server whose certificate no system trusts, and returns the file of its authority.
func server(t *testing.T, versions ...uint16) (url, caFile string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto)) // the client may have closed the connection
	}))
	s.TLS = &tls.Config{}
	s.EnableHTTP2 = true
	if len(versions) > 0 {
		s.TLS.MaxVersion = versions[0]
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	block := pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}
	return s.URL, write(t, string(pem.EncodeToMemory(&block)))
}

func get(t *testing.T, url, caFile string) (*http.Response, error) {
	t.Helper()
	rt, err := transport.New(caFile)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := rt.RoundTrip(request)
	if err == nil {
		t.Cleanup(func() { response.Body.Close() })
	}
	return response, err
}

func TestTrust(t *testing.T) {
	url, ca := server(t)
	response, err := get(t, url, ca)
	if err != nil {
		t.Fatal(err)
	}
	if response.Proto != "HTTP/1.1" {
		t.Errorf("%s: streams would share a connection", response.Proto)
	}
	var unverified *tls.CertificateVerificationError
	_, err = get(t, url, "")
	if !errors.As(err, &unverified) {
		t.Errorf("a certificate from an unknown authority: %v", err)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	url, ca := server(t, tls.VersionTLS11)
	_, err := get(t, url, ca)
	if err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

func TestBadFile(t *testing.T) {
	_, err := transport.New(filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	const broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, content := range []string{"", "no certificate", broken} {
		_, err := transport.New(write(t, content))
		if err == nil {
			t.Errorf("%q was taken for certificates", content)
		}
	}
}

// TestAuthorityIsReplaced checks that a transport follows the file in both directions, and that an unusable file
// changes nothing.
func TestAuthorityIsReplaced(t *testing.T) {
	url, ca := server(t)
	newURL, newCA := newServer(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	replace(t, file, ca)
	client := &http.Client{Transport: mustNew(t, file)}
	defer client.CloseIdleConnections()
	ask := func(url string) error {
		response, err := client.Get(url)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	var unverified *tls.CertificateVerificationError
	err := ask(url)
	if err != nil {
		t.Fatal(err)
	}
	err = ask(newURL)
	if !errors.As(err, &unverified) {
		t.Fatalf("before it was trusted: %v", err)
	}
	replace(t, file, newCA)
	err = ask(newURL)
	if err != nil {
		t.Errorf("after it was trusted: %v", err)
	}
	err = ask(url)
	if !errors.As(err, &unverified) {
		t.Errorf("after it was no longer trusted: %v", err)
	}
	err = os.WriteFile(file, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	err = ask(newURL)
	if err != nil {
		t.Errorf("with a file that is empty for a moment: %v", err)
	}
	err = ask(url)
	if !errors.As(err, &unverified) || !strings.Contains(err.Error(), file+" contains no PEM certificate") {
		t.Errorf("with an empty file: %v", err)
	}
}

func mustNew(t *testing.T, caFile string) *transport.Transport {
	t.Helper()
	rt, err := transport.New(caFile)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// replace puts a copy of the file from in the place of file by a rename, the safe way to renew certificates.
func replace(t *testing.T, file, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	err = os.Rename(write(t, string(content)), file)
	if err != nil {
		t.Fatal(err)
	}
}

// newServer is server with a certificate of another authority.
func newServer(t *testing.T) (url, caFile string) {
	t.Helper()
	files := servers.NewCertificates(t)
	pair, err := tls.LoadX509KeyPair(files.ServerCert, files.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, files.CA
}

// TestTrusting checks that an authority that is given as bytes is trusted, and that the bound on addresses holds.
func TestTrusting(t *testing.T) {
	url, file := server(t)
	ca, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := transport.Trusting(reach.Anywhere, ca)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.CloseIdleConnections()
	response, err := (&http.Client{Transport: rt}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	for _, content := range []string{"", "no certificate"} {
		_, err := transport.Trusting(reach.Anywhere, []byte(content))
		if err == nil {
			t.Errorf("%q was taken for certificates", content)
		}
	}
	bound, err := transport.Trusting(reach.OtherHosts, ca)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&http.Client{Transport: bound}).Get(url)
	if !errors.Is(err, reach.ErrOwn) {
		t.Errorf("an address of this host: %v", err)
	}
}
