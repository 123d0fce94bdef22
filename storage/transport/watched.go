package transport

import (
	"net"
	"sync/atomic"
	"time"
)

// watched is a connection that breaks when nothing has moved on it for limit, or for a little less.
type watched struct {
	net.Conn
	limit time.Duration
	until atomic.Int64 // when it breaks, in nanoseconds of Unix time
}

// step is how many bytes a Write hands on at a time. A whole part in one Write would need to pass within the limit, and a
// slow line would look like a dead one.
const step = 64 << 10

// Read puts off the end of both directions: while an answer is read, nobody writes, and the other way round.
func (w *watched) Read(p []byte) (int, error) {
	if err := w.moved(); err != nil {
		return 0, err
	}
	return w.Conn.Read(p)
}

func (w *watched) Write(p []byte) (int, error) {
	if err := w.moved(); err != nil {
		return 0, err
	}
	sent := 0
	for {
		n, err := w.Conn.Write(p[sent:min(len(p), sent+step)])
		sent += n
		if err != nil {
			return sent, err
		}
		// What has gone gives the answer, for which a Read is waiting, all the time too.
		if err := w.moved(); err != nil || sent == len(p) {
			return sent, err
		}
	}
}

// moved puts off the end, but not by next to nothing: to set a deadline costs as much as a small read.
func (w *watched) moved() error {
	end := time.Now().Add(w.limit)
	if end.UnixNano()-w.until.Load() < int64(w.limit)/64 {
		return nil
	}
	w.until.Store(end.UnixNano())
	return w.SetDeadline(end)
}
