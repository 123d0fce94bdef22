package notify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/notify"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

var at = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func change(n int) condition.Change {
	return condition.Change{State: condition.Begins, Time: at, Condition: condition.Condition{
		Name: condition.BackupLate, Severity: condition.Critical, Cluster: fmt.Sprint("c", n), Repository: "main", Since: at.Add(-time.Minute),
		Message: "the last good backup was taken at 2026-11-21T07:00:00Z, and the next was due 1h0m ago", Cure: "see that dr serve runs",
	}}
}

func target(t *testing.T, text string) notify.Target {
	t.Helper()
	u, err := notify.ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return notify.Target{URL: u}
}

// fakeReceiver is a receiver's server.
type fakeReceiver struct {
	mu     sync.Mutex
	answer func(n int, r *http.Request) (status int, err error) // to the nth request, from 0
	begin  time.Time
	got    []string // the requests, with their times in seconds
	bodies []string
}

func (f *fakeReceiver) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	f.mu.Lock()
	n := len(f.got)
	f.got = append(f.got, fmt.Sprintf("%d %s %s", int(time.Since(f.begin).Seconds()), r.Method, r.URL))
	f.bodies = append(f.bodies, string(body))
	f.mu.Unlock()
	status, err := f.answer(n, r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("so")), Request: r}, nil
}

// sent returns the bodies of all requests.
func (f *fakeReceiver) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.bodies)
}

func (f *fakeReceiver) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

// recorder collects the messages that a Notifier reports.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (t *recorder) report(e storage.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, string(e.Level)+": "+e.Message)
}

func (t *recorder) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := strings.Join(t.said, "\n")
	t.said = nil
	return said
}

func always(status int) func(int, *http.Request) (int, error) {
	return func(int, *http.Request) (int, error) { return status, nil }
}

// running returns a Notifier that runs in a bubble until the test ends.
func running(t *testing.T, c notify.Config, answer func(int, *http.Request) (int, error)) (*notify.Notifier, *fakeReceiver, *recorder) {
	t.Helper()
	said, to := &recorder{}, &fakeReceiver{answer: answer, begin: time.Now()}
	n := notify.New(func(time.Time) error { return nil }, said.report)
	n.Transport = to
	n.Use(c)
	start(t, n)
	return n, to, said
}

func start(t *testing.T, n *notify.Notifier) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const secret = "T0KEN"

// docs/conditions.md documents the requests.
func TestWebhookIsSent(t *testing.T) {
	type request struct{ method, path, token, kind, body string }
	got := make(chan request, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)}
	}))
	defer server.Close()
	n := notify.New(nil, nil)
	n.Transport = server.Client().Transport
	hook := target(t, server.URL+"/hook")
	hook.Header = http.Header{"Authorization": {"Bearer " + secret}}
	n.Use(notify.Config{Webhook: hook})
	n.Tell(change(1))
	start(t, n)
	r := <-got
	golden.Want(t, filepath.Join("testdata", "webhook.json"), []byte(r.body+"\n"))
	if r.method != http.MethodPost || r.path != "/hook" || r.token != "Bearer "+secret || r.kind != "application/json" {
		t.Errorf("%+v", r)
	}
}

// The conditions that hold after a start are sent once, after earlier changes, also to a receiver that was unreachable.
func TestWebhookIsSentCurrentConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, to, _ := running(t, notify.Config{Webhook: target(t, "https://hooks/"+secret)}, func(i int, _ *http.Request) (int, error) {
			if i == 0 {
				return 0, errors.New("unreachable")
			}
			return 200, nil
		})
		c := change(1).Condition
		n.Tell(change(1))
		n.TellCurrent(condition.Current{State: condition.Holds, Time: at, Cluster: "c1", Conditions: []condition.Condition{c}})
		n.TellCurrent(condition.Current{State: condition.Holds, Time: at, Cluster: "c2", Conditions: []condition.Condition{}})
		pass(time.Hour)
		sent := to.sent()
		if len(sent) != 4 || !strings.Contains(sent[1], `"state":"begins"`) ||
			!strings.HasPrefix(sent[2], `{"state":"holds","time":"2026-11-21T09:00:00Z","cluster":"c1","conditions":[{"name":"BackupLate",`) ||
			sent[3] != `{"state":"holds","time":"2026-11-21T09:00:00Z","cluster":"c2","conditions":[]}` {
			t.Errorf("sent %q", sent)
		}
	})
}

