package notify

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

const (
	firstWait = time.Second
	lastWait  = 5 * time.Minute
)

// subject identifies one condition of one cluster and repository.
type subject struct {
	cluster, repository string
	name                condition.Name
}

func subjectOf(c condition.Change) subject { return subject{c.Cluster, c.Repository, c.Name} }

// notice is the content of one request: one condition or, if the subject has no name, all conditions of a cluster.
type notice struct {
	subject
	state condition.State
	body  string // JSON
}

func (n notice) String() string {
	if n.name == "" {
		return "the current conditions of cluster " + n.cluster
	}
	return string(n.name) + " of cluster " + n.cluster + " " + string(n.state)
}

// newNotice returns the notice that sends document.
func newNotice(about subject, state condition.State, document any) notice {
	body, err := json.Marshal(document)
	if err != nil {
		panic(err) // only texts and times
	}
	return notice{about, state, string(body)}
}

// box holds the notices that the webhook has not accepted yet. It holds only the newest of each subject, so a receiver that was
// unreachable gets the present state. Notifier.mu guards it.
type box struct {
	waiting []notice         // oldest first
	refused []notice         // by the present receiver; another one may accept them
	begun   map[subject]bool // accepted as begun, and not yet as ended
	sending subject          // of the request in flight; zero: none
}

// put adds c and drops an older notice of its subject. It ignores the end of a condition whose begin was not
// accepted and is not in flight.
func (b *box) put(c notice) {
	same := func(other notice) bool { return other.subject == c.subject }
	b.waiting, b.refused = slices.DeleteFunc(b.waiting, same), slices.DeleteFunc(b.refused, same)
	if c.state != condition.Ends || b.begun[c.subject] || b.sending == c.subject {
		b.waiting = append(b.waiting, c)
	}
}

// first returns the next notice and records that it is in flight.
func (b *box) first() (c notice, ok bool) {
	b.sending = subject{}
	if len(b.waiting) == 0 {
		return c, false
	}
	b.sending = b.waiting[0].subject
	return b.waiting[0], true
}

// answered removes c, unless a newer notice has replaced it. If accepted is false, the receiver has refused c,
// which waits for another receiver.
func (b *box) answered(c notice, accepted bool) {
	b.sending = subject{}
	i := slices.Index(b.waiting, c)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if !accepted && i >= 0 {
		b.refused = append(b.refused, c)
	}
	switch {
	case !accepted:
	case c.state == condition.Begins && b.begun == nil:
		b.begun = map[subject]bool{c.subject: true}
	case c.state == condition.Begins:
		b.begun[c.subject] = true
	default:
		delete(b.begun, c.subject)
	}
}

// requeue makes refused notices wait again, for another receiver.
func (b *box) requeue() {
	b.waiting, b.refused = append(b.refused, b.waiting...), nil
}

// Tell queues c for the webhook, if there is one. It does not wait.
func (n *Notifier) Tell(c condition.Change) {
	n.send(newNotice(subjectOf(c), c.State, c))
}

// TellCurrent queues all conditions of a cluster for the webhook, if there is one. It does not wait.
func (n *Notifier) TellCurrent(c condition.Current) {
	n.send(newNotice(subject{cluster: c.Cluster}, c.State, c))
}

func (n *Notifier) send(c notice) {
	n.mu.Lock()
	if !n.config.Webhook.None() {
		n.box.put(c)
	}
	n.mu.Unlock()
	n.wake()
}

// wake wakes deliver.
func (n *Notifier) wake() {
	select {
	case n.wakes <- struct{}{}:
	default: // it was woken already
	}
}

// next returns the next notice and its receiver. Without a webhook it drops all notices.
func (n *Notifier) next() (c notice, to Target, changed <-chan struct{}, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.config.Webhook.None() {
		n.box = box{}
		return c, to, nil, false
	}
	c, ok = n.box.first()
	return c, n.config.Webhook, n.changed, ok
}

// deliver sends notices one after the other, in order, until ctx ends. It repeats failed requests without limit, unless
// the receiver refuses them.
func (n *Notifier) deliver(ctx context.Context) {
	for wait := firstWait; ctx.Err() == nil; {
		c, to, changed, ok := n.next()
		if !ok {
			select {
			case <-ctx.Done():
			case <-n.wakes:
			}
			continue
		}
		err := n.call(ctx, http.MethodPost, to, strings.NewReader(c.body))
		if ctx.Err() != nil {
			return
		}
		_, refused := errors.AsType[refusal](err)
		if err == nil || refused {
			n.mu.Lock()
			n.box.answered(c, err == nil)
			n.mu.Unlock()
			wait = firstWait
		}
		switch {
		case refused:
			n.warn("the webhook refused the notice %q, which waits for another configuration: %v", c, err)
		case err != nil:
			if wait == firstWait {
				n.warn("the webhook: %v; it is tried again", err)
			}
			pause(ctx, wait, changed)
			wait = min(lastWait, 2*wait)
		}
	}
}
