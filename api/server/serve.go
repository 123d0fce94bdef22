package server

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// Service is a running dr serve or dr operator, as its HTTP handlers need it.
type Service struct {
	Scheduler *scheduler.Service
	Status    func() document.ServeStatus // the clusters by name
	Pruned    func() []Pruned             // the last pruning of each cluster and repository; nil: unknown
	// Spec returns the configuration of a cluster, an error if it is not configured; nil: unknown.
	Spec    func(cluster string) (spec.Spec, error)
	Version string       // of dr
	By      string       // host and version of dr, for stored documents
	Page    http.Handler // at / and below /assets/; nil: there is none
	// Metrics are gathered into /metrics next to the service's own, whose names begin with etcd_dr_; nil: there are none.
	Metrics prometheus.Gatherer
	// Listed reports whether dr operator has listed the EtcdBackups. It may have no cluster; it is ready when Listed returns true, and stays
	// healthy even if all clusters fail. nil for dr serve: its file names the clusters, at least one.
	Listed func() bool
}

// Serve returns the handler of s: /api/v1 and /status as JSON, /metrics for Prometheus, the page, and the probes /healthz and /readyz,
// which return 503 while the service is unhealthy or not ready: see allFailing and notReady. a guards all routes; the probes and the
// files of the page need no login.
func Serve(s Service, a Access) http.Handler {
	mux := http.NewServeMux()
	for path, methods := range byPath(slices.Concat(newAPI(s).routes(), monitoring(s, a))) {
		mux.HandleFunc(path, methods.answer)
	}
	if s.Page != nil {
		mux.Handle("GET /{$}", s.Page)
		mux.Handle("GET /assets/", s.Page)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, fail(http.StatusNotFound, "there is nothing at %s", r.URL.Path))
	})
	return newGuard(a, mux)
}

// The paths of the probes for supervisors.
const (
	healthzPath = "/healthz"
	readyzPath  = "/readyz"
)

// monitoring returns the routes of the metrics and of the probes. Probes need no login: see isProbe.
func monitoring(s Service, a Access) []route {
	get := func(path, summary string, h http.Handler) route {
		return route{method: http.MethodGet, path: path, summary: summary, status: http.StatusOK, plain: h}
	}
	healthz, readyz := s.probes(!a.open())
	return []route{
		get("/metrics", "Metrics, for Prometheus.", metrics(s)),
		get(healthzPath, "503 while the service can do nothing for any of its clusters. It needs no login.", healthz),
		get(readyzPath, "503 until the service is ready: dr serve when it has surveyed each of its clusters, "+
			"dr operator when it has listed the EtcdBackups. It needs no login.", readyz),
	}
}

// probes returns the handlers for supervisors. If brief is set, their answers contain no problem.
func (s Service) probes(brief bool) (healthz, readyz http.Handler) {
	ask := func(problem func([]document.ServedCluster) string) http.Handler {
		current := rarely(func() string { return problem(s.Status().Clusters) })
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, brief, current()) })
	}
	return ask(s.allFailing), ask(s.notReady)
}

// serveProbes returns the handler of the probes alone.
func serveProbes(s Service) http.Handler {
	healthz, readyz := s.probes(true)
	mux := http.NewServeMux()
	mux.Handle("GET "+healthzPath, healthz)
	mux.Handle("GET "+readyzPath, readyz)
	return mux
}

// rarely returns a function that computes the answer at most once a second and returns the last answer in between. Probes require no
// login, and each computation copies and sorts the status of all clusters.
func rarely(answer func() string) func() string {
	var (
		mu    sync.Mutex
		last  string
		asked time.Time
	)
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		if asked.IsZero() || time.Since(asked) >= time.Second {
			last, asked = answer(), time.Now()
		}
		return last
	}
}

// isProbe reports whether path is for supervisors, such as kubelet. They have no login, and need a response even from a busy service.
func isProbe(path string) bool { return path == healthzPath || path == readyzPath }

// answerProbe responds to a probe. If brief is set, the response hides the problem: probes need no login.
func answerProbe(w http.ResponseWriter, brief bool, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if problem != "" && brief {
		problem = "unhealthy: /status has the details, for logins with the role read"
	}
	problem = cmp.Or(problem, "ok")
	_, _ = w.Write([]byte(problem + "\n")) // an error means that the client has disconnected
}

// allFailing returns the first problem if every cluster of dr serve is failing, else "". A supervisor then restarts the service, which
// would not help if only some clusters were failing.
func (s Service) allFailing(clusters []document.ServedCluster) string {
	for _, c := range clusters {
		if c.State != document.StateFailing {
			return ""
		}
	}
	if len(clusters) == 0 || s.Listed != nil {
		return ""
	}
	return clusters[0].Cluster + ": " + clusters[0].Problem
}

// notReady returns why the service is not ready, "" if it is. dr operator does not wait for surveys: one tenant's store that hangs would
// keep it from being ready.
func (s Service) notReady(clusters []document.ServedCluster) string {
	switch {
	case s.Listed != nil && s.Listed():
		return ""
	case s.Listed != nil:
		return "the EtcdBackups are not listed yet"
	case len(clusters) == 0:
		return "no cluster is loaded yet"
	}
	i := slices.IndexFunc(clusters, func(c document.ServedCluster) bool { return c.State == document.StateStarting })
	if i >= 0 {
		return clusters[i].Cluster + ": not surveyed yet"
	}
	return ""
}
