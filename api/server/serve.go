package server

import (
	"net/http"
	"slices"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
)

// Service is a running dr serve, as others see it over HTTP.
type Service struct {
	Scheduler *scheduler.Service
	Status    func() document.ServeStatus // the clusters by name
	Version   string                      // of dr
	By        string                      // host and version of dr, for what it writes
	Page      http.Handler                // at / and below /assets/; nil: there is none
}

// Serve answers for s: /api/v1 and /status as JSON, /metrics for Prometheus, /healthz, which is 503 while it can do nothing for any of its clusters,
// /readyz, which is 503 until it has looked at each of them, and the page. All but the probes are for those whom a lets in.
func Serve(s Service, a Access) http.Handler {
	mux := http.NewServeMux()
	for path, methods := range byPath(newAPI(s).routes()) {
		mux.HandleFunc(path, methods.answer)
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.Status()) })
	mux.Handle("GET /metrics", metrics(s))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, a, allFailing(s.Status().Clusters)) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, a, notReady(s.Status().Clusters)) })
	if s.Page != nil {
		mux.Handle("GET /{$}", s.Page)
		mux.Handle("GET /assets/", s.Page)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, fail(http.StatusNotFound, "there is nothing at %s", r.URL.Path))
	})
	return newGuard(a, mux)
}

// say answers a probe. Where others could ask it does not tell them which cluster has which problem.
func say(w http.ResponseWriter, a Access, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	switch {
	case problem == "":
		problem = "ok"
	case !a.open():
		problem = "not well: /status says more to those who may read"
		fallthrough
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write([]byte(problem + "\n")) // whoever asked is gone
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

// notReady names a cluster of which nothing is known yet. A configuration has at least one cluster.
func notReady(clusters []scheduler.Status) string {
	if len(clusters) == 0 {
		return "no cluster is looked after yet"
	}
	if i := slices.IndexFunc(clusters, func(c scheduler.Status) bool { return c.State == scheduler.Starting }); i >= 0 {
		return clusters[i].Cluster + ": not looked at yet"
	}
	return ""
}
