package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// route is one operation of the server. openapi.json is generated from the same routes: those of api.routes and of probes.
type route struct {
	method, path string
	summary      string
	query        []parameter
	body         any // zero value of the request's body; nil: none
	status       int // of a success
	document     any // zero value of the response
	do           func(*http.Request) (any, error)
	plain        http.Handler // instead of do: responds in plain text
}

// parameter is a part of the query.
type parameter struct{ name, kind, meaning string }

const (
	root              = "/api/v1"
	ofCluster         = root + "/clusters/{cluster}"
	ofBackup          = ofCluster + "/backups/{backup}"
	repositoryMeaning = "name of one of the cluster's repositories; its first one if absent"
)

var inRepository = parameter{"repository", "string", repositoryMeaning}

// routes returns the operations under /api/v1, and /status.
func (a *api) routes() []route {
	get := func(r route) route {
		r.method, r.status = http.MethodGet, http.StatusOK
		return r
	}
	post := func(r route) route {
		r.method, r.status = http.MethodPost, cmp.Or(r.status, http.StatusOK)
		return r
	}
	return []route{
		get(route{path: root + "/clusters", summary: "All clusters, the worst first, and the active configuration.",
			document: document.ServeStatus{}, do: a.clusters}),
		get(route{path: ofCluster, summary: "One cluster.", document: document.ServedCluster{}, do: a.cluster}),
		get(route{path: ofCluster + "/backups", summary: "The backups and the log of a cluster in one repository: dr list.",
			query: []parameter{inRepository}, document: document.List{}, do: a.backups}),
		get(route{path: ofCluster + "/windows", summary: "Windows of the log that can be restored to any point, and gaps.",
			query: []parameter{inRepository}, document: document.Recovery{}, do: a.windows}),
		get(route{path: ofCluster + "/drills", summary: "The drills of a cluster, newest first.",
			query: []parameter{inRepository}, document: document.Drills{}, do: a.drills}),
		get(route{path: ofCluster + "/retention", summary: "What the next pruning removes, and why: dr prune --dry-run.",
			query: []parameter{inRepository}, document: document.Prune{}, do: a.retention}),
		get(route{path: ofCluster + "/plan", summary: "The command that restores a point. Without a target: the newest point.",
			query: []parameter{
				inRepository,
				{"time", "date-time", "the last state that is surely not later than this time"},
				{"revision", "integer", "the state right after the request that made this revision"},
				{"backup", "string", "this backup alone: its id, or latest"},
				{"best", "boolean", "take the nearest earlier point if the target cannot be reached"},
			}, document: document.Way{}, do: a.plan}),
		get(route{path: root + "/jobs", summary: "Running, waiting and finished jobs of all clusters.", document: document.Jobs{}, do: a.jobs}),
		post(route{path: ofCluster + "/trigger", summary: "Start a job now: dr trigger. Its progress is in the cluster's jobs.",
			body: triggerRequest{}, status: http.StatusAccepted, document: document.QueuedJob{}, do: a.trigger}),
		post(route{path: ofCluster + "/suspend", summary: "Start no more jobs for the cluster, in all services, until it is resumed.",
			body: suspendRequest{}, document: document.ServedCluster{}, do: a.suspend}),
		post(route{path: ofCluster + "/resume", summary: "Start due jobs again. Missed jobs run once.",
			body: emptyRequest{}, document: document.ServedCluster{}, do: a.resume}),
		post(route{path: ofBackup + "/pin", summary: "Keep a backup from being pruned: dr pin.",
			query: []parameter{inRepository}, body: pinRequest{}, document: document.Pins{}, do: a.pin}),
		post(route{path: ofBackup + "/unpin", summary: "Let a backup be pruned again: dr unpin.",
			query: []parameter{inRepository}, body: emptyRequest{}, document: document.Pins{}, do: a.unpin}),
		get(route{path: root + "/openapi.json", summary: "This document.",
			document: json.RawMessage{}, do: func(*http.Request) (any, error) { return json.RawMessage(openAPI), nil }}),
		get(route{path: "/status", summary: "All clusters by name, and the active configuration.",
			document: document.ServeStatus{}, do: func(*http.Request) (any, error) { return a.Status(), nil }}),
	}
}

// methods are the routes of one path.
type methods []route

func byPath(routes []route) map[string]methods {
	paths := map[string]methods{}
	for _, r := range routes {
		paths[r.path] = append(paths[r.path], r)
	}
	return paths
}

// answer serves r with the route of its method. net/http drops the body of a response to HEAD.
func (m methods) answer(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(m, func(one route) bool { return one.method == method })
	if i < 0 {
		var allowed []string
		for _, one := range m {
			allowed = append(allowed, one.method)
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		writeError(w, fail(http.StatusMethodNotAllowed, "%s does not accept %s", r.URL.Path, r.Method))
		return
	}
	if m[i].plain != nil {
		m[i].plain.ServeHTTP(w, r)
		return
	}
	result, err := m[i].do(r)
	if err != nil {
		writeError(w, err)
		return
	}
	answer(w, m[i].status, result)
}

// failure is an error with the status of its response.
type failure struct {
	status  int
	message string
	cure    string
}

func (f *failure) Error() string { return f.message }

func fail(status int, format string, args ...any) *failure {
	return &failure{status: status, message: fmt.Sprintf(format, args...)}
}

// writeError writes err as the response.
func writeError(w http.ResponseWriter, err error) {
	status, problem := statusOf(err), document.Problem{Message: err.Error(), Cure: fault.RemedyOf(err)}
	if problem.Cure != "" {
		problem.Message = strings.TrimSuffix(problem.Message, ": "+problem.Cure)
	}
	var failed *failure
	var unreachable *plan.UnreachableError
	switch {
	case errors.As(err, &failed):
		status, problem.Cure = failed.status, failed.cure
	case errors.As(err, &unreachable) && unreachable.Nearest != "":
		problem.Message = "the target is not in the repository: " + unreachable.Why
		problem.Cure = "the nearest restorable point is " + unreachable.Nearest
	}
	answer(w, status, problem)
}

// statusOf returns the status for an error of a library. The request itself was parsed, so a usage error means that the request
// conflicts with the cluster's state. All other errors are those of the store or the member, for which the service is a gateway.
func statusOf(err error) int {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Usage, fault.Refused, fault.Busy:
		return http.StatusConflict
	}
	return http.StatusBadGateway
}

// answer writes v as JSON. Caches must not store the response, because v describes the present.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error means that the client has disconnected
}
