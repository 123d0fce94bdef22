package statefulset

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarding is the protocol of kubectl port-forward.
const forwarding = "portforward.k8s.io"

// Dial connects to a pod through the API server, as kubectl port-forward does. The name of the pod is the first part of the host in
// address, which need not resolve. The caller must close the connection, which then has no goroutine left.
func (a *API) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pod, _, _ := strings.Cut(host, ".")
	conn, err := a.forward(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("forward port %s of pod %s/%s: %w", port, a.Namespace, pod, err)
	}
	data, err := openStream(conn, port)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("forward port %s of pod %s/%s: %w", port, a.Namespace, pod, err)
	}
	return newForwarded(conn, data), nil
}

// forwarded is a connection to a pod. Its Close ends the connection to the kubelet, and the goroutines that copy between the two.
type forwarded struct {
	net.Conn
	kubelet httpstream.Connection
	copies  sync.WaitGroup
}

func newForwarded(kubelet httpstream.Connection, data httpstream.Stream) *forwarded {
	near, far := net.Pipe()
	f := &forwarded{Conn: near, kubelet: kubelet}
	f.copies.Go(func() {
		_, _ = io.Copy(far, data) // an end and an error end the connection alike
		far.Close()
	})
	f.copies.Go(func() {
		_, _ = io.Copy(data, far)
		kubelet.Close()
	})
	return f
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	err := f.Conn.Close()
	f.kubelet.Close() // the second one, after the other end has closed it, is an error
	f.copies.Wait()
	return err
}

// forward opens a connection to the kubelet of a pod, through the API server.
func (a *API) forward(ctx context.Context, pod string) (httpstream.Connection, error) {
	server, _, err := rest.DefaultServerUrlFor(a.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(a.config)
	if err != nil {
		return nil, err
	}
	at := server.JoinPath("api/v1/namespaces", a.Namespace, "pods", pod, "portforward")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, err
	}
	conn, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, request, forwarding)
	return conn, err
}

// openStream opens the streams for one connection to a port. The kubelet demands one for errors too; their effect is the end of the data.
func openStream(conn httpstream.Connection, port string) (httpstream.Stream, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	err = failures.Close() // for writing
	if err != nil {
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	return conn.CreateStream(headers)
}
