package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
)

// probe asks the service while its clusters are in some states.
func probe(t *testing.T, path string, states ...document.State) *httptest.ResponseRecorder {
	t.Helper()
	var d document.ServeStatus
	for _, s := range states {
		d.Clusters = append(d.Clusters, document.ServedCluster{Cluster: "prod", State: s, Problem: "the store is away"})
	}
	w := httptest.NewRecorder()
	server.Serve(server.Service{Status: func() document.ServeStatus { return d }}, server.Access{}).ServeHTTP(w, request(http.MethodGet, path, ""))
	return w
}

func TestServeStatus(t *testing.T) {
	w := probe(t, "/status", document.StateIdle, document.StateRunning)
	var got document.ServeStatus
	err := json.Unmarshal(w.Body.Bytes(), &got)
	if err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %v: %s", w.Header(), err, w.Body)
	}
	if len(got.Clusters) != 2 || got.Clusters[1].State != document.StateRunning {
		t.Errorf("status %s", w.Body)
	}
}

// One cluster that fails is that cluster's: the service is ill when it can do nothing at all.
func TestServeHealth(t *testing.T) {
	for _, test := range []struct {
		states []document.State
		want   int
	}{
		{nil, http.StatusOK},
		{[]document.State{document.StateIdle, document.StateFailing}, http.StatusOK},
		{[]document.State{document.StateFailing, document.StateSuspended}, http.StatusOK},
		{[]document.State{document.StateFailing, document.StateFailing}, http.StatusServiceUnavailable},
	} {
		w := probe(t, "/healthz", test.states...)
		if w.Code != test.want || (test.want != http.StatusOK) != strings.Contains(w.Body.String(), "prod: the store is away") {
			t.Errorf("%v: %d, %q", test.states, w.Code, w.Body)
		}
	}
}

// A probe needs no login, so it is answered from one look a second, however often it is asked.
func TestServeHealthIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := server.Service{Status: func() document.ServeStatus {
			looks++
			state := document.StateFailing
			if looks > 1 {
				state = document.StateIdle
			}
			return document.ServeStatus{Clusters: []document.ServedCluster{{Cluster: "prod", State: state, Problem: "the store is away"}}}
		}}
		h := server.Serve(s, server.Access{})
		for range 1000 {
			code, _, _ := status(h, request("GET", "/healthz", ""))
			if code != 503 {
				t.Fatalf("%d", code)
			}
		}
		time.Sleep(time.Second)
		code, _, _ := status(h, request("GET", "/healthz", ""))
		if code != 200 || looks != 2 {
			t.Errorf("a second later: %d after %d looks", code, looks)
		}
	})
}

// A service of others' clusters may have none, and does not end because all of them fail.
func TestServeProbesOfOthersClusters(t *testing.T) {
	listed, d := false, document.ServeStatus{}
	s := server.Service{Status: func() document.ServeStatus { return d }, Listed: func() bool { return listed }}
	ask := func(path string) int {
		code, _, _ := status(server.Serve(s, server.Access{}), request("GET", path, ""))
		return code
	}
	if ask("/healthz") != 200 || ask("/readyz") != 503 {
		t.Errorf("before the clusters are known: %d, %d", ask("/healthz"), ask("/readyz"))
	}
	d.Clusters = []document.ServedCluster{{Cluster: "first", State: document.StateIdle}}
	_, _, why := status(server.Serve(s, server.Access{}), request("GET", "/readyz", ""))
	if why != "the EtcdBackups are not listed yet\n" {
		t.Errorf("with a part of the clusters: %q", why)
	}
	d.Clusters = nil
	listed = true
	if ask("/healthz") != 200 || ask("/readyz") != 200 {
		t.Errorf("without a cluster: %d, %d", ask("/healthz"), ask("/readyz"))
	}
	d.Clusters = []document.ServedCluster{{Cluster: "prod", State: document.StateFailing}}
	if ask("/healthz") != 200 || ask("/readyz") != 200 {
		t.Errorf("all fail: %d, %d", ask("/healthz"), ask("/readyz"))
	}
	d.Clusters[0].State = document.StateStarting
	if ask("/healthz") != 200 || ask("/readyz") != 200 {
		t.Errorf("one store hangs: %d, %d", ask("/healthz"), ask("/readyz"))
	}
}

// It is ready when it knows of each cluster how it stands, or why it does not know.
func TestServeReady(t *testing.T) {
	for _, test := range []struct {
		states []document.State
		want   int
	}{
		{nil, http.StatusServiceUnavailable},
		{[]document.State{document.StateIdle, document.StateStarting}, http.StatusServiceUnavailable},
		{[]document.State{document.StateIdle, document.StateFailing, document.StateStandby}, http.StatusOK},
	} {
		w := probe(t, "/readyz", test.states...)
		if w.Code != test.want {
			t.Errorf("%v: %d, %q", test.states, w.Code, w.Body)
		}
	}
}
