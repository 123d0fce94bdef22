package transport

import (
	"net"
	"sync/atomic"
	"time"
)

// watched is a connection that fails when it has transferred nothing for limit, or for slightly less.
type watched struct {
	net.Conn
	limit time.Duration
	until atomic.Int64 // the current deadline, in nanoseconds of Unix time
}

// step is the number of bytes that Write sends at a time. A whole part sent at once would have to arrive within the
// limit, and a slow connection would look like a dead one.
const step = 64 << 10

// Read extends the deadline of reads and of writes, as Write does: a client that receives a response sends nothing
// meanwhile, and one that sends a body receives nothing.
func (w *watched) Read(p []byte) (int, error) {
	err := w.extendDeadline()
	if err != nil {
		return 0, err
	}
	return w.Conn.Read(p)
}

func (w *watched) Write(p []byte) (int, error) {
	err := w.extendDeadline()
	if err != nil {
		return 0, err
	}
	sent := 0
	for {
		n, err := w.Conn.Write(p[sent:min(len(p), sent+step)])
		sent += n
		if err != nil {
			return sent, err
		}
		// This is also the deadline of the Read that waits for the response in another goroutine.
		err = w.extendDeadline()
		if err != nil || sent == len(p) {
			return sent, err
		}
	}
}

// extendDeadline sets the deadline to limit from now. It omits a tiny extension, because that costs as much as a small read.
func (w *watched) extendDeadline() error {
	end := time.Now().Add(w.limit)
	if end.UnixNano()-w.until.Load() < int64(w.limit)/64 {
		return nil
	}
	w.until.Store(end.UnixNano())
	return w.SetDeadline(end)
}
