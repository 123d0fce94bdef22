package objectstores

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

const identitySecret = "fake-identity-header"

// AsIdentity returns the same server for a managed identity, over TLS only. A fake of the identity's endpoint, in the
// form of an App Service, issues its tokens until the test ends. Azurite checks a token's times and names but no
// signature, and allows it everything.
func (s *AzureServer) AsIdentity(t testing.TB) *AzureServer {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(serveIdentity))
	t.Cleanup(endpoint.Close)
	user := *s
	user.Key, user.SAS, user.identity = "", "", endpoint.URL
	return &user
}

func serveIdentity(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-IDENTITY-HEADER") != identitySecret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	expires := time.Now().Add(time.Hour)
	// The client may have closed the connection.
	_ = json.NewEncoder(w).Encode(map[string]string{
		"access_token": fakeToken(expires),
		"expires_on":   fmt.Sprint(expires.Unix()),
		"resource":     r.URL.Query().Get("resource"),
		"token_type":   "Bearer",
	})
}

// fakeToken returns a JSON Web Token with an invalid signature.
func fakeToken(expires time.Time) string {
	part := func(claims map[string]any) string {
		data, err := json.Marshal(claims)
		if err != nil {
			panic(err) // strings and numbers are always JSON
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return part(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{
		"aud": "https://storage.azure.com",
		"iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
		"sub": "etcd-dr-test",
		"iat": expires.Add(-2 * time.Hour).Unix(),
		"nbf": expires.Add(-2 * time.Hour).Unix(),
		"exp": expires.Unix(),
	}) + "." + base64.RawURLEncoding.EncodeToString([]byte("fake"))
}
