// Package notify tells the world outside of conditions: a webhook is given each that begins or ends, and a heartbeat goes
// on as long as nothing critical holds, so that silence is an alarm too.
package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Config says whom to tell. It may hold secrets.
type Config struct {
	Webhook   Target // the zero one: none
	Heartbeat Heartbeat
}

// Target is somebody's URL, which often holds a token, and what else a request needs.
type Target struct {
	URL    *url.URL
	Header http.Header
}

// Heartbeat is a dead man's switch: it is called Every as long as all is well.
type Heartbeat struct {
	Target
	Every time.Duration // above zero
	Fail  string        // what the path ends with while all is not well; "": nobody is called then
}

// None reports whether there is nobody to call.
func (t Target) None() bool { return t.URL == nil }

// String is t, which is not None, without what may be secret.
func (t Target) String() string {
	return t.URL.Scheme + "://" + t.URL.Host + "/…"
}

// ParseURL reads an http or https URL. Errors repeat nothing of it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("that is no URL of the form https://host/path")
	}
	if u.User != nil {
		return nil, errors.New("a URL with a user: use a header, Authorization, that stands in a file")
	}
	return u, nil
}

// Notifier tells. Its Tell and Use may be called from several goroutines, also while Run runs.
type Notifier struct {
	Transport http.RoundTripper         // and no http.Client, which would follow a redirect and take a secret elsewhere
	Healthy   func(now time.Time) error // why the heart must not beat
	Report    storage.Report

	mu      sync.Mutex
	config  Config
	changed chan struct{} // is closed by Use
	box     box           // what the webhook has not taken yet
	told    chan struct{} // there is something in box
}

// New is a Notifier that tells nobody until Use says whom.
func New(healthy func(now time.Time) error, report storage.Report) *Notifier {
	return &Notifier{
		Transport: http.DefaultTransport, Healthy: healthy, Report: report,
		changed: make(chan struct{}), told: make(chan struct{}, 1),
	}
}

// Use takes c in place of what was used before. What waits goes to where c says.
func (n *Notifier) Use(c Config) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.config = c
	n.box.again()
	close(n.changed)
	n.changed = make(chan struct{})
	n.wake()
}

func (n *Notifier) used() (c Config, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.config, n.changed
}

// Run tells until ctx ends. What waits then is told by nobody: whoever starts next sees the same conditions again.
func (n *Notifier) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.deliver(ctx) })
	running.Go(func() { n.beat(ctx) })
	running.Wait()
}

// patience is how long one request may take.
const patience = 10 * time.Second

// refusal is an answer to which the same request again would get the same.
type refusal struct{ error }

// call sends one request. Its errors hold no secret.
func (n *Notifier) call(ctx context.Context, method string, t Target, body io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, t.URL.String(), body)
	if err != nil {
		return refusal{fmt.Errorf("call %s: the request cannot be made", t)}
	}
	for name, values := range t.Header {
		request.Header[name] = values
	}
	request.Header.Set("User-Agent", "etcd-dr")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := n.Transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("call %s: %w", t, err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection is used again
	return judge(t, response.StatusCode)
}

func judge(t Target, status int) error {
	err := fmt.Errorf("call %s: it answers %d %s", t, status, http.StatusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return refusal{fmt.Errorf("%w: name the place that it sends to", err)}
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		return refusal{err}
	}
	return err
}

func (n *Notifier) warn(format string, args ...any) { n.say(storage.Warning, format, args...) }

func (n *Notifier) say(level storage.Level, format string, args ...any) {
	n.Report.Say(storage.Event{Stage: "notify", Level: level, Message: fmt.Sprintf(format, args...)})
}

// pause waits that long, or until the configuration changes or ctx ends.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(d):
	}
}
