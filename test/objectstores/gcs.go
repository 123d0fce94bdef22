package objectstores

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// GCSServer is a running fake of Google Cloud Storage and the credentials of one user. It keeps all objects in memory:
// a test should stay below 100 MB.
type GCSServer struct {
	Endpoint string // http URL without a path; the JSON API is below /storage/v1/
	Token    string // bearer token

	rights Rights
}

const everything Rights = "all" // the owner's, in the fake's words

var gcsd once[*GCSServer]

// GCS returns the fake of Google Cloud Storage in test/tools/stores/gcsd.
func GCS(t testing.TB) *GCSServer {
	t.Helper()
	needServers(t)
	program := tools.Path(t, "stores", "gcsd", "gcsd")
	return copyOf(gcsd.get(t, func() (*GCSServer, error) { return startGCS(program) }))
}

func startGCS(program string) (*GCSServer, error) {
	endpoint, err := launch{
		name: "gcsd",
		command: func(_ string, port int) *exec.Cmd {
			return exec.Command(program, "-address", fmt.Sprintf("127.0.0.1:%d", port))
		},
		ready: answering("/_internal/healthcheck", http.StatusOK),
	}.start()
	if err != nil {
		return nil, err
	}
	return gcsUser(endpoint, everything), nil
}

// gcsUser returns a user with one of the fake's tokens, which contain their rights.
func gcsUser(endpoint string, rights Rights) *GCSServer {
	return &GCSServer{Endpoint: endpoint, Token: "fake-token-" + string(rights), rights: rights}
}

// Bucket creates an empty bucket with a random name.
func (s *GCSServer) Bucket(t testing.TB, options ...BucketOption) string {
	t.Helper()
	name := randomName()
	bucket, attributes := s.Client(t).Bucket(name), &storage.BucketAttrs{}
	for _, option := range options {
		switch option {
		case Versioned:
			attributes.VersioningEnabled = true
		case Locks:
			bucket = bucket.SetObjectRetention(true)
		}
	}
	err := bucket.Create(t.Context(), "test", attributes)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// As returns the same server for a user with fewer rights in all buckets.
func (s *GCSServer) As(rights Rights) *GCSServer {
	return gcsUser(s.Endpoint, rights)
}

// Through returns the same server behind a proxy.
func (s *GCSServer) Through(p *Proxy) *GCSServer {
	through := *s
	through.Endpoint = replaceHost(s.Endpoint, p.Address)
	return &through
}

// URL returns the repository's URL at prefix in a bucket.
func (s *GCSServer) URL(bucket, prefix string) string {
	return repositoryURL("gs", bucket, prefix, url.Values{"endpoint": {s.Endpoint}})
}

// Env returns the variables by which Application Default Credentials find the token: the file of a workload identity,
// whose token is exchanged for one of the store, as on a cluster outside of Google's cloud.
func (s *GCSServer) Env(t testing.TB) []string {
	t.Helper()
	file := s.credentialsFile(t)
	return []string{"GOOGLE_APPLICATION_CREDENTIALS=" + file, "STORAGE_EMULATOR_HOST=", "GOOGLE_CLOUD_PROJECT="}
}

func (s *GCSServer) credentialsFile(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	subject := filepath.Join(dir, "subject-token")
	document, err := json.Marshal(map[string]any{
		"type":               "external_account",
		"audience":           "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url":          s.Endpoint + "/token",
		"credential_source":  map[string]any{"file": subject},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "credentials.json")
	for path, data := range map[string][]byte{subject: []byte("fake-subject-" + string(s.rights)), file: document} {
		err := os.WriteFile(path, data, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// Client returns the SDK's own client, to inspect the store. It is closed when the test ends.
func (s *GCSServer) Client(t testing.TB) *storage.Client {
	t.Helper()
	client, err := storage.NewClient(t.Context(),
		option.WithEndpoint(s.Endpoint+"/storage/v1/"),
		option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: s.Token})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.Close()
		if err != nil {
			t.Error(err)
		}
	})
	return client
}
