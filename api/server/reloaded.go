package server

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// rereadAfter is the age from which a value's files are read again.
const rereadAfter = time.Second

// reloaded is the parsed content of some files. get reads them again after rereadAfter; if that fails, the old value stays in effect.
type reloaded[T any] struct {
	files  []string
	parse  func(contents [][]byte) (T, error)
	report storage.Report

	mu       sync.Mutex
	value    T
	sum      [sha256.Size]byte
	read     time.Time
	reported string // the last reported error
}

// reload returns the parsed content of files, or the error of reading or parsing them.
func reload[T any](files []string, parse func([][]byte) (T, error), report storage.Report) (*reloaded[T], error) {
	r := &reloaded[T]{files: files, parse: parse, report: report}
	return r, r.load()
}

func (r *reloaded[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) < rereadAfter {
		return r.value
	}
	err := r.load()
	switch {
	case err == nil:
		r.reported = ""
	case err.Error() != r.reported:
		r.reported = err.Error()
		r.report.Say(storage.Event{Stage: "listen", Level: storage.Warning,
			Message: fmt.Sprintf("refused, the old one stays in effect: %v", err)})
	}
	return r.value
}

func (r *reloaded[T]) load() error {
	r.read = time.Now()
	var contents [][]byte
	all := sha256.New()
	for _, file := range r.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		contents = append(contents, content)
		fmt.Fprintf(all, "%d %s", len(content), content)
	}
	sum := [sha256.Size]byte(all.Sum(nil))
	if sum == r.sum {
		return nil
	}
	value, err := r.parse(contents)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(r.files, ", "), err)
	}
	r.value, r.sum = value, sum
	return nil
}
