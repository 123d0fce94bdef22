package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// fakeService responds like dr serve, and keeps the requests.
type fakeService struct {
	*httptest.Server
	asked  []*http.Request
	bodies []string
	status int
	answer string
}

func newFakeService(t *testing.T) *fakeService {
	f := &fakeService{status: http.StatusAccepted, answer: `{"cluster":"prod","job":"drill","reason":"to see"}`}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		f.asked, f.bodies = append(f.asked, r), append(f.bodies, string(body))
		if f.status == http.StatusFound {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		}
		w.WriteHeader(f.status)
		_, _ = w.Write([]byte(f.answer))
	}))
	t.Cleanup(f.Close)
	return f
}

func TestTrigger(t *testing.T) {
	f := newFakeService(t)
	token := filepath.Join(t.TempDir(), "token")
	err := os.WriteFile(token, []byte("s3cret\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out := dr(t, nil, "trigger", "--server", f.URL, "--cluster", "prod", "--job", "drill", "--reason", "to see", "--token-file", token)
	if out.code != 0 || out.stdout != "drill of cluster prod was accepted: to see\n" {
		t.Fatalf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	r := f.asked[0]
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/clusters/prod/trigger" || r.Header.Get("Content-Type") != "application/json" ||
		r.Header.Get("Authorization") != "Bearer s3cret" || f.bodies[0] != `{"job":"drill","reason":"to see"}` {
		t.Errorf("asked %s %s, %v: %s", r.Method, r.URL, r.Header, f.bodies[0])
	}
	out = dr(t, map[string]string{"DR_SERVER": f.URL, "DR_CLUSTER": "prod"}, "trigger", "-o", "json")
	var got document.QueuedJob
	err = json.Unmarshal([]byte(out.stdout), &got)
	if err != nil || out.code != 0 || got.Job != "drill" {
		t.Errorf("exit code %d, %v: %s%s", out.code, err, out.stdout, out.stderr)
	}
}

func TestTriggerFails(t *testing.T) {
	f := newFakeService(t)
	for _, test := range []struct {
		status int
		answer string
		want   string
		code   int
	}{
		{403, `{"message": "grafana has only the role read"}`, "grafana has only the role read", 4},
		{401, `{"message": "a login is required", "cure": "send a token"}`, "a login is required: send a token", 4},
		{400, `{"message": "job: use backup"}`, "use backup", 2},
		{404, `{"message": "cluster \"prod\" is not in the configuration"}`, "not in the configuration", 3},
		{409, `{"message": "cluster prod is suspended"}`, "is suspended", 4},
		{302, `{}`, "302 Found, not as a dr serve", 1},
		{200, `<html>`, "not JSON", 1},
		{500, `<html>`, "not as a dr serve", 1},
	} {
		f.status, f.answer = test.status, test.answer
		out := dr(t, nil, "trigger", "--server", f.URL, "--cluster", "prod")
		if out.code != test.code || !strings.Contains(out.stderr, test.want) {
			t.Errorf("%d: exit code %d: %s", test.status, out.code, out.stderr)
		}
	}
	url := f.URL
	f.Close()
	out := dr(t, nil, "trigger", "--server", url, "--cluster", "prod")
	if out.code != 1 || !strings.Contains(out.stderr, "check that it runs, and --server") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
}

// TestTriggerIsRefused checks that dr refuses to send a token over a plain connection, and never prints it.
func TestTriggerIsRefused(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	err := os.WriteFile(token, []byte("s3cret\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{},
		{"--cluster", "prod", "--server", "http://192.0.2.1:2391", "--token-file", token},
		{"--cluster", "prod", "--server", "127.0.0.1:2391"},
		{"--cluster", "prod", "--server", "https://u:p@127.0.0.1:2391"},
		{"--cluster", "prod", "--token-file", token + "x"},
		{"--cluster", "prod", "--cacert", token},
		{"--cluster", "prod", "--cert", token},
		{"--cluster", "prod", "prod"},
	} {
		out := dr(t, nil, append([]string{"trigger"}, args...)...)
		if out.code != 2 || strings.Contains(out.stderr, "s3cret") {
			t.Errorf("%v: exit code %d: %s", args, out.code, out.stderr)
		}
	}
}
