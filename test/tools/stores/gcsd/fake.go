package main

import (
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// fake stands before the library's handler.
type fake struct {
	store   *fakestorage.Server
	handler http.Handler
	host    string

	// One request at a time decides and changes: what a precondition or a lock was judged by still holds when the
	// change is made. Nothing is read from or written to a client under it, since clients may be slow.
	mu      sync.Mutex
	buckets map[string]retentionRules
	locks   map[version]lock
	uploads map[string]*upload
}

func newFake(store *fakestorage.Server, host string) *fake {
	return &fake{
		store:   store,
		handler: store.HTTPHandler(),
		host:    host,
		buckets: map[string]retentionRules{},
		locks:   map[version]lock{},
		uploads: map[string]*upload{},
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/token":
		exchangeToken(w, r)
		return
	case "/_internal/healthcheck":
		f.handler.ServeHTTP(w, r)
		return
	}
	c, err := readCall(r)
	if err != nil {
		refuse(http.StatusBadRequest, "invalid", err.Error()).send(w)
		return
	}
	if refused := authorize(c); refused != nil {
		refused.send(w)
		return
	}
	if c.kind == media {
		f.serveMedia(w, c)
		return
	}
	f.answer(c).send(w)
}

// serveMedia streams an object's content, which may be large and its reader slow.
func (f *fake) serveMedia(w http.ResponseWriter, c call) {
	f.mu.Lock()
	refused := f.wrongGeneration(c)
	f.mu.Unlock()
	if refused != nil {
		refused.send(w)
		return
	}
	// A client that came through a proxy names the proxy, and the library would take that for a bucket.
	c.request.Host = f.host
	f.handler.ServeHTTP(w, c.request)
}

func (f *fake) answer(c call) *answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c.kind {
	case bucket:
		return f.answerBucket(c)
	case list:
		return f.forward(c)
	case object:
		return f.answerObject(c)
	case uploadStart:
		return f.startUpload(c)
	case uploadChunk:
		return f.continueUpload(c)
	}
	return refuse(http.StatusNotImplemented, "notImplemented",
		"this fake does not know "+c.request.Method+" "+c.request.URL.Path)
}

// forward has the library answer, and adds what only the fake knows.
func (f *fake) forward(c call) *answer {
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, c.withBody())
	a := &answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
	a.edit(f.addLocks)
	return a
}
