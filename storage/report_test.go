package storage_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// TestFollow checks that a stream is reported at once, a few times a second for every pattern of reads, and at its end,
// and that its bytes and its error are the source's.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []int64
		report := storage.Report(func(e storage.Event) {
			if e.Stage != "fetch" || e.Total != 100 || e.Time.IsZero() {
				t.Errorf("event %+v", e)
			}
			done = append(done, e.Done)
		})
		content := bytes.Repeat([]byte("x"), 100)
		slow := iotest.OneByteReader(&ticking{bytes.NewReader(content), 10 * time.Millisecond})
		got, err := io.ReadAll(report.Follow(slow, storage.Event{Stage: "fetch", Total: 100}))
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		// 100 bytes in a second: at 0, five times in between, and at the end.
		if len(done) < 5 || len(done) > 8 || done[0] != 0 || done[len(done)-1] != 100 {
			t.Errorf("reported %v", done)
		}
	})
	broken := errors.New("broken")
	_, err := io.ReadAll(storage.Report(nil).Follow(iotest.ErrReader(broken), storage.Event{}))
	if err != broken {
		t.Errorf("error %v", err)
	}
}

// ticking takes a fixed time for every read.
type ticking struct {
	io.Reader
	pace time.Duration
}

func (r *ticking) Read(p []byte) (int, error) {
	time.Sleep(r.pace)
	return r.Reader.Read(p)
}
