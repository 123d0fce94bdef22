package objectstores

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// certificate is a self-signed one for 127.0.0.1, so that its file is also the authority that a client trusts.
type certificate struct {
	dir       string // with the names that MinIO expects
	file, key string
}

// valid returns the certificate of every server with TLS here.
var valid = sync.OnceValues(func() (certificate, error) {
	return newCertificate("valid", time.Now().Add(24*time.Hour))
})

var expired = sync.OnceValues(func() (certificate, error) {
	return newCertificate("expired", time.Now().Add(-time.Hour))
})

func newCertificate(name string, until time.Time) (certificate, error) {
	dir := filepath.Join(shared.dir, "certificate-"+name)
	c := certificate{dir: dir, file: filepath.Join(dir, "public.crt"), key: filepath.Join(dir, "private.key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(until.Unix()),
		Subject:      pkix.Name{CommonName: "etcd-dr test " + name},
		NotBefore:    until.Add(-48 * time.Hour),
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return c, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	err = os.Mkdir(dir, 0o700)
	if err != nil {
		return c, err
	}
	return c, errors.Join(writePEM(c.file, "CERTIFICATE", public), writePEM(c.key, "PRIVATE KEY", private))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// newClient returns a client that trusts only the certificate of the servers here.
func newClient() (*http.Client, error) {
	c, err := valid()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", c.file)
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

func clientFor(t testing.TB) *http.Client {
	t.Helper()
	client, err := newClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// S3Expired returns the address of a server whose certificate has expired, with that certificate as its authority. No
// client that verifies certificates gets any further.
func S3Expired(t testing.TB) *S3Server {
	t.Helper()
	needServers(t)
	c, err := expired()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.file, c.key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a client came in over an expired certificate")
		w.WriteHeader(http.StatusForbidden)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it would report each client that closes the connection
	server.StartTLS()
	t.Cleanup(server.Close)
	return &S3Server{Endpoint: server.URL, CAFile: c.file, Region: region, AccessKey: ownerKey, SecretKey: ownerSecret}
}
