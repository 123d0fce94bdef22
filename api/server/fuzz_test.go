package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/backups"
)

// expected are all answers there are. That a store is away is 502; 500 is a mistake of ours.
var expected = []int{200, 202, 301, 307, 400, 401, 403, 404, 405, 409, 413, 415, 429, 502, 503}

// FuzzRequests: whatever is sent gets an answer that was thought of, and takes no backup away.
func FuzzRequests(f *testing.F) {
	s, c := newSite(f, nil), config(f)
	ctx, stop := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() { s.service.Run(ctx, c, nil) })
	f.Cleanup(running.Wait)
	f.Cleanup(stop)
	id := string(s.ids[0])
	for _, line := range []string{
		"GET /api/v1/clusters", "GET " + prod, "GET " + prod + "/backups?repository=main", "GET " + prod + "/backups?repository=%00&repository=x",
		"GET " + prod + "/windows", "GET " + prod + "/drills", "GET " + prod + "/retention", "HEAD " + prod + "/retention",
		"GET " + prod + "/plan?time=2026-11-21T10:00:00%2B02:00", "GET " + prod + "/plan?revision=15&best=true", "GET " + prod + "/plan?backup=" + id,
		"GET /api/v1/jobs", "GET /status", "GET /metrics", "GET /healthz", "GET /readyz", "GET /", "GET //", "GET /api/v1/clusters/%2e%2e/backups",
		"GET /api/v1/../v1/jobs", "OPTIONS *", "CONNECT /api/v1/jobs", "DELETE " + prod + "/backups/" + id, "TRACE /status",
	} {
		f.Add(line + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	for path, body := range map[string]string{
		prod + "/trigger": `{"job": "backup", "reason": "x"}`, prod + "/suspend": `{"reason": "x"}`, prod + "/resume": `{}`,
		prod + "/backups/" + id + "/pin": `{"reason": "x"}`, prod + "/backups/" + id + "/unpin": ``, prod + "/backups/x/pin": `{"reason": `,
		"/api/v1/clusters/other/trigger": `{"job": 5}`, "/api/v1/clusters/test/suspend": `{"reason": "\u0000"}`,
	} {
		f.Add(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: [::1]:1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body))
		f.Add(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: evil\r\nOrigin: null\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n%.5s", path, body))
	}
	var client atomic.Uint32
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		n := client.Add(1) // each request has another sender, so that no rate limit applies
		r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r.WithContext(t.Context()))
		if !slices.Contains(expected, w.Code) || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Fatalf("%q: %d, %v: %s", raw, w.Code, w.Header(), w.Body)
		}
		var problem document.Problem
		err = json.Unmarshal(w.Body.Bytes(), &problem)
		if w.Code >= 400 && !strings.HasPrefix(r.URL.Path, "/healthz") && (err != nil || problem.Message == "") {
			t.Fatalf("%q: %d: %v: %s", raw, w.Code, err, w.Body)
		}
		catalog, err := s.cluster.Load(t.Context(), backups.LoadOptions{})
		if err != nil || len(catalog.Backups) != 2 {
			t.Fatalf("%q: %v, %d backups are left", raw, err, len(catalog.Backups))
		}
	})
}