// A server with an untrusted certificate gets no request.
func TestWebhookVerifiesTheServer(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was told") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	warned := make(chan string, 100)
	n := notify.New(nil, func(e storage.Event) { warned <- e.Message })
	n.Use(notify.Config{Webhook: target(t, server.URL+"/"+secret)})
	n.Tell(change(1))
	start(t, n)
	got := <-warned
	if !strings.Contains(got, "certificate") || strings.Contains(got, secret) {
		t.Errorf("%q", got)
	}
}

// Following a redirect would send secrets to another server.
func TestWebhookFollowsNoRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	warned := make(chan string, 100)
	n := notify.New(nil, func(e storage.Event) { warned <- e.Message })
	n.Use(notify.Config{Webhook: target(t, server.URL+"/"+secret)})
	n.Tell(change(1))
	start(t, n)
	got := <-warned
	if !strings.Contains(got, "307") || !strings.Contains(got, "refused the notice") || strings.Contains(got, secret) {
		t.Errorf("%q", got)
	}
}

// Failed requests are repeated in order, and reported once.
func TestWebhookTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, to, said := running(t, notify.Config{Webhook: target(t, "https://hook/"+secret)}, func(n int, r *http.Request) (int, error) {
			switch n {
			case 0:
				return 0, errors.New("connection refused")
			case 1:
				return http.StatusInternalServerError, nil
			case 2: // it hangs
				<-r.Context().Done()
				return 0, r.Context().Err()
			case 3:
				return http.StatusTooManyRequests, nil
			}
			return http.StatusNoContent, nil
		})
		n.Tell(change(1))
		n.Tell(change(2))
		pass(time.Minute)
		want := []string{"0", "1", "3", "17", "25", "25"}
		for i, at := range want {
			want[i] = at + " POST https://hook/" + secret
		}
		diff := cmp.Diff(want, to.take())
		if diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !strings.Contains(to.bodies[4], `"c1"`) || !strings.Contains(to.bodies[5], `"c2"`) {
			t.Errorf("the order is %q", to.bodies)
		}
		got := said.take()
		if got != "warning: the webhook: call https://hook/…: connection refused; it is tried again" {
			t.Errorf("said %q", got)
		}
	})
}

// A refused notice is not sent again, unless the configuration changes.
func TestWebhookIsRefused(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusMovedPermanently} {
		synctest.Test(t, func(t *testing.T) {
			n, to, said := running(t, notify.Config{Webhook: target(t, "https://hook/"+secret)}, func(_ int, r *http.Request) (int, error) {
				if r.URL.Host == "hook" {
					return status, nil
				}
				return http.StatusOK, nil
			})
			n.Tell(change(1))
			pass(2 * time.Hour)
			tries := len(to.take())
			if tries != 1 {
				t.Errorf("%d: %d tries", status, tries)
			}
			got := said.take()
			if !strings.Contains(got, `refused the notice "BackupLate of cluster c1 begins"`) || !strings.Contains(got, fmt.Sprint(status)) ||
				strings.Contains(got, secret) {
				t.Errorf("%d: said %q", status, got)
			}
			n.Use(notify.Config{Webhook: target(t, "https://other")})
			pass(time.Minute)
			requests := to.take()
			if len(requests) != 1 || !strings.HasSuffix(requests[0], "https://other") {
				t.Errorf("%d: another receiver gets %q", status, requests)
			}
		})
	}
}

// A receiver that was unreachable for a day gets each current condition once, and none that began and ended meanwhile.
func TestWebhookSendsTheCurrentState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		up := true
		n, to, said := running(t, notify.Config{Webhook: target(t, "https://hook")}, func(int, *http.Request) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if !up {
				return 0, errors.New("away")
			}
			return http.StatusOK, nil
		})
		ends := func(i int) condition.Change {
			c := change(i)
			c.State = condition.Ends
			return c
		}
		set := func(now bool) {
			mu.Lock()
			defer mu.Unlock()
			up = now
		}
		n.Tell(change(1000))
		pass(time.Minute)
		set(false)
		n.Tell(ends(1000)) // its begin was accepted: the end is sent
		for i := range 500 {
			n.Tell(change(i))
		}
		pass(24 * time.Hour)
		for i := range 400 {
			n.Tell(ends(i)) // began and ended meanwhile
		}
		n.Tell(ends(499))
		n.Tell(change(499)) // holds again
		pass(time.Hour)
		to.take()
		before := len(to.sent())
		set(true)
		pass(10 * time.Minute)
		sent := to.sent()[before:]
		got := strings.Join(sent, "\n")
		number := len(sent)
		if number != 101 || strings.Count(got, `"c1000"`) != 1 || strings.Count(got, `"c499"`) != 1 || strings.Contains(got, `"c3"`) {
			t.Errorf("%d were sent:\n%s", number, got)
		}
		got = said.take()
		if strings.Count(got, "it is tried again") != 1 {
			t.Errorf("said %q", got)
		}
	})
}

