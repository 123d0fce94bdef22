package azure_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
)

// fakeThatDies accepts requests until a commit, and then closes.
func fakeThatDies(t *testing.T) *httptest.Server {
	t.Helper()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Query().Get("comp") == "blocklist":
			s.Listener.Close()
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		default:
			w.Header().Set("x-ms-error-code", "BlobNotFound")
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestNoSASInErrors checks an error of the HTTP client, which begins with the URL of the request and so with the SAS.
func TestNoSASInErrors(t *testing.T) {
	s := fakeThatDies(t)
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2020&sig=TOPSECRET")
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	b, err := azure.Open(t.Context(), azure.Config{
		Account: "acct", Container: "cont", Endpoint: s.URL + "/acct", Parts: storage.Parts{Size: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), "key", strings.NewReader(strings.Repeat("x", 3<<20)), storage.PutOptions{IfAbsent: true})
	if err == nil {
		t.Fatal("the store has died, and the Put succeeds")
	}
	for _, secret := range []string{"TOPSECRET", "sig=", "http://"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q is in the error: %v", secret, err)
		}
	}
}
