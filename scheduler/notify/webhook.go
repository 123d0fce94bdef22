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

// subject is one condition, whether it holds or not.
type subject struct {
	cluster, repository string
	name                condition.Name
}

func subjectOf(c condition.Change) subject { return subject{c.Cluster, c.Repository, c.Name} }

// notice is what one request tells: of one condition or, without its name, of all of a cluster.
type notice struct {
	subject
	state condition.State
	body  string // JSON
}

func (n notice) String() string {
	if n.name == "" {
		return "which conditions hold of cluster " + n.cluster
	}
	return "that " + string(n.name) + " of cluster " + n.cluster + " " + string(n.state)
}

// newNotice returns the notice that sends document.
func newNotice(about subject, state condition.State, document any) notice {
	body, err := json.Marshal(document)
	if err != nil {
		panic(err) // texts and times
	}
	return notice{about, state, string(body)}
}

// box holds what the webhook has not taken yet: of each subject the newest notice alone, so that a receiver that was
// unreachable gets how things are, however long that took. Notifier.mu guards it.
type box struct {
	waiting []notice         // the oldest first
	refused []notice         // by the receiver that is configured; another may take them
	begun   map[subject]bool // these were taken as begun
	sending subject          // what is on its way
}

// put adds c in place of what waits of its subject. The end of what was never told to have begun is no news.
func (b *box) put(c notice) {
	same := func(other notice) bool { return other.subject == c.subject }
	b.waiting, b.refused = slices.DeleteFunc(b.waiting, same), slices.DeleteFunc(b.refused, same)
	if c.state != condition.Ends || b.begun[c.subject] || b.sending == c.subject {
		b.waiting = append(b.waiting, c)
	}
}

// first returns what is to be sent next.
func (b *box) first() (c notice, ok bool) {
	b.sending = subject{}
	if len(b.waiting) == 0 {
		return c, false
	}
	b.sending = b.waiting[0].subject
	return b.waiting[0], true
}

// sent removes c, unless something newer has taken its place; taken reports whether the receiver has it.
func (b *box) sent(c notice, taken bool) {
	b.sending = subject{}
	i := slices.Index(b.waiting, c)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if !taken && i >= 0 {
		b.refused = append(b.refused, c)
	}
	switch {
	case !taken:
	case c.state == condition.Begins && b.begun == nil:
		b.begun = map[subject]bool{c.subject: true}
	case c.state == condition.Begins:
		b.begun[c.subject] = true
	default:
		delete(b.begun, c.subject)
	}
}

// again lets what was refused be sent to another receiver.
func (b *box) again() {
	b.waiting, b.refused = append(b.refused, b.waiting...), nil
}

// Tell hands c to the webhook, if there is one. It does not wait.
func (n *Notifier) Tell(c condition.Change) {
	n.send(newNotice(subjectOf(c), c.State, c))
}

// TellCurrent hands all that holds of a cluster to the webhook, if there is one. It does not wait.
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

func (n *Notifier) wake() {
	select {
	case n.told <- struct{}{}:
	default:
	}
}

// next returns what to send, and to whom. Without a webhook nothing waits any more.
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

// deliver sends what waits, one after the other and in order, until ctx ends. What is not taken is tried again for ever.
func (n *Notifier) deliver(ctx context.Context) {
	for wait := firstWait; ctx.Err() == nil; {
		c, to, changed, ok := n.next()
		if !ok {
			select {
			case <-ctx.Done():
			case <-n.told:
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
			n.box.sent(c, err == nil)
			n.mu.Unlock()
			wait = firstWait
		}
		switch {
		case refused:
			n.warn("the webhook was not told %s: %v", c, err)
		case err != nil:
			if wait == firstWait {
				n.warn("the webhook: %v; it is tried again", err)
			}
			pause(ctx, wait, changed)
			wait = min(lastWait, 2*wait)
		}
	}
}
