package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/storage"
)

func line(role, name, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return role + " " + name + " sha256:" + hex.EncodeToString(sum[:]) + "\n"
}

// guarded is a service that knows two tokens, and nothing else.
func guarded(t *testing.T, tokens string) (handler http.Handler, file string, said *[]string) {
	t.Helper()
	access, file, said := accessBy(t, tokens)
	return server.Serve(anyService(), access), file, said
}

// accessBy lets in who has one of the tokens.
func accessBy(t *testing.T, tokens string) (access server.Access, file string, said *[]string) {
	t.Helper()
	file, said = filepath.Join(t.TempDir(), "tokens"), &[]string{}
	err := os.WriteFile(file, []byte(tokens), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	access, err = server.NewAccess(file, false, func(e storage.Event) { *said = append(*said, e.Message) })
	if err != nil {
		t.Fatal(err)
	}
	return access, file, said
}

func anyService() server.Service {
	return server.Service{Scheduler: &scheduler.Service{}, Status: func() document.ServeStatus {
		return document.ServeStatus{Clusters: []document.ServedCluster{{Cluster: "prod", State: document.StateFailing, Problem: "s3://secret is away"}}}
	}}
}

const twoTokens = "# who may ask\n\n"

func tokens() string {
	return twoTokens + line("read", "grafana", "see") + line("operate", "ops", "do")
}

func status(h http.Handler, r *http.Request) (int, http.Header, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Header(), w.Body.String()
}

func with(r *http.Request, header, value string) *http.Request {
	r.Header.Set(header, value)
	return r
}

func TestTokens(t *testing.T) {
	h, _, _ := guarded(t, tokens())
	for _, test := range []struct {
		method, path, authorization string
		want                        int
	}{
		{"GET", "/api/v1/clusters", "", 401},
		{"GET", "/api/v1/clusters", "Bearer", 401},
		{"GET", "/api/v1/clusters", "Bearer wrong", 401},
		{"GET", "/api/v1/clusters", "Bearer se", 401},
		{"GET", "/api/v1/clusters", "Bearer see", 200},
		{"GET", "/api/v1/clusters", "bearer do", 200},
		{"GET", "/api/v1/clusters", "Basic Z3JhZmFuYTpzZWU=", 200}, // grafana:see
		{"GET", "/api/v1/clusters", "Basic c2VlOg==", 401},         // see:
		{"GET", "/status", "", 401},
		{"GET", "/metrics", "", 401},
		{"GET", "/", "", 404}, // the page's, which has no secret; this service has none
		{"GET", "/nothing", "", 401},
		{"GET", "/nothing", "Bearer see", 404},
		{"POST", "/api/v1/clusters/prod/suspend", "", 401},
		{"POST", "/api/v1/clusters/prod/suspend", "Bearer see", 403},
		{"POST", "/api/v1/clusters/prod/resume", "Bearer see", 403},
		{"POST", "/api/v1/clusters/prod/trigger", "Bearer see", 403},
		{"POST", "/api/v1/clusters/prod/backups/x/pin", "Bearer see", 403},
		{"POST", "/api/v1/clusters/prod/backups/x/unpin", "Bearer see", 403},
		{"DELETE", "/api/v1/clusters/prod", "Bearer see", 403},
		{"DELETE", "/api/v1/clusters/prod", "Bearer do", 405},
		{"POST", "/api/v1/clusters/prod/backups/x/pin", "Bearer do", 400},
		{"GET", "/healthz", "", 503},
		{"GET", "/readyz", "", 200},
	} {
		r := request(test.method, test.path, "")
		if test.authorization != "" {
			r.Header.Set("Authorization", test.authorization)
		}
		code, header, body := status(h, r)
		if code != test.want {
			t.Errorf("%s %s, %q: %d, want %d: %s", test.method, test.path, test.authorization, code, test.want, body)
		}
		if (code == 401) != (header.Get("WWW-Authenticate") == `Bearer realm="etcd-dr"`) {
			t.Errorf("%s %s: %d with %v", test.method, test.path, code, header)
		}
		if strings.Contains(body, "s3://secret") && test.authorization == "" {
			t.Errorf("%s %s tells everybody: %s", test.method, test.path, body)
		}
	}
}

// A token that is taken out of the file is let in no more; a file that is wrong changes nothing, and is complained of once.
func TestTokensAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, file, said := guarded(t, tokens())
		ask := func(secret string) int {
			code, _, _ := status(h, with(request("GET", "/api/v1/jobs", ""), "Authorization", "Bearer "+secret))
			return code
		}
		change := func(text string) {
			err := os.WriteFile(file, []byte(text), 0o600)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		change(line("read", "grafana", "other"))
		if ask("see") != 401 || ask("do") != 401 || ask("other") != 200 {
			t.Error("the old ones are let in still, or the new one is not")
		}
		change("read grafana other")
		for range 3 {
			time.Sleep(2 * time.Second)
			if ask("other") != 200 {
				t.Error("a file that is wrong locks all out")
			}
		}
		if len(*said) != 1 || !strings.Contains((*said)[0], "line 1") || strings.Contains((*said)[0], "other") {
			t.Errorf("said: %q", *said)
		}
	})
}

