// Package page is the service's page for people: plain HTML, CSS and JavaScript, as they stand below static, without a
// build step. It reads /api/v1 like anybody else.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed static
var static embed.FS

// policy lets the page load what comes from its own host, and nothing else: no script in the markup, no other site in it or
// around it. So text out of a bucket stays harmless even where the page forgets to treat it as text.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Handler serves the page at / and what belongs to it below /assets/. They hold nothing that is secret, and need no login: a person
// enters the token there.
func Handler() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the name is a constant
	}
	tag := `"` + digest(files) + `"`
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // a new dr must not run with an old one's page
		h.Set("ETag", tag)
		if r.URL.Path != "/" && strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r) // no list of a folder's files
			return
		}
		server.ServeHTTP(w, r)
	})
}

// digest is of all files: they belong together.
func digest(files fs.FS) string {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		sum.Write(content)
		return err
	})
	if err != nil {
		panic(err) // they are in the binary
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
