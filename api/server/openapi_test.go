package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// The document is made of the routes and of the Go types, so that neither can change without it.
func TestOpenAPIIsUpToDate(t *testing.T) {
	want, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	golden.Want(t, "openapi.json", append(want, '\n'))
}

// described is the document as a client gets it, read by another library than the one that made it.
func described(t *testing.T, s *site) (*openapi3.T, routers.Router) {
	t.Helper()
	w := s.do(request(http.MethodGet, "/api/v1/openapi.json", ""))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	d, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err == nil {
		err = d.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(d)
	if err != nil {
		t.Fatal(err)
	}
	return d, router
}

// All that is described is served, with no other methods.
func TestOpenAPIIsServed(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		d, _ := described(t, s)
		for path, item := range d.Paths.Map() {
			path = strings.NewReplacer("{cluster}", "prod", "{backup}", string(s.ids[0])).Replace(path)
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				time.Sleep(time.Second) // not too fast
				w := s.do(request(method, path, "{}"))
				is := item.GetOperation(method) != nil
				if is == (w.Code == http.StatusMethodNotAllowed) || w.Code >= 500 {
					t.Errorf("%s %s: %d, described: %v: %s", method, path, w.Code, is, w.Body)
				}
				if w.Code == http.StatusMethodNotAllowed && item.GetOperation(w.Header().Get("Allow")) == nil {
					t.Errorf("%s %s: allowed is %q", method, path, w.Header().Get("Allow"))
				}
			}
		}
	})
}

// All that is sent and answered is as it is described.
func TestOpenAPIIsKept(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		d, router := described(t, s)
		unseen := map[string]bool{}
		for path, item := range d.Paths.Map() {
			for method := range item.Operations() {
				unseen[method+" "+path] = true
			}
		}
		backup := prod + "/backups/" + string(s.ids[0])
		for _, ask := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", "/api/v1/clusters", "", 200},
			{"GET", prod, "", 200},
			{"GET", "/api/v1/clusters/test", "", 200},
			{"GET", "/api/v1/clusters/other", "", 404},
			{"GET", prod + "/backups", "", 200},
			{"GET", prod + "/backups?repository=offsite", "", 200},
			{"GET", "/api/v1/clusters/test/backups", "", 502},
			{"GET", prod + "/windows", "", 200},
			{"GET", prod + "/drills", "", 200},
			{"GET", prod + "/retention", "", 200},
			{"GET", prod + "/plan", "", 200},
			{"GET", prod + "/plan?revision=15&repository=main", "", 200},
			{"GET", prod + "/plan?time=1999-12-31T23:30:00Z&best=true", "", 200},
			{"GET", prod + "/plan?backup=latest", "", 200},
			{"GET", prod + "/plan?revision=99", "", 404},
			{"GET", "/api/v1/jobs", "", 200},
			{"GET", "/api/v1/openapi.json", "", 200},
			{"GET", "/status", "", 200},
			{"GET", "/healthz", "", 200},
			{"GET", "/readyz", "", 200},
			{"GET", "/metrics", "", 200},
			{"POST", prod + "/suspend", `{"reason": "the store moves"}`, 200},
			{"POST", prod + "/trigger", `{}`, 409},
			{"POST", prod + "/resume", `{}`, 200},
			{"POST", prod + "/trigger", `{"job": "prune", "reason": "it is full"}`, 409},
			{"POST", prod + "/trigger", `{"job": "backup", "reason": "before the upgrade"}`, 202},
			{"POST", prod + "/trigger", `{}`, 202},
			{"POST", backup + "/pin", `{"reason": "before the upgrade"}`, 200},
			{"GET", prod + "/backups", "", 200},
			{"POST", backup + "/unpin", `{}`, 200},
			{"POST", backup + "/unpin", ``, 200},
			{"GET", "/api/v1/jobs", "", 200},
		} {
			time.Sleep(20 * time.Second) // triggered jobs end, and kept catalogs expire
			operation := s.keeps(router, ask.method, ask.path, ask.body, ask.want)
			delete(unseen, operation)
		}
		for operation := range unseen {
			t.Errorf("nobody has asked: %s", operation)
		}
	})
}

// keeps sends a request and compares it and the response with the description.
func (s *site) keeps(router routers.Router, method, path, body string, want int) (operation string) {
	s.t.Helper()
	r := request(method, path, body)
	if body == "" {
		r.Body = http.NoBody
	}
	route, parameters, err := router.FindRoute(r)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return ""
	}
	question := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	err = openapi3filter.ValidateRequest(s.t.Context(), question)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
	}
	w := s.do(r)
	if w.Code != want {
		s.t.Errorf("%s %s: %d, want %d: %s", method, path, w.Code, want, w.Body)
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: question, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: question.Options,
	}
	err = openapi3filter.ValidateResponse(s.t.Context(), answer)
	if err != nil {
		s.t.Errorf("%s %s: %v\n%s", method, path, err, w.Body)
	}
	return method + " " + route.Path
}
