package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrListen means that a Door cannot be opened, or that other hosts could reach it without TLS or without a login.
var ErrListen = fault.New(fault.Internal, "cannot listen")

// Door is the address of a service and the logins that it accepts. The files are read again when they change.
type Door struct {
	Address   string // host:port; any but a loopback address requires Cert, and Tokens or ClientCA
	Cert, Key string // files of PEM; "": no TLS
	Tokens    string // file; see NewAccess
	// ClientCA is a file of PEM: the authorities whose client certificates are a login, with the role as organizational unit. It may
	// also contain these authorities' lists of revoked certificates.
	ClientCA string
	// Probes is the host:port at which /healthz and /readyz, and nothing else, are served without TLS and login, for supervisors on
	// other hosts such as kubelet; "": none. The answers contain no data.
	Probes string
}

// Listen serves s at d's addresses until stop is called. Errors match ErrListen.
func Listen(d Door, s Service, report storage.Report) (stop func(), err error) {
	stopProbes, err := d.serveProbes(s, report)
	if err != nil {
		return nil, fmt.Errorf("--probe-listen: %w", err)
	}
	stopAll, err := d.serveAll(s, report)
	if err != nil {
		stopProbes()
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return func() { stopAll(); stopProbes() }, nil
}

// serveProbes serves the probes of s at d.Probes.
func (d Door) serveProbes(s Service, report storage.Report) (stop func(), err error) {
	if d.Probes == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", d.Probes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	report.Say(storage.Event{Stage: "listen", Level: storage.Note, Message: fmt.Sprintf("the probes are at http://%s", listener.Addr())})
	return serveAt(listener, nil, serveProbes(s), report), nil
}

// serveAll serves s at d.Address.
func (d Door) serveAll(s Service, report storage.Report) (stop func(), err error) {
	if d.Address == "" {
		return func() {}, nil
	}
	if d.ClientCA != "" && d.Cert == "" {
		return nil, fmt.Errorf("%w: client certificates need TLS: name a certificate and its key (--tls-cert, --tls-key)", ErrListen)
	}
	access, err := NewAccess(d.Tokens, d.ClientCA != "", report)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	if d.ClientCA != "" {
		access.revoked, err = reload([]string{d.ClientCA}, parseRevoked, report)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrListen, err)
		}
	}
	secure, err := d.secure(report)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	listener, err := net.Listen("tcp", d.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	err = mayListen(listener.Addr(), secure != nil, access)
	if err != nil {
		listener.Close()
		return nil, err
	}
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	report.Say(storage.Event{Stage: "listen", Level: storage.Note, Message: fmt.Sprintf("the service is at %s://%s", scheme, listener.Addr())})
	return serveAt(listener, secure, Serve(s, access), report), nil
}

// mayListen returns an error if other hosts could reach the service and it has no TLS or no login.
func mayListen(at net.Addr, secure bool, a Access) error {
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case ok && tcp.IP.IsLoopback():
		return nil
	case !secure:
		return fmt.Errorf("%w at %s: other hosts can reach it, and no client could tell it from an impostor: "+
			"name a certificate and its key (--tls-cert, --tls-key)", ErrListen, at)
	case a.open():
		return fmt.Errorf("%w at %s: other hosts can use it without a login: "+
			"name a file of tokens (--tokens-file), or the clients' authority (--client-ca)", ErrListen, at)
	}
	return nil
}

// secure returns the TLS configuration, nil for plain connections.
func (d Door) secure(report storage.Report) (*tls.Config, error) {
	if d.Cert == "" && d.Key == "" {
		return nil, nil
	}
	files := []string{d.Cert, d.Key}
	if d.ClientCA != "" {
		files = append(files, d.ClientCA)
	}
	current, err := reload(files, parseTLS, report)
	if err != nil {
		return nil, err
	}
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get(), nil }}, nil
}

// parseTLS parses a certificate, its key and optionally the authorities of clients. A client certificate stays optional, because
// a token is a login too.
func parseTLS(files [][]byte) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if len(files) > 2 {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(files[2]) {
			return nil, errors.New("the file of the clients' authority contains no certificate in PEM")
		}
	}
	return c, nil
}

// Limits of one connection.
const (
	headerWait = 5 * time.Second
	readWait   = 15 * time.Second
	answerWait = storeWait + 30*time.Second
	idleWait   = 2 * time.Minute
	stopWait   = time.Second
	maxHeader  = 16 << 10 // bytes
)

// serveAt serves handler at listener, with TLS if secure is not nil, until stop is called.
func serveAt(listener net.Listener, secure *tls.Config, handler http.Handler, report storage.Report) (stop func()) {
	s := &http.Server{
		Handler: handler, TLSConfig: secure, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerWait, ReadTimeout: readWait, WriteTimeout: answerWait, IdleTimeout: idleWait,
		ErrorLog: log.New(newComplaints(report), "", 0),
	}
	serve := func() error { return s.Serve(listener) }
	if secure != nil {
		serve = func() error { return s.ServeTLS(listener, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
		err := <-ended
		if !errors.Is(err, http.ErrServerClosed) {
			report.Say(storage.Event{Stage: "listen", Level: storage.Warning, Message: fmt.Sprintf("%s has stopped accepting requests: %v", listener.Addr(), err)})
		}
	}
}

// complaints reports the log of net/http at a limited rate, because every client can cause any number of its lines.
type complaints struct {
	report storage.Report
	few    rate.Sometimes
}

func newComplaints(report storage.Report) *complaints {
	return &complaints{report, rate.Sometimes{First: 3, Interval: time.Minute}}
}

func (c *complaints) Write(line []byte) (int, error) {
	c.few.Do(func() {
		c.report.Say(storage.Event{Stage: "listen", Level: storage.Warning, Message: strings.TrimSpace(string(line))})
	})
	return len(line), nil
}
