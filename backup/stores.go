package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Store is one place for a backup.
type Store struct {
	Repository string // how it is named to people, never with a secret in it; may be empty where there is only one
	Cluster    *repository.Cluster
}

// Outcome says how one store fared.
type Outcome struct {
	Repository string // as in Store
	Err        error  // why the backup is not there, nil if it is
}

// Require says how many of several stores must take a backup.
type Require string

// What can be required. With All, and the zero Require, nothing is listed anywhere unless every store has the data. With
// Any a store that fails or hangs is left out, and the others go on.
const (
	All Require = "all"
	Any Require = "any"
)

// ErrPartial: the backup is stored and listed, but not in every repository.
var ErrPartial = errors.New("not every repository has the backup")

var errStuck = errors.New("it has not taken or answered anything for too long")

// DefaultPatience is how long a store may keep others waiting where Patience does not say. A spool waits for stores on slow lines, which
// take nothing until one of a few large parts is through; the member's stream must not be used up by one of them.
func (r Request) DefaultPatience() time.Duration {
	switch {
	case r.Patience > 0:
		return r.Patience
	case r.Spool != "":
		return 10 * time.Minute
	}
	return min(2*time.Minute, r.MaxStream/2)
}

// stores are those of one Run.
type stores struct {
	all      []*store
	any      bool
	patience time.Duration // 0 for a single store, unless the request says it
	warn     func(format string, args ...any)

	mu    sync.Mutex
	first error // why the first one was left out
	// alone says that what befalls one store is no matter of the others any more, or no fault of its own.
	alone, blameless bool
}

// store is one of them.
type store struct {
	Store
	ctx    context.Context // of all that it is asked; it ends when the store is left out
	end    context.CancelFunc
	in     *io.PipeWriter // the stream on its way to the store
	out    *io.PipeReader
	stored chan struct{} // closed when it has all of the stream
	ended  chan struct{} // closed when it has the backup, or never will

	err    error // why it is left out; under stores.mu
	backup *catalog.Backup
}

// newStores prepares to, until close.
func newStores(ctx context.Context, to []Store, r Request, warn func(format string, args ...any)) *stores {
	s := &stores{any: r.Require == Any, warn: warn}
	if len(to) > 1 || r.Patience > 0 {
		s.patience = r.DefaultPatience()
	}
	for _, one := range to {
		n := &store{Store: one, stored: make(chan struct{}), ended: make(chan struct{})}
		n.ctx, n.end = context.WithCancel(ctx)
		n.out, n.in = io.Pipe()
		s.all = append(s.all, n)
	}
	return s
}

func (s *stores) close() {
	for _, one := range s.all {
		one.end()
	}
}

// left are the stores that are not left out.
func (s *stores) left() (left []*store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.err == nil {
			left = append(left, one)
		}
	}
	return left
}

// leave leaves a store out: what it is doing ends. Where all are required, so does what the others do.
func (s *stores) leave(one *store, err error) {
	s.mu.Lock()
	if one.err != nil || one.backup != nil {
		s.mu.Unlock()
		return
	}
	one.err = err
	if s.first == nil {
		s.first = s.named(one, err)
	}
	alone, warn := s.any || s.alone, s.any && len(s.all) > 1 && !s.blameless
	s.mu.Unlock()
	if warn {
		s.warn("%v: it is left out", s.named(one, err))
	}
	for _, other := range s.all {
		if other == one || !alone {
			other.end()
			other.in.CloseWithError(err)
		}
	}
}

// named says which one it was, where there are several.
func (s *stores) named(one *store, err error) error {
	if len(s.all) == 1 || one.Repository == "" {
		return err
	}
	return fmt.Errorf("repository %s: %w", one.Repository, err)
}

// failed says why there can be no backup any more, nil if there can.
func (s *stores) failed() error {
	left := s.left()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(left) == len(s.all) || s.any && len(left) > 0 {
		return nil
	}
	if !s.any || len(s.all) == 1 {
		return s.first
	}
	var errs error
	for _, one := range s.all {
		errs = errors.Join(errs, s.named(one, one.err))
	}
	return fmt.Errorf("no repository is left: %w", errs)
}

// hurry leaves one out unless done is called before patience has ended.
func (s *stores) hurry(one *store) (done func()) {
	if s.patience == 0 {
		return func() {}
	}
	timer := time.AfterFunc(s.patience, func() { s.leave(one, fmt.Errorf("%w (%s)", errStuck, s.patience)) })
	return func() { timer.Stop() }
}

// ask asks all that are left at once, and leaves those out that fail.
func (s *stores) ask(what func(one *store) error) error {
	var asked sync.WaitGroup
	for _, one := range s.left() {
		asked.Go(func() {
			defer s.hurry(one)()
			if err := what(one); err != nil {
				s.leave(one, err)
			}
		})
	}
	asked.Wait()
	return s.failed()
}

// freeID is a name for a backup that is free in all stores.
func (s *stores) freeID(started time.Time, revision int64) (catalog.ID, error) {
	for at := started; ; {
		ids := sync.Map{} // by store
		err := s.ask(func(one *store) error {
			id, err := one.Cluster.FreeID(one.ctx, at, revision)
			ids.Store(one, id)
			return err
		})
		if err != nil {
			return "", err
		}
		var latest catalog.ID
		same := true
		for _, one := range s.left() {
			id, _ := ids.Load(one)
			same = same && (latest == "" || latest == id)
			latest = max(latest, id.(catalog.ID))
		}
		if same {
			return latest, nil
		}
		at = latest.Started()
	}
}

// outcome is what became of it all: the backup, if at least one store has it, and what each store says.
func (s *stores) outcome() (*catalog.Backup, []Outcome, error) {
	var backup *catalog.Backup
	var outcomes []Outcome
	var missing []string
	var errs error
	s.mu.Lock()
	for _, one := range s.all {
		if one.backup != nil {
			backup = one.backup
			outcomes = append(outcomes, Outcome{Repository: one.Repository})
			continue
		}
		outcomes = append(outcomes, Outcome{one.Repository, one.err})
		missing = append(missing, one.Repository)
		errs = errors.Join(errs, s.named(one, one.err))
	}
	s.mu.Unlock()
	if backup == nil {
		return nil, nil, s.failed()
	}
	if errs != nil && !s.any {
		errs = fmt.Errorf("%w: %s is stored, but not in %s: %w", ErrPartial, backup.ID, strings.Join(missing, ", "), errs)
		return backup, outcomes, errs
	}
	return backup, outcomes, nil
}
