package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/scheduler"
)

// getServed asks the service's page while its clusters are in some states.
func getServed(t *testing.T, path string, states ...scheduler.State) (*http.Response, string) {
	t.Helper()
	var d document.ServeStatus
	for _, s := range states {
		d.Clusters = append(d.Clusters, scheduler.Status{Cluster: "prod", State: s, Problem: "the store is away"})
	}
	page := httptest.NewServer(server.Serve(func() document.ServeStatus { return d }))
	defer page.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := page.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestServeStatus(t *testing.T) {
	response, body := getServed(t, "/status", scheduler.Idle, scheduler.Running)
	var got document.ServeStatus
	if err := json.Unmarshal([]byte(body), &got); err != nil || response.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %v: %s", response.Header, err, body)
	}
	if len(got.Clusters) != 2 || got.Clusters[1].State != scheduler.Running {
		t.Errorf("status %s", body)
	}
}

// One cluster that fails is that cluster's: the service is ill when it can do nothing at all.
func TestServeHealth(t *testing.T) {
	for _, test := range []struct {
		states []scheduler.State
		want   int
	}{
		{nil, http.StatusOK},
		{[]scheduler.State{scheduler.Idle, scheduler.Failing}, http.StatusOK},
		{[]scheduler.State{scheduler.Failing, scheduler.Suspended}, http.StatusOK},
		{[]scheduler.State{scheduler.Failing, scheduler.Failing}, http.StatusServiceUnavailable},
	} {
		response, body := getServed(t, "/healthz", test.states...)
		if response.StatusCode != test.want || (test.want != http.StatusOK) != strings.Contains(body, "prod: the store is away") {
			t.Errorf("%v: %s, %q", test.states, response.Status, body)
		}
	}
}
