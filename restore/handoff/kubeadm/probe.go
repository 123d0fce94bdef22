package kubeadm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// etcdWaits returns why etcd does not serve yet; "" if it does. /health of its metrics URL reads through the leader, so it needs a quorum.
func (p *Pods) etcdWaits(ctx context.Context) (string, error) {
	own, err := p.Member(ctx)
	if err != nil {
		return "", err
	}
	if own.MetricsURL == "" {
		return "", nil // the API server waits for it
	}
	url := own.MetricsURL + "/health"
	code, err := get(ctx, http.DefaultTransport, url)
	if err == nil && code == http.StatusOK {
		return "", nil
	}
	return fmt.Sprintf("etcd has no leader yet, it needs most of the members (%s: %s): run the same command on the other hosts", url, reason(code, err)), nil
}

// serverWaits returns why the API server is not ready yet; "" if it is.
func (p *Pods) serverWaits(ctx context.Context) (string, error) {
	address, err := p.serverAddress()
	if err != nil || address == "" {
		return "", err
	}
	roots, err := p.serverRoots()
	if err != nil {
		return "", err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	url := "https://" + address + "/readyz"
	code, err := get(ctx, transport, url)
	if err == nil && slices.Contains([]int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden}, code) { // it may refuse strangers
		return "", nil
	}
	return fmt.Sprintf("the API server is not ready yet (%s: %s)", url, reason(code, err)), nil
}

// serverAddress returns host and port of the API server's probe; "" if there is no API server on this host, or no probe.
func (p *Pods) serverAddress() (string, error) {
	pod, err := p.read(apiServer)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	probe := pod.Spec.Containers[0].LivenessProbe
	if probe == nil || probe.HTTPGet == nil {
		return "", nil
	}
	port := probe.HTTPGet.Port.String()
	for _, named := range pod.Spec.Containers[0].Ports {
		if named.Name == port {
			port = fmt.Sprint(named.ContainerPort)
		}
	}
	return net.JoinHostPort(hostOf(probe.HTTPGet), port), nil
}

func hostOf(probe *corev1.HTTPGetAction) string {
	if probe.Host == "" {
		return "127.0.0.1"
	}
	return probe.Host
}

// serverRoots returns the authority of the API server's certificate: the one of its clients, as kubeadm has a single one.
func (p *Pods) serverRoots() (*x509.CertPool, error) {
	pod, err := p.read(apiServer)
	if err != nil {
		return nil, err
	}
	file := onHost(pod, processOf(pod).Flag("client-ca-file"))
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: read the authority of the API server: %w: put the file back, perhaps with dr assets restore", fault.Unreachable, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots, nil
}

// get returns the status code of an answer.
func get(ctx context.Context, transport http.RoundTripper, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, nil
}

func reason(code int, err error) string {
	if err != nil {
		return err.Error()
	}
	return http.StatusText(code)
}
