package stores_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// counted starts a server on loopback that refuses every request, and returns its port and the number of requests.
func counted(t *testing.T) (port string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	return s.URL[strings.LastIndex(s.URL, ":")+1:], requests
}

// redirecting starts a server that other hosts reach, and that redirects to a port on loopback. It returns its URL.
func redirecting(t *testing.T, port string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.RedirectHandler("http://localhost:"+port+"/", http.StatusTemporaryRedirect))
	s.Listener.Close()
	s.Listener = servers.ListenOutside(t)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// TestReach opens stores whose settings lead to this host, by a name, a redirect or the credentials: no request arrives there.
func TestReach(t *testing.T) {
	aws := map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
	for name, test := range map[string]func(t *testing.T, port string) (url string, secret map[string]string){
		"s3": func(_ *testing.T, port string) (string, map[string]string) {
			return "s3://bucket?region=r&endpoint=http://localhost:" + port, aws
		},
		"gs": func(_ *testing.T, port string) (string, map[string]string) {
			return "gs://bucket?endpoint=http://localhost:" + port, map[string]string{"access-token": "t"}
		},
		"gs, redirected": func(t *testing.T, port string) (string, map[string]string) {
			return "gs://bucket?endpoint=" + redirecting(t, port), map[string]string{"access-token": "t"}
		},
		"gs, the exchange of tokens": func(t *testing.T, port string) (string, map[string]string) {
			return "gs://bucket", map[string]string{"gcp.json": keyFor(t, "http://localhost:"+port)}
		},
		"azblob, a connection string": func(_ *testing.T, port string) (string, map[string]string) {
			return "azblob://bucket", map[string]string{
				"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://localhost:" + port + "/a",
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, requests := counted(t)
			url, secret := test(t, port)
			files := map[string][]byte{}
			for key, value := range secret {
				files[key] = []byte(value)
			}
			given, err := credentials.Parse(files)
			if err != nil {
				t.Fatal(err)
			}
			for _, bound := range []reach.Reach{reach.OtherHosts, reach.Anywhere} {
				b, err := stores.Open(t.Context(), url, stores.Options{Credentials: given, Reach: bound})
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.Stat(t.Context(), "key")
				if err == nil || errors.Is(err, reach.ErrOwn) != (bound == reach.OtherHosts) || (requests.Load() > 0) != (bound == reach.Anywhere) {
					t.Errorf("reach %q: %d requests: %v", bound, requests.Load(), err)
				}
			}
		})
	}
}

// TestReachOfTheOwnIdentity checks that the issuer of the environment's credentials may be on this host, as clouds' metadata are link-local:
// the environment is not a tenant's. (Google's library looks for its own once a process, and never through the store's connections.)
func TestReachOfTheOwnIdentity(t *testing.T) {
	for name, test := range map[string]struct {
		url string
		env func(port string) []string
	}{
		"s3": {"s3://bucket?region=r", func(port string) []string {
			return []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost:" + port}
		}},
		"azblob": {"azblob://bucket?account=acct", func(port string) []string {
			return []string{"IDENTITY_ENDPOINT=http://localhost:" + port, "IDENTITY_HEADER=h"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			port, requests := counted(t)
			objectstores.Setenv(t, append([]string{"HOME=" + t.TempDir()}, test.env(port)...))
			b, err := stores.Open(t.Context(), test.url, stores.Options{Reach: reach.OtherHosts})
			if err == nil {
				_, err = b.Stat(t.Context(), "key")
			}
			if err == nil || errors.Is(err, reach.ErrOwn) || requests.Load() == 0 {
				t.Errorf("%d requests: %v", requests.Load(), err)
			}
		})
	}
}

// TestReachIsPassedOn checks that a child process gets the bound too.
func TestReachIsPassedOn(t *testing.T) {
	text, err := json.Marshal(stores.Options{Reach: reach.OtherHosts})
	if err != nil {
		t.Fatal(err)
	}
	var got stores.Options
	err = json.Unmarshal(text, &got)
	if err != nil || got.Reach != reach.OtherHosts {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
}
