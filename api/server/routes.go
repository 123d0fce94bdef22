package server

import (
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

// route is one operation. The server and openapi.json are both made from the table of all routes.
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
		writeError(w, fail(http.StatusMethodNotAllowed, "%s takes no %s", r.URL.Path, r.Method))
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
		problem.Cure = "the nearest that can be restored is " + unreachable.Nearest
	}
	answer(w, status, problem)
}

// statusOf returns the status for an error of a library. The request was parsed: values that do not fit each other conflict
// with the cluster's state, and every failure of the store or the member is one of a gateway.
func statusOf(err error) int {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Usage, fault.Refused, fault.Busy:
		return http.StatusConflict
	}
	return http.StatusBadGateway
}

// answer writes v as JSON. Caches must not store it, because it describes the present.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error means that the client has disconnected
}
