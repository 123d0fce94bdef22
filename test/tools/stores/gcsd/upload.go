package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// upload is one resumable upload. The library is given the content in one piece at the end: it would append a chunk
// that a client sends a second time, take a question after the state for the end, and hash all it has anew with every
// chunk.
type upload struct {
	call    call // what began it
	change  lockChange
	content []byte
	done    *answer // of the finished upload: a client that lost it asks again
}

// startUpload also takes the whole upload of a small object, whose body has the document and the content one after the
// other.
func (f *fake) startUpload(c call) *answer {
	var document struct {
		Name string `json:"name"`
		lockChange
	}
	// A decoder stops at the end of the first document and so leaves the content alone.
	if start := bytes.IndexByte(c.body, '{'); start >= 0 {
		if err := json.NewDecoder(bytes.NewReader(c.body[start:])).Decode(&document); err != nil {
			return refuse(http.StatusBadRequest, "parseError", err.Error())
		}
	}
	c.object = document.Name
	if name := c.request.URL.Query().Get("name"); name != "" {
		c.object = name
	}
	if refused := f.mayNotCreate(c, document.lockChange); refused != nil {
		return refused
	}
	a := f.forward(c)
	if c.request.URL.Query().Get("uploadType") != "resumable" {
		return f.created(a, document.lockChange)
	}
	if location, err := url.Parse(a.header.Get("Location")); err == nil && a.status == http.StatusOK {
		f.uploads[location.Query().Get("upload_id")] = &upload{call: c, change: document.lockChange}
	}
	return a
}

func (f *fake) mayNotCreate(c call, change lockChange) *answer {
	if refused := f.wrongRetention(c, retention{}, change.Retention); refused != nil {
		return refused
	}
	if _, exists := f.current(c); !exists || c.request.URL.Query().Get("ifGenerationMatch") == "0" {
		return nil // the precondition refuses it before a lock does
	}
	if granted, _ := bearer(c.request); !granted.change {
		return forbidden(c, "storage.objects.delete")
	}
	return f.lockedAgainstOverwrite(c)
}

// created notes the new version's lock.
func (f *fake) created(a *answer, change lockChange) *answer {
	a.edit(func(document map[string]any) {
		if document["kind"] == "storage#object" {
			f.locks[versionIn(document)] = change.applied(lock{})
			f.addLocks(document)
		}
	})
	return a
}

func (f *fake) continueUpload(c call) *answer {
	id := c.request.URL.Query().Get("upload_id")
	u := f.uploads[id]
	switch {
	case u == nil:
		return refuse(http.StatusNotFound, "notFound", "no such upload")
	case c.request.Method == http.MethodDelete:
		delete(f.uploads, id)
		return &answer{status: 499} // the API's word for a cancelled upload
	case u.done != nil:
		return u.done
	}
	piece, err := parseRange(c.request.Header.Get("Content-Range"), len(c.body))
	if err != nil {
		return refuse(http.StatusBadRequest, "invalid", err.Error())
	}
	if piece.start > len(u.content) {
		return refuse(http.StatusBadRequest, "invalid",
			fmt.Sprintf("the chunk begins at %d, only %d bytes came before", piece.start, len(u.content)))
	}
	if piece.start+len(c.body) > len(u.content) {
		u.content = append(u.content[:piece.start], c.body...)
	}
	if piece.total != len(u.content) {
		return more(c.request, len(u.content))
	}
	return f.finishUpload(c, u)
}

func (f *fake) finishUpload(c call, u *upload) *answer {
	if declared := declaredCRC(c.request); declared != "" && declared != crcOf(u.content) {
		delete(f.uploads, c.request.URL.Query().Get("upload_id"))
		return refuse(http.StatusBadRequest, "invalid",
			"Provided CRC32C "+declared+" does not match the content's "+crcOf(u.content))
	}
	if refused := f.mayNotCreate(u.call, u.change); refused != nil {
		return refused
	}
	c.body, u.content = u.content, nil
	c.request = c.request.Clone(c.request.Context())
	c.request.Header.Del("Content-Range") // the library takes a body without it for the whole
	u.done = f.created(f.forward(c), u.change)
	return u.done
}

// more says how much has come; the Go client wants its 308 in a header, since net/http would follow it.
func more(r *http.Request, have int) *answer {
	a := &answer{status: http.StatusPermanentRedirect, header: http.Header{}}
	if have > 0 {
		a.header.Set("Range", fmt.Sprintf("bytes=0-%d", have-1))
	}
	if r.Header.Get("X-GUploader-No-308") != "" {
		a.status = http.StatusOK
		a.header.Set("X-Http-Status-Code-Override", "308")
	}
	return a
}

// piece is what a Content-Range says of a chunk.
type piece struct {
	start int
	total int // -1: not known yet
}

// parseRange reads bytes START-END/TOTAL, where both sides may be a star. Without the header the body is the whole
// content.
func parseRange(header string, length int) (piece, error) {
	if header == "" {
		return piece{total: length}, nil
	}
	part, whole, _ := strings.Cut(strings.TrimPrefix(header, "bytes "), "/")
	p := piece{total: -1}
	var err error
	if whole != "*" {
		if p.total, err = strconv.Atoi(whole); err != nil {
			return piece{}, fmt.Errorf("Content-Range %q: %w", header, err)
		}
	}
	if part != "*" {
		first, _, _ := strings.Cut(part, "-")
		if p.start, err = strconv.Atoi(first); err != nil {
			return piece{}, fmt.Errorf("Content-Range %q: %w", header, err)
		}
	}
	return p, nil
}

// declaredCRC is what the request that ends an upload says in X-Goog-Hash: crc32c=BASE64, md5=BASE64.
func declaredCRC(r *http.Request) string {
	for _, header := range r.Header.Values("X-Goog-Hash") {
		for hash := range strings.SplitSeq(header, ",") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(hash), "crc32c="); ok {
				return value
			}
		}
	}
	return ""
}

func crcOf(content []byte) string {
	sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}
