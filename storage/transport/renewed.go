package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"sync"
)

// Transport is a transport of WithRoots that trusts the system's roots and those in a file, as the file is at each request:
// an authority that is replaced while a service runs counts from then on.
type Transport struct {
	file string // "": the system's roots alone

	mu      sync.Mutex
	read    fs.FileInfo // the file as it was read
	current *http.Transport
	broken  error // why the file as it is now cannot be used; nil if it is in force
}

// New returns a Transport for the PEM certificates in caFile, "" for none.
func New(caFile string) (*Transport, error) {
	t := &Transport{file: caFile}
	if caFile == "" {
		t.current = WithRoots(nil)
		return t, nil
	}
	return t, t.reread()
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	current, broken := t.renewed()
	response, err := current.RoundTrip(r)
	var unknown x509.UnknownAuthorityError
	if broken != nil && errors.As(err, &unknown) {
		return nil, fmt.Errorf("%w: an older version of the authorities is in force, since this one cannot be used: %v", err, broken)
	}
	return response, err
}

// CloseIdleConnections closes the connections on which no request is.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.CloseIdleConnections()
}

// renewed returns the transport for the file as it is now. A file that cannot be used leaves the older one in force.
func (t *Transport) renewed() (current *http.Transport, broken error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != "" {
		t.broken = t.reread()
	}
	return t.current, t.broken
}

// reread reads the file if it is another than the one that was read. The caller holds t.mu.
func (t *Transport) reread() error {
	now, err := os.Stat(t.file)
	if err == nil && t.read != nil && unchanged(t.read, now) {
		return nil
	}
	roots, err := trusted(t.file)
	if err != nil {
		return err
	}
	if t.current != nil {
		t.current.CloseIdleConnections() // an authority that is trusted no more is not to be met again
	}
	t.read, t.current = now, WithRoots(roots)
	return nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// trusted returns the system's roots and those in caFile.
func trusted(caFile string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("certificates of the authorities to trust: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate (-----BEGIN CERTIFICATE-----)", caFile)
	}
	return roots, nil
}
