package statefulset_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
)

// kubelet is an API server with one pod, whose ports return what they receive, until the client ends the connection.
func kubelet(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/payments/pods/etcd-0/portforward" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set(httpstream.HeaderProtocolVersion, "portforward.k8s.io")
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-streams:
			if s.Headers().Get("streamType") == "data" {
				go func() { _, _ = io.Copy(s, s) }()
			}
		}
	}
}

// TestForwardedConnections dials a pod through the API server. When Close returns, the connection has no goroutine left.
func TestForwardedConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(kubelet))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c, namespace: payments}}]
current-context: c
`, server.URL), 0o600))
	api, err := statefulset.Connect(statefulset.Access{Kubeconfig: file})
	must(t, err)
	for range 20 {
		conn, err := api.Dial(t.Context(), "etcd-0.etcd.payments.svc:2379")
		must(t, err)
		_, err = conn.Write([]byte("hello"))
		must(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(conn, got)
		must(t, err)
		must(t, conn.Close())
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if string(got) != "hello" || strings.Contains(string(stacks), "statefulset/forward.go") {
			t.Fatalf("it returns %q, and after Close goroutines are left:\n%s", got, stacks)
		}
		_ = conn.Close() // again
	}
	_, err = api.Dial(t.Context(), "etcd-1.etcd.payments.svc:2379")
	if err == nil || !strings.Contains(err.Error(), "forward port 2379 of pod payments/etcd-1") {
		t.Errorf("%v", err)
	}
}
