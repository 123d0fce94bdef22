// Package apiserver starts a real kube-apiserver on loopback for tests, in front of an etcd of package servers, and
// runs kubectl.
//
// No scheduler or kubelet runs next to it, and controllers only after StartControllers: without them new objects stay
// unchanged, and a deleted namespace stays until a test finalizes it.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const (
	readyTimeout = 2 * time.Minute // on cores that other tests use too
	stopTimeout  = 30 * time.Second
	askTimeout   = 5 * time.Second
	pollInterval = 100 * time.Millisecond
	startTries   = 3

	adminToken = "admin-secret"
	// advertised is the address in the endpoints of the service kubernetes, where loopback is refused. Nothing connects
	// to it (RFC 5737).
	advertised = "192.0.2.1"
)

// APIServer is a running kube-apiserver.
type APIServer struct {
	URL        string
	Kubeconfig string // of an administrator
	LogFile    string

	dir          string
	flags        []string // of the process
	certificates *servers.Certificates
	etcd         *servers.Cluster
	process      *process.Process
}

// Start starts an API server on an etcd cluster, which may contain another one's data, and waits until it reports that
// it is ready. It ends with the test. Additional flags come last, so that they win.
func Start(t testing.TB, etcd *servers.Cluster, flags ...string) *APIServer {
	t.Helper()
	s := &APIServer{dir: t.TempDir(), certificates: servers.NewCertificates(t), etcd: etcd}
	s.LogFile = filepath.Join(s.dir, "apiserver.log")
	t.Cleanup(func() { s.cleanUp(t) })
	for try := 1; ; try++ {
		err := s.start(t, flags)
		if err == nil {
			return s
		}
		if try == startTries || !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("kube-apiserver did not start: %v", err)
		}
	}
}

func (s *APIServer) start(t testing.TB, flags []string) error {
	t.Helper()
	port, err := process.FreePort()
	if err != nil {
		return err
	}
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", port)
	s.Kubeconfig = s.write(t, "kubeconfig", fmt.Sprintf(kubeconfig, s.URL, s.certificates.CA, adminToken))
	s.flags = append(s.args(t, port), flags...)
	return s.launch(t)
}

// launch starts the process and waits until it is ready.
func (s *APIServer) launch(t testing.TB) (err error) {
	t.Helper()
	s.process, err = process.Start(s.LogFile, exec.Command(tools.Path(t, "kubernetes", "kube-apiserver"), s.flags...))
	if err != nil {
		return err
	}
	return s.waitReady(t)
}

// kubeconfig is a template for the URL, the authority's file and the token.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: admin}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
`

func (s *APIServer) args(t testing.TB, port int) []string {
	t.Helper()
	c := s.certificates
	args := []string{
		"--etcd-servers", strings.Join(s.etcd.Endpoints(), ","),
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port), "--advertise-address", advertised,
		"--tls-cert-file", c.ServerCert, "--tls-private-key-file", c.ServerKey,
		"--token-auth-file", s.write(t, "tokens.csv", adminToken+`,admin,1,"system:masters"`+"\n"),
		"--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.ServerCert, "--service-account-signing-key-file", c.ServerKey,
		"--service-cluster-ip-range", "198.19.0.0/24",
		// Without controllers there are no service accounts, and the plugin would refuse pods.
		"--disable-admission-plugins", "ServiceAccount",
	}
	etcd := s.etcd.Certificates
	if etcd != nil {
		args = append(args, "--etcd-cafile", etcd.CA, "--etcd-certfile", etcd.Cert, "--etcd-keyfile", etcd.Key)
	}
	return args
}

// write creates a file next to the log.
func (s *APIServer) write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *APIServer) waitReady(t testing.TB) error {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: s.certificates.Config(t)}, Timeout: askTimeout,
	}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(pollInterval) {
		err := s.ready(t.Context(), client)
		switch {
		case err == nil:
			return nil
		case !s.process.Running() && s.process.Said("address already in use"):
			return syscall.EADDRINUSE
		case !s.process.Running():
			return fmt.Errorf("it ended: %s; its log:\n%s", s.process.State(), process.Excerpt(s.LogFile))
		case time.Now().After(deadline):
			return fmt.Errorf("it is not ready after %v: %w; its log:\n%s", readyTimeout, err, process.Excerpt(s.LogFile))
		}
	}
}

// ready sends the token: another server on the same port would refuse it.
func (s *APIServer) ready(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}

// As returns the kubeconfig of a service account, which must exist.
func (s *APIServer) As(t testing.TB, namespace, account string) (path string) {
	t.Helper()
	token := strings.TrimSpace(s.Kubectl(t, "", "-n", namespace, "create", "token", account, "--duration", "1h"))
	return s.write(t, namespace+"-"+account+".kubeconfig", fmt.Sprintf(kubeconfig, s.URL, s.certificates.CA, token))
}

// Stop ends the API server with SIGTERM and waits until it is gone. It has no state of its own: everything is in etcd.
func (s *APIServer) Stop(t testing.TB) {
	t.Helper()
	late := time.AfterFunc(stopTimeout, func() { _ = s.process.Signal(syscall.SIGKILL) })
	defer late.Stop()
	err := s.process.End(syscall.SIGTERM)
	if err != nil {
		t.Fatalf("stop kube-apiserver: %v", err)
	}
}

// Kill ends the API server as a crash would. Stop waits half a minute for clients that watch.
func (s *APIServer) Kill(t testing.TB) {
	t.Helper()
	err := s.process.Kill()
	if err != nil {
		t.Fatalf("kill kube-apiserver: %v", err)
	}
}

// Restart starts an API server that was stopped or killed, on the same port and with the same flags, and waits until it
// is ready.
func (s *APIServer) Restart(t testing.TB) {
	t.Helper()
	err := s.launch(t)
	if err != nil {
		t.Fatalf("kube-apiserver did not start again: %v", err)
	}
}

// cleanUp shows the server's output if the test failed.
func (s *APIServer) cleanUp(t testing.TB) {
	if s.process == nil {
		return
	}
	err := s.process.Kill()
	if err != nil {
		t.Errorf("kill kube-apiserver: %v", err)
	}
	if t.Failed() {
		t.Logf("the log of kube-apiserver:\n%s", process.Excerpt(s.LogFile))
	}
}
