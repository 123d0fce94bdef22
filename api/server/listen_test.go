package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/storage"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	a := authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	a.cert, a.key = a.make(template, nil)
	return a
}

func (a authority) make(template *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent := a.cert
	if by == nil {
		parent, by = template, key
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// host makes a server's certificate, and client a client's.
func (a authority) host() (*x509.Certificate, *ecdsa.PrivateKey) {
	return a.make(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.key)
}

func (a authority) client(units ...string) tls.Certificate {
	cert, key := a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ops", OrganizationalUnit: units}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// write writes a certificate and its key into files.
func write(t *testing.T, dir string, cert *x509.Certificate, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(file, kind string, der []byte) {
		err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	put(certFile, "CERTIFICATE", cert.Raw)
	put(keyFile, "PRIVATE KEY", der)
	return certFile, keyFile
}

// listen opens a door on a free port and returns its address.
func listen(t *testing.T, d server.Door) string {
	t.Helper()
	var mu sync.Mutex
	url := ""
	stop, err := server.Listen(d, anyService(), func(e storage.Event) {
		mu.Lock()
		defer mu.Unlock()
		_, at, ok := strings.Cut(e.Message, "the service is at ")
		if ok {
			url = at
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	mu.Lock()
	defer mu.Unlock()
	return url
}

func get(t *testing.T, c *http.Client, url, token string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(body), err
}

func client(a authority, certs ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs},
	}}
}

// For other hosts a service requires both a login and TLS.
func TestListenRefuses(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	cert, key := write(t, dir, a.cert, a.key)
	file := filepath.Join(dir, "tokens")
	err := os.WriteFile(file, []byte(tokens()), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]server.Door{
		"all addresses":           {Address: ":0"},
		"all, with tokens":        {Address: "0.0.0.0:0", Tokens: file},
		"all, with TLS":           {Address: "[::]:0", Cert: cert, Key: key},
		"certificates and no TLS": {Address: "127.0.0.1:0", ClientCA: cert},
		"no key":                  {Address: "127.0.0.1:0", Cert: cert},
		"no certificate":          {Address: "127.0.0.1:0", Key: key},
		"another's key":           {Address: "127.0.0.1:0", Cert: cert, Key: cert},
		"no authority":            {Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: key},
		"no tokens":               {Address: "127.0.0.1:0", Tokens: key},
		"no address":              {Address: "nowhere"},
	} {
		stop, err := server.Listen(d, anyService(), nil)
		if !errors.Is(err, server.ErrListen) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				stop()
			}
		}
	}
	stop, err := server.Listen(server.Door{Address: ":0", Cert: cert, Key: key, Tokens: file}, anyService(), nil)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// The address of the probes needs neither TLS nor a login. It serves no other path, and its answers do not contain the problem.
func TestListenForProbes(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]server.Door{"alone": {Probes: ":0"}, "next to the API": {Address: "127.0.0.1:0", Probes: ":0"}} {
		said := map[string]string{}
		stop, err := server.Listen(d, anyService(), func(e storage.Event) {
			what, at, _ := strings.Cut(e.Message, " at http://")
			said[what] = at
		})
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(said["the probes are"])
		if err != nil || (said["the service is"] != "") != (d.Address != "") {
			t.Fatal(err, said)
		}
		for path, want := range map[string]int{
			"/healthz": 503, "/readyz": 200, "/": 404, "/metrics": 404, "/status": 404, "/api/v1/clusters": 404, "/assets/": 404, "/debug/pprof/": 404,
		} {
			code, body, err := get(t, http.DefaultClient, "http://127.0.0.1:"+port+path, "")
			if err != nil || code != want || strings.Contains(body, "prod") || strings.Contains(body, "secret") {
				t.Errorf("%s, %s: %d, %v: %s", name, path, code, err, body)
			}
		}
		response, err := http.Post("http://127.0.0.1:"+port+"/healthz", "text/plain", nil)
		if err != nil || response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: a POST: %v, %v", name, response, err)
		}
		stop()
		_, _, err = get(t, http.DefaultClient, "http://127.0.0.1:"+port+"/healthz", "")
		if err == nil {
			t.Errorf("%s: it still answers", name)
		}
	}
	_, err := server.Listen(server.Door{Probes: "nowhere"}, anyService(), nil)
	if !errors.Is(err, server.ErrListen) || !strings.Contains(err.Error(), "--probe-listen") {
		t.Error(err)
	}
}

func TestListenOnLoopback(t *testing.T) {
	t.Parallel()
	code, body, err := get(t, http.DefaultClient, listen(t, server.Door{Address: "127.0.0.1:0"})+"/status", "")
	if code != 200 {
		t.Errorf("%d, %v: %s", code, err, body)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a, other, dir := newAuthority(t), newAuthority(t), t.TempDir()
	hostCert, hostKey := a.host()
	cert, key := write(t, dir, hostCert, hostKey)
	ca, _ := write(t, t.TempDir(), a.cert, a.key)
	file := filepath.Join(dir, "tokens")
	err := os.WriteFile(file, []byte(tokens()), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, server.Door{Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: ca, Tokens: file})
	for name, test := range map[string]struct {
		client *http.Client
		token  string
		want   int // 0: no connection
	}{
		"nobody":                {client(a), "", 401},
		"a token":               {client(a), "see", 200},
		"a reader":              {client(a, a.client("etcd-dr:read")), "", 200},
		"an operator":           {client(a, a.client("sre", "etcd-dr:operate")), "", 200},
		"somebody else":         {client(a, a.client("read", "etcd-dr:admin")), "", 403},
		"with a wrong token":    {client(a, a.client("etcd-dr:read")), "wrong", 401},
		"another authority's":   {client(a, other.client("etcd-dr:operate")), "", 0},
		"a server's":            {client(a, tls.Certificate{Certificate: [][]byte{hostCert.Raw}, PrivateKey: hostKey}), "", 0},
		"who trusts no such CA": {client(other), "see", 0},
	} {
		code, body, err := get(t, test.client, url+"/status", test.token)
		if code != test.want || (err != nil) != (test.want == 0) {
			t.Errorf("%s: %d, %v: %s", name, code, err, body)
		}
	}
}

// A certificate that its authority has revoked is no login any more, on a connection that is open either.
func TestRevokedCertificates(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	hostCert, hostKey := a.host()
	cert, key := write(t, dir, hostCert, hostKey)
	ca, _ := write(t, t.TempDir(), a.cert, a.key)
	url := listen(t, server.Door{Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: ca}) + "/status"
	lost, kept := a.client("etcd-dr:operate"), a.client("etcd-dr:operate")
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	open := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{lost}}}}
	defer open.CloseIdleConnections()
	code, _, err := get(t, open, url, "")
	if code != 200 {
		t.Fatalf("before: %d, %v", code, err)
	}
	authorities, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	revoke := func(by authority) {
		content := slices.Concat(authorities, by.revoking(lost))
		err := os.WriteFile(ca, content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	revoke(a)
	for t.Context().Err() == nil {
		code, _, _ := get(t, open, url, "")
		if code == 401 {
			break
		}
		time.Sleep(100 * time.Millisecond) // it looks at the files once a second
	}
	code, body, err := get(t, client(a, lost), url, "")
	if code != 401 || !strings.Contains(body, "revoked") {
		t.Errorf("the revoked one: %d, %v: %s", code, err, body)
	}
	code, _, err = get(t, client(a, kept), url, "")
	if code != 200 {
		t.Errorf("another: %d, %v", code, err)
	}
	revoke(newAuthority(t))
	_, err = server.Listen(server.Door{Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: ca}, anyService(), nil)
	if !errors.Is(err, server.ErrListen) {
		t.Errorf("a list of another authority: %v", err)
	}
}

// revoking returns a list of revoked certificates, in PEM, with c.
func (a authority) revoking(c tls.Certificate) []byte {
	a.t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: leaf.SerialNumber, RevocationTime: time.Now()}},
	}, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// A certificate that was renewed is used without a restart.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	a, next, dir := newAuthority(t), newAuthority(t), t.TempDir()
	hostCert, hostKey := a.host()
	cert, key := write(t, dir, hostCert, hostKey)
	url := listen(t, server.Door{Address: "127.0.0.1:0", Cert: cert, Key: key}) + "/status"
	code, _, err := get(t, client(a), url, "")
	if code != 200 {
		t.Fatalf("%d, %v", code, err)
	}
	hostCert, hostKey = next.host()
	write(t, dir, hostCert, hostKey)
	for t.Context().Err() == nil {
		code, _, _ := get(t, client(next), url, "")
		if code == 200 {
			return
		}
		time.Sleep(100 * time.Millisecond) // it looks at the files once a second
	}
}
