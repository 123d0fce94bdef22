package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Transport is an http.RoundTripper that trusts the system's roots and those in a file. It reads the file again when it
// has changed, so that a running service uses a replaced authority with its next request.
type Transport struct {
	file  string // "": the system's roots alone
	reach reach.Reach

	mu      sync.Mutex
	read    fs.FileInfo // the file as it was read; guarded by mu, like the fields below
	current *http.Transport
	broken  error // why the file's current content is not usable; nil if it is in use
}

// New returns a Transport for the PEM certificates in caFile, "" for none.
func New(caFile string) (*Transport, error) { return NewWithin(reach.Anywhere, caFile) }

// NewWithin is New for connections to the addresses in r. A connection to another address fails with reach.ErrOwn.
func NewWithin(r reach.Reach, caFile string) (*Transport, error) {
	t := &Transport{file: caFile, reach: r}
	if caFile == "" {
		t.current = within(r, nil)
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
		return nil, fmt.Errorf("%w: the file's older certificates are still in use, because its new content is not usable: %v", err, broken)
	}
	return response, err
}

// CloseIdleConnections closes the connections that carry no request.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.CloseIdleConnections()
}

// renewed returns the transport for the current content of the file. If that is not usable, it returns the older
// transport and the reason.
func (t *Transport) renewed() (current *http.Transport, broken error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != "" {
		t.broken = t.reread()
	}
	return t.current, t.broken
}

// reread reads the file if it has changed since the last read. The caller holds t.mu, or is New.
func (t *Transport) reread() error {
	now, err := os.Stat(t.file)
	if err == nil && t.read != nil && unchanged(t.read, now) {
		return nil
	}
	roots, err := loadRoots(t.file)
	if err != nil {
		return err
	}
	if t.current != nil {
		t.current.CloseIdleConnections() // so that no server is used whose authority is no longer trusted
	}
	t.read, t.current = now, within(t.reach, roots)
	return nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// loadRoots returns the system's roots and those in caFile.
func loadRoots(caFile string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("certificates of the authorities to trust: %w", err)
	}
	return rootsWith(pem, caFile)
}

// rootsWith returns the system's roots and those in pem. Errors name its source.
func rootsWith(pem []byte, source string) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate (-----BEGIN CERTIFICATE-----)", source)
	}
	return roots, nil
}
