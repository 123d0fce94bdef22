package notify

import (
	"context"
	"net/http"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// beatTries are for one beat, beatWait apart: a request that was lost is no alarm.
const (
	beatTries = 3
	beatWait  = 2 * time.Second
)

// beat calls the heartbeat's URL until ctx ends: first when Every has passed, so that a service which ends again and again
// is not taken for one that lives.
func (n *Notifier) beat(ctx context.Context) {
	well := true // the calls are
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

// once is one beat. It says when calls begin to fail, and when they end to.
func (n *Notifier) once(ctx context.Context, h Heartbeat, well bool) bool {
	target := h.Target
	if problem := n.Healthy(time.Now()); problem != nil {
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
