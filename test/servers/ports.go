package servers

import (
	"fmt"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/process"
)

// FreeURLs returns n different http URLs on loopback on which nothing listens. A restore needs the members' peer URLs
// before they start.
func FreeURLs(t testing.TB, n int) []string {
	t.Helper()
	return freeURLs(t, "http", n)
}

// FreeTLSURLs is FreeURLs with https, for members that use TLS.
func FreeTLSURLs(t testing.TB, n int) []string {
	t.Helper()
	return freeURLs(t, "https", n)
}

func freeURLs(t testing.TB, scheme string, n int) []string {
	t.Helper()
	var urls []string
	for range n {
		port, err := process.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, fmt.Sprintf("%s://127.0.0.1:%d", scheme, port))
	}
	return urls
}
