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
	Repository string // its name for people, without secrets; may be empty if there is only one
	Cluster    *repository.Cluster
}

// Outcome is the result of the backup in one store.
type Outcome struct {
	Repository string // as in Store
	Err        error  // why the backup is missing there; nil if it is stored
}

// Require selects how many of several stores must take a backup.
type Require string

// The values of Require. With All and "", no store lists the backup unless every store has the data. With Any, a store
// that fails or hangs is excluded and the others continue.
const (
	All Require = "all"
	Any Require = "any"
)

// ErrPartial means that the backup is stored and listed, but not in every repository.
var ErrPartial = errors.New("not every repository has the backup")

var errStuck = errors.New("it has accepted no data and sent no answer for too long")

// PatienceOrDefault returns r.Patience, or its default. With a spool the default is long, for stores on slow lines, which
// accept nothing until one of a few large parts is sent. Without a spool the default is shorter than MaxStream, because
// the member's stream waits too.
func (r Request) PatienceOrDefault() time.Duration {
	switch {
	case r.Patience > 0:
		return r.Patience
	case r.Spool.Dir != "":
		return 10 * time.Minute
	}
	return min(2*time.Minute, r.MaxStream/2)
}

// stores are the stores of one Run.
type stores struct {
	all      []*store
	any      bool
	patience time.Duration // 0 for a single store, unless the request sets it
	warn     func(format string, args ...any)

	mu    sync.Mutex
	first error // of the store that was excluded first
	phase phase
}

// phase determines what the failure of one store means.
type phase int

const (
	streaming  phase = iota // the failure ends the uploads to the other stores too, unless Require is Any
	committing              // the other stores continue
	broken                  // the stream has failed, so no store is to blame; the other stores continue
)

func (s *stores) setPhase(p phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
}

// store is one store of a Run, with its part of the backup.
type store struct {
	Store
	ctx context.Context // of all its calls; it ends when the store is excluded
	end context.CancelFunc
	in  *io.PipeWriter // feed writes the sealed stream here
	out *io.PipeReader // the store reads it here

	uploaded chan struct{}      // closed when the store has the whole stream, or has failed; nil before the upload
	upload   *repository.Upload // without a manifest; written before uploaded is closed

	err    error           // why the store is excluded, nil if it is not; guarded by stores.mu
	backup *catalog.Backup // nil until committed; guarded by stores.mu
}

// newStores prepares the stores in to. The caller must call close.
func newStores(ctx context.Context, to []Store, r Request, warn func(format string, args ...any)) *stores {
	s := &stores{any: r.Require == Any, warn: warn}
	if len(to) > 1 || r.Patience > 0 {
		s.patience = r.PatienceOrDefault()
	}
	for _, one := range to {
		n := &store{Store: one}
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

// remaining returns the stores that are not excluded.
func (s *stores) remaining() (left []*store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.err == nil {
			left = append(left, one)
		}
	}
	return left
}

// exclude excludes a store and ends its calls. During the stream, if all stores are required, it ends the others' calls
// too. It does nothing if the store is excluded already or has the backup.
func (s *stores) exclude(one *store, err error) {
	s.mu.Lock()
	if one.err != nil || one.backup != nil {
		s.mu.Unlock()
		return
	}
	one.err = err
	if s.first == nil {
		s.first = s.withName(one, err)
	}
	independent, warn := s.any || s.phase != streaming, s.any && len(s.all) > 1 && s.phase != broken
	s.mu.Unlock()
	if warn {
		s.warn("%v: this repository is left out", s.withName(one, err))
	}
	for _, other := range s.all {
		if other == one || !independent {
			other.end()
			other.in.CloseWithError(err)
		}
	}
}

// withName returns err with the store's name, if there are several.
func (s *stores) withName(one *store, err error) error {
	if len(s.all) == 1 || one.Repository == "" {
		return err
	}
	return fmt.Errorf("repository %s: %w", one.Repository, err)
}

// failed returns the error that makes the backup impossible, or nil.
func (s *stores) failed() error {
	left := s.remaining()
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
		errs = errors.Join(errs, s.withName(one, one.err))
	}
	return fmt.Errorf("no repository is left: %w", errs)
}

// limitWait excludes the store unless the caller calls done within s.patience. Without a patience it does nothing.
func (s *stores) limitWait(one *store) (done func()) {
	if s.patience == 0 {
		return func() {}
	}
	timer := time.AfterFunc(s.patience, func() { s.exclude(one, fmt.Errorf("%w (%s)", errStuck, s.patience)) })
	return func() { timer.Stop() }
}

// each calls do for all remaining stores in parallel, and excludes those for which do fails.
func (s *stores) each(do func(one *store) error) error {
	var asked sync.WaitGroup
	for _, one := range s.remaining() {
		asked.Go(func() {
			defer s.limitWait(one)()
			err := do(one)
			if err != nil {
				s.exclude(one, err)
			}
		})
	}
	asked.Wait()
	return s.failed()
}

// freeID returns id if it is free in all stores, or the next ID that is.
func (s *stores) freeID(id catalog.ID) (catalog.ID, error) {
	for {
		ids := sync.Map{} // by store
		err := s.each(func(one *store) error {
			free, err := one.Cluster.FreeID(one.ctx, id)
			ids.Store(one, free)
			return err
		})
		if err != nil {
			return "", err
		}
		var latest catalog.ID
		same := true
		for _, one := range s.remaining() {
			free, _ := ids.Load(one)
			same = same && (latest == "" || latest == free)
			latest = max(latest, free.(catalog.ID))
		}
		if same {
			return latest, nil
		}
		id = latest
	}
}

// warnOfSameID warns if two stores have the same repository id.
func (s *stores) warnOfSameID() {
	byID := map[string]*store{}
	for _, one := range s.remaining() {
		id := one.Cluster.Records().KnownID()
		other, known := byID[id]
		if known && id != "" {
			s.warn("the repositories %s and %s have the same id, so deletions in one also apply to the other: one of them has a copy "+
				"of the other's %s/repository*.json: remove the copy, and the next backup writes a new one", other.Repository, one.Repository, one.Cluster.Name())
		}
		byID[id] = one
	}
}

// outcome returns the backup, nil if no store has it, and the result of each store. The error matches ErrPartial if all stores are
// required and only some have the backup.
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
		outcomes = append(outcomes, Outcome{Repository: one.Repository, Err: one.err})
		missing = append(missing, one.Repository)
		errs = errors.Join(errs, s.withName(one, one.err))
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
