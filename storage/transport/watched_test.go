package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a watched connection and its other end, in memory, so that the time of the bubble applies.
func pair() (*watched, net.Conn) {
	ours, theirs := net.Pipe()
	return &watched{Conn: ours, limit: silence}, theirs
}

func TestSilenceBreaks(t *testing.T) {
	for name, do := range map[string]func(*watched) error{
		"read":  func(w *watched) error { _, err := w.Read(make([]byte, 1)); return err },
		"write": func(w *watched) error { _, err := w.Write(make([]byte, 1)); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, theirs := pair()
			defer theirs.Close()
			defer w.Close()
			start := time.Now()
			err := do(w)
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != silence {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
		})
	}
}

// TestSlowLives checks that a connection may take any time as long as bytes move, also within one Write of a whole part
// while a Read waits for the answer.
func TestSlowLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, theirs := pair()
		const size = 10 * step
		answer := make(chan error)
		go func() {
			_, err := io.ReadFull(w, make([]byte, 3))
			answer <- err
		}()
		go func() {
			for range 10 {
				time.Sleep(silence - time.Second)
				_, err := io.CopyN(io.Discard, theirs, step)
				if err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				time.Sleep(silence - time.Second)
				_, err := theirs.Write([]byte{1})
				if err != nil {
					t.Error(err)
				}
			}
			theirs.Close()
		}()
		n, err := w.Write(make([]byte, size))
		if n != size || err != nil {
			t.Errorf("Write: %d bytes, %v", n, err)
		}
		err = <-answer
		if err != nil {
			t.Errorf("Read: %v", err)
		}
		w.Close()
	})
}
