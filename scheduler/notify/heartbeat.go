package notify

import (
	"context"
	"net/http"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// A beat has beatTries tries, beatWait apart: one lost request must not raise an alarm.
const (
	beatTries = 3
	beatWait  = 2 * time.Second
)

// beat calls the heartbeat's URL until ctx ends. The first call comes after Every: a service that crashes again and again must
// not seem alive.
func (n *Notifier) beat(ctx context.Context) {
	delivered := true // the last beat was delivered
	for {
		config, changed := n.used()
		h := config.Heartbeat
		if h.None() {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			continue
		case <-time.After(h.Every):
		}
		delivered = n.sendBeat(ctx, h, delivered)
	}
}

// sendBeat sends one beat, and returns whether it was delivered. before is the result for the beat before it. sendBeat reports
// when beats begin to fail, and when they succeed again.
func (n *Notifier) sendBeat(ctx context.Context, h Heartbeat, before bool) bool {
	target := h.Target
	problem := n.Healthy(time.Now())
	if problem != nil {
		if h.Fail == "" {
			return before // no beat is sent
		}
		failed := *target.URL
		failed.Path += h.Fail
		failed.RawPath = ""
		target.URL = &failed
	}
	err := n.call(ctx, http.MethodGet, target, nil)
	for try := 1; err != nil && try < beatTries && ctx.Err() == nil; try++ {
		pause(ctx, beatWait, nil)
		err = n.call(ctx, http.MethodGet, target, nil)
	}
	switch {
	case ctx.Err() != nil:
		return before
	case err != nil && before:
		n.warn("the heartbeat: %v", err)
	case err == nil && !before:
		n.say(storage.Note, "the heartbeat is heard again")
	}
	return err == nil
}