func TestTokensFileMustBeRight(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "it contains no token",
		"# none\n":                           "it contains no token",
		"read grafana\n":                     "line 1",
		"admin grafana sha256:" + long(64):   "line 1",
		"\nread grafana s3cret":              "line 2",
		"read grafana sha256:s3cret":         "not the token",
		"read grafana sha256:" + "ab" + "\n": "not the token",
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		err := os.WriteFile(file, []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = server.NewAccess(file, false, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := server.NewAccess(filepath.Join(t.TempDir(), "none"), false, nil)
	if err == nil {
		t.Error("without the file there is no error")
	}
}

// A page elsewhere may lead its own name to this host, and make a browser ask here.
func TestOtherNamesAreRefused(t *testing.T) {
	h := server.Serve(anyService(), server.Access{})
	for host, want := range map[string]int{
		"127.0.0.1:2391": 200, "127.0.0.1": 200, "localhost:2391": 200, "localhost": 200, "[::1]:2391": 200, "[::1]": 200, "127.1.2.3:1": 200,
		"example.com": 403, "example.com:2391": 403, "localhost.example.com": 403, "127.0.0.1.example.com:2391": 403, "10.0.0.1:2391": 403, "": 403,
		"0.0.0.0:2391": 403, "[::]:2391": 403,
	} {
		r := request("GET", "/api/v1/jobs", "")
		r.Host = host
		code, _, body := status(h, r)
		if code != want {
			t.Errorf("%q: %d, want %d: %s", host, code, want, body)
		}
	}
	behindLogin, _, _ := guarded(t, tokens())
	r := with(request("GET", "/api/v1/jobs", ""), "Authorization", "Bearer see")
	r.Host = "dr.example.com"
	code, _, _ := status(behindLogin, r)
	if code != 200 {
		t.Errorf("with a login: %d", code)
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	h := server.Serve(anyService(), server.Access{})
	for name, test := range map[string]struct {
		header, value string
		want          int
	}{
		"another site":         {"Sec-Fetch-Site", "cross-site", 403},
		"another port":         {"Sec-Fetch-Site", "same-site", 403},
		"the page":             {"Sec-Fetch-Site", "same-origin", 404},
		"an old browser":       {"Origin", "https://example.com", 403},
		"the page, in that":    {"Origin", "http://127.0.0.1:2391", 404},
		"a form":               {"Content-Type", "application/x-www-form-urlencoded", 415},
		"a form with a file":   {"Content-Type", "multipart/form-data; boundary=x", 415},
		"a form of plain text": {"Content-Type", "text/plain", 415},
		"no type":              {"Content-Type", "", 415},
		"curl":                 {"Content-Type", "application/json; charset=utf-8", 404},
	} {
		r := with(request("POST", "/api/v1/clusters/x/backups/20261121T092433Z-0000000000001267/unpin", "{}"), test.header, test.value)
		code, _, body := status(h, r)
		if code != test.want {
			t.Errorf("%s: %d, want %d: %s", name, code, test.want, body)
		}
	}
}

// Who asks too fast is refused for a while; others are not held up, wherever they come from.
func TestTooFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		access, _, _ := accessBy(t, tokens())
		h := server.Serve(anyService(), access)
		ask := func(from, token string) (int, http.Header) {
			r := request("GET", "/api/v1/jobs", "")
			r.RemoteAddr = from
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			code, header, _ := status(h, r)
			return code, header
		}
		refused := 0
		for range 150 {
			code, header := ask("192.0.2.1:1000", "")
			if code == 429 {
				refused++
			}
			if (code == 429) != (header.Get("Retry-After") == "1") {
				t.Fatalf("%d, %v", code, header)
			}
		}
		if refused != 50 {
			t.Errorf("%d of 150 were refused", refused)
		}
		for range 100 {
			ask("[2001:db8::1]:1", "wrong")
			ask("127.0.0.1:1", "see")
		}
		for _, test := range []struct {
			name, from, token string
			want              int
		}{
			{"another port", "192.0.2.1:2000", "", 429},
			{"another address", "192.0.2.2:1000", "", 401},
			{"another address of a host that has many", "[2001:db8::2]:1", "", 429},
			{"a login from an address that asks too much without one", "192.0.2.1:1000", "do", 200},
			{"a login that asks too much, from elsewhere", "192.0.2.3:1000", "see", 429},
			{"another login from the same address", "127.0.0.1:1", "do", 200},
		} {
			code, _ := ask(test.from, test.token)
			if code != test.want {
				t.Errorf("%s: %d, want %d", test.name, code, test.want)
			}
		}
		code, _, _ := status(h, request("GET", "/readyz", ""))
		if code != 200 {
			t.Error("a probe is held up")
		}
		time.Sleep(time.Second)
		code, _ = ask("192.0.2.3:1000", "see")
		if code != 200 {
			t.Error("it does not pass")
		}
	})
}

