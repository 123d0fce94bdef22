package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// kind is what a request is about.
type kind int

const (
	unknown kind = iota
	bucket
	list
	object      // its attributes, or its end
	media       // its content
	uploadStart // an upload in one request, too
	uploadChunk
)

// call is a request whose body has been read.
type call struct {
	request *http.Request
	kind    kind
	bucket  string
	object  string
	body    []byte
}

func readCall(r *http.Request) (call, error) {
	c := parsePath(r)
	c.request = r
	var err error
	c.body, err = io.ReadAll(r.Body)
	if err != nil {
		return call{}, fmt.Errorf("the body ended early: %w", err)
	}
	return c, nil
}

// parsePath knows the JSON API's paths, and the XML API's /BUCKET/OBJECT by which the Go client reads.
func parsePath(r *http.Request) call {
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/upload/storage/v1/b/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		if r.URL.Query().Has("upload_id") {
			return call{kind: uploadChunk, bucket: unescape(name)}
		}
		return call{kind: uploadStart, bucket: unescape(name)}
	}
	if rest, ok := strings.CutPrefix(path, "/storage/v1/b"); ok {
		return parseResource(r, strings.Split(strings.Trim(rest, "/"), "/"))
	}
	name, key, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if ok && name != "_internal" && isRead(r) {
		return call{kind: media, bucket: unescape(name), object: unescape(key)}
	}
	return call{}
}

// parseResource takes BUCKET, BUCKET/o and BUCKET/o/OBJECT apart. A slash in an object's name is escaped.
func parseResource(r *http.Request, parts []string) call {
	c := call{bucket: unescape(parts[0])}
	switch {
	case len(parts) == 1:
		c.kind = bucket
	case len(parts) == 2 && parts[1] == "o":
		c.kind = list
	case len(parts) == 3 && parts[1] == "o":
		c.kind, c.object = object, unescape(parts[2])
		if isRead(r) && r.URL.Query().Get("alt") == "media" {
			c.kind = media
		}
	}
	return c
}

func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// withBody is the request with its body to be read again.
func (c call) withBody() *http.Request {
	r := c.request.Clone(c.request.Context())
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	r.ContentLength = int64(len(c.body))
	return r
}

func unescape(part string) string {
	name, err := url.PathUnescape(part)
	if err != nil {
		return part
	}
	return name
}
