package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

const (
	mostWaiting = 256 // changes; then the oldest are given up
	mostTries   = 14  // of one, over half an hour
	firstWait   = time.Second
	lastWait    = 5 * time.Minute
)

// Tell hands c to the webhook, if there is one. It does not wait.
func (n *Notifier) Tell(c condition.Change) {
	n.mu.Lock()
	none, full := n.config.Webhook.None(), len(n.waiting) >= mostWaiting
	if full {
		n.waiting = n.waiting[1:]
	}
	if !none {
		n.waiting = append(n.waiting, c)
	}
	n.mu.Unlock()
	if full {
		n.warn("the webhook has not taken %d changes: the oldest is given up", mostWaiting)
	}
	select {
	case n.told <- struct{}{}:
	default:
	}
}

// next takes the oldest that waits.
func (n *Notifier) next() (c condition.Change, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		return c, false
	}
	c = n.waiting[0]
	n.waiting = n.waiting[1:]
	return c, true
}

// deliver sends what waits, one after the other and in order, until ctx ends.
func (n *Notifier) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		c, ok := n.next()
		if ok {
			n.post(ctx, c)
			continue
		}
		select {
		case <-ctx.Done():
		case <-n.told:
		}
	}
}

// post tries until c is taken or refused, or was tried often enough.
func (n *Notifier) post(ctx context.Context, c condition.Change) {
	body, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and times
	}
	wait := firstWait
	for try := 1; ctx.Err() == nil; try++ {
		config, changed := n.used()
		if config.Webhook.None() {
			return
		}
		err := n.call(ctx, http.MethodPost, config.Webhook, bytes.NewReader(body))
		if err == nil || ctx.Err() != nil {
			return
		}
		if _, refused := errors.AsType[refusal](err); refused || try == mostTries {
			n.warn("the webhook was not told that %s of cluster %s %s: %v", c.Name, c.Cluster, c.State, err)
			return
		}
		if try == 1 {
			n.warn("the webhook: %v; it is tried again", err)
		}
		pause(ctx, wait, changed)
		wait = min(lastWait, 2*wait)
	}
}