// Without logins all clients are on this host: one that exceeds its limit blocks neither the page nor a script.
func TestTooFastOnLoopback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := server.Serve(anyService(), server.Access{})
		ask := func(from string) int {
			r := request("GET", "/api/v1/jobs", "")
			r.RemoteAddr = from
			code, _, _ := status(h, r)
			return code
		}
		for range 100 {
			ask("127.0.0.1:1000")
		}
		code := ask("127.0.0.1:1000")
		if code != 429 {
			t.Errorf("the one that asks too much: %d", code)
		}
		code = ask("127.0.0.1:2000")
		if code != 200 {
			t.Errorf("another: %d", code)
		}
	})
}

func TestTooManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := anyService()
		inner := s.Status
		s.Status = func() document.ServeStatus {
			<-hold
			return inner()
		}
		h := server.Serve(s, server.Access{})
		answers := make(chan int, 64)
		for range 64 {
			go func() {
				code, _, _ := status(h, request("GET", "/api/v1/jobs", ""))
				answers <- code
			}()
		}
		synctest.Wait()
		code, header, _ := status(h, request("GET", "/api/v1/jobs", ""))
		if code != 503 || header.Get("Retry-After") == "" {
			t.Errorf("the 65th: %d, %v", code, header)
		}
		close(hold)
		for range 64 {
			code := <-answers
			if code != 200 {
				t.Errorf("one of the 64: %d", code)
			}
		}
		code, _, _ = status(h, request("GET", "/api/v1/jobs", ""))
		if code != 200 {
			t.Errorf("then: %d", code)
		}
	})
}

// The page comes without a login. Who asks for it and reads nothing takes no place from those who are let in.
func TestSlowReadersOfThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := anyService()
		s.Page = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold })
		access, _, _ := accessBy(t, tokens())
		h := server.Serve(s, access)
		var readers sync.WaitGroup
		for range 64 {
			readers.Go(func() { status(h, request("GET", "/assets/page.css", "")) })
		}
		synctest.Wait()
		code, _, body := status(h, with(request("GET", "/api/v1/jobs", ""), "Authorization", "Bearer see"))
		if code != 200 {
			t.Errorf("%d: %s", code, body)
		}
		close(hold)
		readers.Wait()
	})
}

func TestHeaders(t *testing.T) {
	h := server.Serve(anyService(), server.Access{})
	for _, path := range []string{"/api/v1/clusters", "/status", "/healthz", "/nothing", "/"} {
		_, header, _ := status(h, request("GET", path, ""))
		for name, want := range map[string]string{
			"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if !strings.Contains(header.Get(name), want) {
				t.Errorf("%s: %s is %q", path, name, header.Get(name))
			}
		}
	}
	_, header, _ := status(h, request("GET", "/api/v1/clusters", ""))
	if header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", header)
	}
}

// The page needs no login, because the operator enters the token there; its data does.
func TestPage(t *testing.T) {
	s := anyService()
	s.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	access, _, _ := accessBy(t, tokens())
	h := server.Serve(s, access)
	for path, want := range map[string]int{"/": 200, "/assets/page.js": 200, "/other": 401, "/assets": 401} {
		code, _, body := status(h, request("GET", path, ""))
		if code != want || code == 200 && body != "page "+path {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
}

// Only responses to accepted clients contain the role.
func TestResponseNamesTheRole(t *testing.T) {
	h, _, _ := guarded(t, tokens())
	for token, want := range map[string]string{"see": "read", "do": "operate", "wrong": ""} {
		_, header, _ := status(h, with(request("GET", "/api/v1/clusters", ""), "Authorization", "Bearer "+token))
		got := header.Get("Etcd-Dr-Role")
		if got != want {
			t.Errorf("with the token %s: the role %q, want %q", token, got, want)
		}
	}
}
