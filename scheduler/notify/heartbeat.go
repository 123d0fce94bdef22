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
	well := true // the last beat was delivered
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
		well = n.once(ctx, h, well)
	}
}

// once sends one beat. It reports when beats begin to fail, and when they succeed again.
func (n *Notifier) once(ctx context.Context, h Heartbeat, well bool) bool {
	target := h.Target
	problem := n.Healthy(time.Now())
	if problem != nil {
		if h.Fail == "" {
			return well
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
		return well
	case err != nil && well:
		n.warn("the heartbeat: %v", err)
	case err == nil && !well:
		n.say(storage.Note, "the heartbeat is heard again")
	}
	return err == nil
}
