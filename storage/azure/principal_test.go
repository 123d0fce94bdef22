package azure_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

const authority = "https://login.microsoftonline.com/11111111-1111-1111-1111-111111111111"

// answering is a transport that a function answers.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// entra answers as Microsoft Entra does for a service principal, and as a container without the blob.
func entra(t *testing.T) answering {
	answer := func(status int, body string) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}, "X-Ms-Error-Code": {"BlobNotFound"}}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	return func(r *http.Request) (*http.Response, error) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/discovery/instance"):
			return answer(http.StatusOK, fmt.Sprintf(`{"tenant_discovery_endpoint": "%s/v2.0/.well-known/openid-configuration", "metadata":
				[{"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net", "aliases": ["login.microsoftonline.com"]}]}`, authority))
		case strings.HasSuffix(path, "/openid-configuration"):
			return answer(http.StatusOK, fmt.Sprintf(`{"authorization_endpoint": "%s/oauth2/v2.0/authorize",
				"token_endpoint": "%s/oauth2/v2.0/token", "issuer": "%s/v2.0"}`, authority, authority, authority))
		case strings.HasSuffix(path, "/token"):
			err := r.ParseForm()
			if err != nil || r.PostForm.Get("client_id") != "client" || r.PostForm.Get("client_secret") != "Hunter2" {
				return answer(http.StatusUnauthorized, `{"error": "invalid_client", "error_description": "no such client"}`)
			}
			return answer(http.StatusOK, `{"access_token": "issued", "token_type": "Bearer", "expires_in": 3600}`)
		}
		if r.Header.Get("Authorization") != "Bearer issued" || r.URL.Host != "acct.blob.core.windows.net" {
			t.Errorf("%s %s with %q", r.Method, r.URL, r.Header.Get("Authorization"))
		}
		return answer(http.StatusNotFound, "")
	}
}

// TestServicePrincipal checks that a given service principal gets a token, whatever the environment contains.
func TestServicePrincipal(t *testing.T) {
	objectstores.Setenv(t, append(objectstores.WrongEnv(), "AZURE_AUTHORITY_HOST=https://wrong.example"))
	for secret, want := range map[string]error{"Hunter2": storage.ErrNotExist, "Hunter3": storage.ErrDenied} {
		given, err := credentials.Parse(map[string][]byte{
			"AZURE_TENANT_ID": []byte("11111111-1111-1111-1111-111111111111"), "AZURE_CLIENT_ID": []byte("client"), "AZURE_CLIENT_SECRET": []byte(secret),
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := azure.Open(t.Context(), azure.Config{Account: "acct", Container: "cont", Credentials: given, Transport: entra(t)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Stat(t.Context(), "key")
		if !errors.Is(err, want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %v", secret, err, want)
		}
	}
}
