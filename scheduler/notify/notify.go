// Package notify sends conditions to other systems. A webhook receives each condition that begins or ends. A heartbeat
// continues while the service is healthy, so that silence is an alarm too.
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

// Config names the receivers. It may contain secrets.
type Config struct {
	Webhook   Target // the zero Target: none
	Heartbeat Heartbeat
}

// Target is a receiver's URL, which often contains a token, with the headers of requests to it.
type Target struct {
	URL    *url.URL
	Header http.Header
}

// Heartbeat is a dead man's switch, which the service calls at the interval Every while it is healthy.
type Heartbeat struct {
	Target
	Every time.Duration // above 0
	Fail  string        // is appended to the path while the service is not healthy; "": no call then
}

// None reports whether t has no URL.
func (t Target) None() bool { return t.URL == nil }

// String returns the scheme and host of t, without parts that may be secret. t must not be None.
func (t Target) String() string {
	return t.URL.Scheme + "://" + t.URL.Host + "/…"
}

// ParseURL parses an http or https URL. Errors repeat no part of it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("not a URL of the form https://host/path")
	}
	if u.User != nil {
		return nil, errors.New("the URL contains a user: use an Authorization header from a file (headerFiles)")
	}
	return u, nil
}

// Notifier sends conditions and heartbeats. Its methods may be called from several goroutines, also while Run runs.
type Notifier struct {
	Transport http.RoundTripper         // an http.Client would follow redirects, and so carry secrets elsewhere
	Healthy   func(now time.Time) error // returns why there must be no heartbeat, or nil
	Report    storage.Report

	mu      sync.Mutex
	config  Config
	changed chan struct{} // closed by Use
	box     box           // notices that the webhook has not accepted yet
	wakes   chan struct{} // signals a notice in box
}

// New returns a Notifier without receivers.
func New(healthy func(now time.Time) error, report storage.Report) *Notifier {
	return &Notifier{
		Transport: http.DefaultTransport, Healthy: healthy, Report: report,
		changed: make(chan struct{}), wakes: make(chan struct{}, 1),
	}
}

// Use replaces the receivers. Waiting notices go to the new webhook.
func (n *Notifier) Use(c Config) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.config = c
	n.box.requeue()
	close(n.changed)
	n.changed = make(chan struct{})
	n.wake()
}

func (n *Notifier) used() (c Config, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.config, n.changed
}

// Run sends until ctx ends, and drops the notices that still wait: the next service finds the same conditions.
func (n *Notifier) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.deliver(ctx) })
	running.Go(func() { n.beat(ctx) })
	running.Wait()
}

// patience bounds one request.
const patience = 10 * time.Second

// refusal is an error that the same request would get again.
type refusal struct{ error }

// call sends one request. Its errors contain no secret.
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
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // lets the connection be reused
	return checkStatus(t, response.StatusCode)
}

// checkStatus returns the error that a status of t's response means, or nil.
func checkStatus(t Target, status int) error {
	err := fmt.Errorf("call %s: it answers %d %s", t, status, http.StatusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return refusal{fmt.Errorf("%w: configure the URL that it redirects to", err)}
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		return refusal{err}
	}
	return err
}

func (n *Notifier) warn(format string, args ...any) { n.say(storage.Warning, format, args...) }

func (n *Notifier) say(level storage.Level, format string, args ...any) {
	n.Report.Say(storage.Event{Stage: "notify", Level: level, Message: fmt.Sprintf(format, args...)})
}

// pause waits for a duration, or until the configuration changes or ctx ends.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(d):
	}
}
