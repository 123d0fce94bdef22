package archive

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// follow archives until ctx ends or an error occurs.
func (w *work) follow(ctx context.Context) error {
	storing, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	err := w.sendNext(storing) // segments that an earlier run has left in the spool
	if err != nil {
		return err
	}
	next := time.NewTimer(w.untilNext(time.Now()))
	defer next.Stop()
	for {
		err := w.step(ctx, storing)
		if err != nil {
			return errors.Join(err, w.drain(storing)) // committed requests may be in no other log
		}
		if w.sourceErr != nil && len(w.queue) == 0 && len(w.pending.requests) == 0 {
			return w.recordBreach(w.sourceErr)
		}
		w.resumeSource(ctx)
		next.Reset(w.untilNext(time.Now()))
		select {
		case <-ctx.Done():
			return w.drainOnStop(ctx, storing)
		case outcome := <-w.storing:
			err := w.finishStore(storing, outcome)
			if err != nil {
				return err
			}
		case <-w.source.waiting():
		case <-next.C:
		}
	}
}

// resumeSource resumes a source that broke off while segments wait for the store. It does not wait for the next turn, because this
// one may last long, and the cluster compacts meanwhile.
func (w *work) resumeSource(ctx context.Context) {
	if w.sourceErr == nil || len(w.queue) == 0 || isBreach(w.sourceErr) || time.Since(w.resumedAt) < 2*firstWait {
		return
	}
	w.resumedAt = time.Now()
	w.hasTaken = false // after a restore in place, the source may have another history now
	err := w.source.continueAfter(ctx, w.pending.end)
	if err == nil || isBreach(err) {
		w.sourceErr = err
	}
}

// untilNext returns the time until the next step, more than zero: the interval between reads of the log, which cost as much as a few hundred
// requests, or less if requests are due before.
func (w *work) untilNext(now time.Time) time.Duration {
	interval := min(w.config.Flush/2, 500*time.Millisecond)
	if len(w.pending.requests) == 0 || len(w.queue) > 0 {
		return interval
	}
	return max(1, min(interval, w.pending.untilFlush(now, w.config.Flush)))
}

// drainOnStop stores the pending requests when the agent is stopped. An agent that lost the lease leaves them to the next one.
func (w *work) drainOnStop(ctx, storing context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, lease.ErrLost) {
		return cause
	}
	return errors.Join(cause, w.drain(storing))
}

// drainTime bounds how long storing the pending requests at the end of a turn may take.
const drainTime = 10 * time.Second

// drain stores the queued segments and the pending requests, or as many as it can in drainTime.
func (w *work) drain(storing context.Context) error {
	timer := time.AfterFunc(drainTime, w.stop)
	defer timer.Stop()
	for w.storing != nil || len(w.pending.requests) > 0 {
		if len(w.pending.requests) > 0 && (w.storing == nil || w.canSpool()) {
			err := w.send(storing)
			if err != nil {
				return err
			}
		}
		err := w.finishStore(storing, <-w.storing)
		if err != nil {
			w.spoolQueue() // for the next run
			return err
		}
	}
	return nil
}

// end cancels the storing of the current segment and waits until it has ended.
func (w *work) end() {
	if w.stop != nil {
		w.stop()
	}
	if w.storing != nil {
		<-w.storing
	}
}
