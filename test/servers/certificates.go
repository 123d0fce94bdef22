package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are the PEM files of one certificate authority made for a test, for --cacert, --cert and --key.
type Certificates struct {
	CA         string
	Cert       string // client, CN=root: with authentication on, it alone logs in as root
	Key        string
	UserCert   string // client, CN=User
	UserKey    string
	ServerCert string // servers and peers, for 127.0.0.1, ::1 and localhost
	ServerKey  string

	authority *authority
}

// NewCertificates creates an authority with a server's and two clients' certificates, in the test's directory. The
// servers' is valid for additional hosts too.
func NewCertificates(t testing.TB, hosts ...net.IP) *Certificates {
	t.Helper()
	return NewCertificatesFor(t, 24*time.Hour, hosts...)
}

// NewCertificatesFor is NewCertificates with certificates that end after d.
func NewCertificatesFor(t testing.TB, d time.Duration, hosts ...net.IP) *Certificates {
	t.Helper()
	a := newAuthority(t, t.TempDir(), d)
	a.hosts = hosts
	c := &Certificates{CA: a.write("ca.pem", "CERTIFICATE", a.cert.Raw), authority: a}
	c.ServerCert, c.ServerKey = a.issue("server")
	c.Cert, c.Key = a.issue("root")
	c.UserCert, c.UserKey = a.issue(User)
	return c
}

// Client issues another certificate of root, in files called name, which ends after d.
func (c *Certificates) Client(name string, d time.Duration) (certFile, keyFile string) {
	long := c.authority.lasts
	defer func() { c.authority.lasts = long }()
	c.authority.lasts = d
	return c.authority.issueTo("root", name)
}

// User issues a client's certificate with the name of a user and of its groups (Kubernetes' form), which ends with the others.
func (c *Certificates) User(name, file string, groups ...string) (certFile, keyFile string) {
	before := c.authority.groups
	defer func() { c.authority.groups = before }()
	c.authority.groups = groups
	return c.authority.issueTo(name, file)
}

// Server issues a certificate of a server in files with that name, for more host names, which may begin with a wildcard.
func (c *Certificates) Server(file string, names ...string) (certFile, keyFile string) {
	before := c.authority.names
	defer func() { c.authority.names = before }()
	c.authority.names = names
	return c.authority.issueTo("server", file)
}

// Config returns a client's TLS configuration with the certificate of root.
func (c *Certificates) Config(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s holds no certificate", c.CA)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

type authority struct {
	t      testing.TB
	dir    string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	serial int64
	lasts  time.Duration
	hosts  []net.IP
	names  []string // hosts too
	groups []string // the organizations of the subject
}

func newAuthority(t testing.TB, dir string, lasts time.Duration) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir, key: newKey(t), lasts: lasts}
	template := a.template("etcd-dr test authority")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issue creates a certificate for both ends: a member is the client of its peers and, in its gateway, of itself.
func (a *authority) issue(name string) (certFile, keyFile string) { return a.issueTo(name, name) }

func (a *authority) issueTo(name, file string) (certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = append([]string{"localhost"}, a.names...)
	template.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, a.hosts...)
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(file+".pem", "CERTIFICATE", cert), a.write(file+"-key.pem", "PRIVATE KEY", der)
}

func (a *authority) template(name string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial),
		Subject:      pkix.Name{CommonName: name, Organization: a.groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(a.lasts),
	}
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	err := os.WriteFile(path, data, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
