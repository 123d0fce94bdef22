package server

import (
	"encoding/json"
	"net/http"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
)

// Serve serves what the service says of itself: /status as JSON, and /healthz, which answers 503 while it can do nothing
// for any of its clusters. It needs no login and tells no secret; it is meant for loopback, or for a pod's own network.
func Serve(status func() document.ServeStatus) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(status()) // whoever asked is gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if problem := allFailing(status().Clusters); problem != "" {
			http.Error(w, problem, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// allFailing is the first problem if every cluster has one. A single one is that cluster's, and no reason to start anew.
func allFailing(clusters []scheduler.Status) string {
	for _, c := range clusters {
		if c.State != scheduler.Failing {
			return ""
		}
	}
	if len(clusters) == 0 {
		return ""
	}
	return clusters[0].Cluster + ": " + clusters[0].Problem
}
