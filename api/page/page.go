// Package page is the service's page for people: plain HTML, CSS and JavaScript, in the folder static, without a
// build step. It uses /api/v1 like any other client.
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

// policy permits only resources of the page's own host: no script in the markup, no frame in it or around it. So text from a bucket
// is harmless even if the page does not escape it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Handler returns the handler of the page at / and of its files below /assets/. They contain no secret and need no login: the
// operator enters the token in the page.
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

// digest returns one digest of all files, because they are used together.
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
