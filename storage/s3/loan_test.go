package s3

import (
	"errors"
	"io"
	"testing"
	"time"
)

// TestLoanEnds: the HTTP client may read on when its request has failed, and must not see what the buffer holds next.
func TestLoanEnds(t *testing.T) {
	buffer := []byte("content")
	body := lend(buffer)
	p := make([]byte, 3)
	if _, err := io.ReadFull(body, p); err != nil || string(p) != "con" {
		t.Fatalf("%q, %v", p, err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	body.end()
	copy(buffer, "another")
	if n, err := body.Read(p); n > 0 || !errors.Is(err, errLoan) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if _, err := body.Seek(0, io.SeekStart); !errors.Is(err, errLoan) {
		t.Errorf("Seek: %v", err)
	}
}

func TestPauses(t *testing.T) {
	p := pauses{base: time.Second, longest: 5 * time.Second}
	for attempt, seconds := range map[int]int{1: 1, 2: 2, 3: 4, 4: 5, 90: 5} {
		most := time.Duration(seconds) * time.Second
		for range 100 {
			if d, err := p.BackoffDelay(attempt, nil); err != nil || d < most/2 || d > most {
				t.Fatalf("before try %d: %v, %v, want up to %v", attempt+1, d, err, most)
			}
		}
	}
}