// A new configuration applies at once, also to waiting notices.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, to, _ := running(t, notify.Config{}, func(n int, r *http.Request) (int, error) {
			if r.URL.Host == "wrong" {
				return 0, errors.New("no such host")
			}
			return http.StatusOK, nil
		})
		n.Tell(change(1)) // without a receiver
		pass(time.Hour)
		n.Use(notify.Config{Webhook: target(t, "https://wrong")})
		n.Tell(change(2))
		pass(30 * time.Second)
		to.take()
		n.Use(notify.Config{Webhook: target(t, "https://right")})
		synctest.Wait()
		got := to.take()
		if len(got) != 1 || !strings.HasSuffix(got[0], "https://right") || !strings.Contains(to.bodies[len(to.bodies)-1], `"c2"`) {
			t.Errorf("%q", got)
		}
		n.Use(notify.Config{Heartbeat: notify.Heartbeat{Target: target(t, "https://alive"), Every: time.Minute}})
		pass(time.Minute)
		got = to.take()
		if len(got) != 1 || !strings.HasSuffix(got[0], "GET https://alive") {
			t.Errorf("%q", got)
		}
	})
}

// The heart beats while the service is healthy. Otherwise it is silent, or calls the failure path if one is configured.
func TestHeartbeat(t *testing.T) {
	for fail, want := range map[string][]string{
		"":      {"60 GET https://beat/" + secret + "?x=1", "240 GET https://beat/" + secret + "?x=1"},
		"/fail": {"60 GET https://beat/" + secret + "?x=1", "120 GET https://beat/" + secret + "/fail?x=1", "180 GET https://beat/" + secret + "/fail?x=1", "240 GET https://beat/" + secret + "?x=1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			to := &fakeReceiver{answer: always(http.StatusOK), begin: begin}
			n := notify.New(func(now time.Time) error {
				d := now.Sub(begin)
				if d > 90*time.Second && d < 200*time.Second {
					return errors.New("a critical condition")
				}
				return nil
			}, nil)
			n.Transport = to
			n.Use(notify.Config{Heartbeat: notify.Heartbeat{Target: target(t, "https://beat/"+secret+"?x=1"), Every: time.Minute, Fail: fail}})
			start(t, n)
			pass(270 * time.Second)
			diff := cmp.Diff(want, to.take())
			if diff != "" {
				t.Errorf("fail %q (-want +got):\n%s", fail, diff)
			}
		})
	}
}

// One lost request is no silence. A receiver that is unreachable is reported once, and once more when it answers again.
func TestHeartbeatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := notify.Config{Heartbeat: notify.Heartbeat{Target: target(t, "https://beat/"+secret), Every: time.Minute}}
		_, to, said := running(t, c, func(n int, _ *http.Request) (int, error) {
			if n == 0 || n >= 2 && n < 8 {
				return 0, errors.New("reset by peer")
			}
			return http.StatusOK, nil
		})
		pass(90 * time.Second)
		got := said.take()
		if len(to.take()) != 2 || got != "" {
			t.Errorf("after one that was lost: said %q", got)
		}
		to.mu.Lock()
		to.got = make([]string, 2)
		to.mu.Unlock()
		pass(10 * time.Minute)
		want := "warning: the heartbeat: call https://beat/…: reset by peer\nnote: the heartbeat is heard again"
		got = said.take()
		if got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	})
}

func TestParseURL(t *testing.T) {
	for _, bad := range []string{"", "hook", "ftp://host/x", "https://", "https://user:" + secret + "@host", "http://h/%zz" + secret} {
		_, err := notify.ParseURL(bad)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	got := target(t, "https://host:8443/"+secret+"?key="+secret).String()
	if got != "https://host:8443/…" {
		t.Errorf("shown as %q", got)
	}
}
