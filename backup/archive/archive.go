// Package archive turns a cluster's log into segments in a repository, as it is written.
//
//	member/wal ── committed requests ──┐
//	watch ─────── whole revisions ─────┴─► pending ── flush ──► segment, sealed ──► (spool) ──► Bucket.Put (create-only)
//	member ────── Status, reads ─────────► marks: which position, which revision, when
//
// An agent runs beside a member, or watches from anywhere. Several make one log: a lease says who works, and the
// segments' names, which can be created only once, make sure of it. Beside a member its own log is the spool: while the
// store is away its files are kept open, and nothing is lost when etcd purges them. For a watch a folder can be.
package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Errors of Run, to be matched with errors.Is.
var (
	// ErrConfig: what was asked for cannot be done as written.
	ErrConfig = fault.New(fault.Usage, "bad archive configuration")
)

// Config says which log to archive and how.
type Config struct {
	Source  segment.Source
	DataDir string         // WAL: the member's; only read
	Etcd    cluster.Config // how to reach that member, and through it its cluster, or the cluster to watch
	To      seal.Recipients
	Plain   bool // without recipients, also where the log before is encrypted

	Flush       time.Duration // how long a request waits at most before it is on its way to the store
	SegmentSize int           // bytes of requests after which they go at once
	Lease       time.Duration // how long another agent waits before it takes over
	HashEvery   time.Duration // how often the member is asked for its HashKV; 0: never
	HashMax     int64         // bytes in use up to which it is; 0: cluster.HashMax
	MaxWALs     int           // WAL: the member's --max-wals, for the headroom; 0: it purges nothing
	Spool       string        // Watch: the folder in which segments wait while the store is away; "": none
	SpoolMax    int64         // bytes that it holds at most

	Host    string // of this agent, for whoever looks at the lease
	Version string // of dr
	// Snapshot takes a backup at once, because a log without one before it restores nothing. It must not be nil.
	Snapshot func(ctx context.Context, why string) error
}

// Limits of Config.
const (
	// MinFlush is the shortest Flush.
	MinFlush = 100 * time.Millisecond
	// MinSpool is for how many times SegmentSize there must be room in a spool: more than may wait in memory, or nothing
	// of that would ever be spooled.
	MinSpool = 2 * heldSegments

	minSegmentSize = 4 << 10
	minLease       = time.Second
)

// Validate says what is wrong with c, if anything is. Errors match ErrConfig.
func (c Config) Validate() error {
	switch {
	case c.Flush < MinFlush:
		return fmt.Errorf("%w: --flush %s is below the minimum: use at least %s", ErrConfig, c.Flush, MinFlush)
	case c.SegmentSize < minSegmentSize:
		return fmt.Errorf("%w: --segment-size %d is below the minimum: use at least %d bytes", ErrConfig, c.SegmentSize, minSegmentSize)
	case c.Lease < minLease:
		return fmt.Errorf("%w: --lease %s is below the minimum: use at least %s", ErrConfig, c.Lease, minLease)
	case c.Lease > lease.MaxLease:
		return fmt.Errorf("%w: --lease %s is above the maximum: use at most %s", ErrConfig, c.Lease, lease.MaxLease)
	case c.To.Passphrase():
		return fmt.Errorf("%w: a passphrase takes a second of CPU for each segment: use --recipient", ErrConfig)
	case c.Snapshot == nil:
		return fmt.Errorf("%w: nothing takes the backups that a log needs", ErrConfig)
	case c.HashMax < 0:
		return fmt.Errorf("%w: --hash-max %d is below zero: use 0 or more", ErrConfig, c.HashMax)
	case c.HashEvery < 0:
		return fmt.Errorf("%w: --hash-every %s is below zero: use 0 or more", ErrConfig, c.HashEvery)
	}
	if err := c.validateSource(); err != nil {
		return err
	}
	return c.Etcd.Validate()
}

func (c Config) validateSource() error {
	if c.Source != segment.WAL && c.Source != segment.Watch {
		return fmt.Errorf("%w: --source %q is unknown: use %s or %s", ErrConfig, c.Source, segment.WAL, segment.Watch)
	}
	if c.Source == segment.Watch {
		if least := MinSpool * int64(c.SegmentSize); c.Spool != "" && c.SpoolMax < least {
			return fmt.Errorf("%w: --spool-max %d is too small: use at least %d, which is %d times --segment-size", ErrConfig, c.SpoolMax, least, MinSpool)
		}
		return nil
	}
	if c.Spool != "" {
		return fmt.Errorf("%w: --spool is for --source watch: next to a member its own log is the spool: omit it", ErrConfig)
	}
	if _, err := os.ReadDir(c.DataDir); err != nil {
		return fmt.Errorf("%w: --data-dir: %w", ErrConfig, err)
	}
	return nil
}

// Run archives until ctx ends, and then stores what is pending. It returns an error only for what trying again cannot
// mend; a store, a member or a cluster that is away is waited for, and told through report and observe.
func Run(
	ctx context.Context, c Config, to *repository.Cluster, observe func(Status), report storage.Report,
) error {
	if err := c.Validate(); err != nil {
		return err
	}
	a := &archiver{
		config: c, to: to, report: report, writer: strings.ToLower(rand.Text()[:16]),
		board: &board{tell: observe},
	}
	a.board.set(func(s *Status) { s.State, s.Source, s.Cluster = Starting, c.Source, to.Name() })
	var err error
	if a.spool, err = openSpool(c.Spool, to.Name(), c.SpoolMax, a.warn); err != nil {
		return err
	}
	defer a.spool.close()
	defer a.snapshots.Wait()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		err := a.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case a.isFinal(err):
			return err
		}
		if !a.found {
			wait = min(wait, memberWait)
		}
		a.warn("%v", err)
		a.board.set(func(s *Status) { s.State, s.Problem = Waiting, err.Error() })
		if time.Since(began) > lastWait {
			wait = firstWait
		}
		if sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// How long to wait before another turn.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 10 * time.Second
	// memberWait is the longest wait while the member does not answer: a history that begins with it begins without a log.
	memberWait = 2 * time.Second
)

// isFinal reports whether waiting cannot mend err.
func (a *archiver) isFinal(err error) bool {
	if errors.Is(err, errMismatch) && a.stood {
		return false
	}
	return errors.Is(err, ErrConfig) || errors.Is(err, fault.Refused) || errors.Is(err, cluster.ErrConfig) ||
		errors.Is(err, wal.ErrEntry) || errors.Is(err, storage.ErrDamaged)
}

// archiver is one run of the agent, over all its turns.
type archiver struct {
	config    Config
	to        *repository.Cluster
	report    storage.Report
	writer    string // tells its segments from another run's
	board     *board
	snapshots sync.WaitGroup
	lastHash  time.Time
	unhashed  string  // why the member last gave no hash
	breach    *breach // nil while this source continues the repository's log
	patience  patience
	found     bool   // the source was there in this turn
	stood     bool   // it was there in any turn
	jumped    int64  // the revision that a watch has left out once, 0: none
	warnedOf  string // the server's version that was warned of last
	spool     spool
	logEnd    atomic.Pointer[lease.LogEnd] // the last segment that is known to be stored, for the lease
	released  lease.LogEnd                 // up to where the files were let go of on standby, in this turn
	members   members
}

func (a *archiver) note(format string, args ...any) {
	a.report.Say(storage.Event{Stage: "archive", Level: storage.Note, Message: fmt.Sprintf(format, args...)})
}

func (a *archiver) warn(format string, args ...any) {
	a.report.Say(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf(format, args...)})
}

// turn connects, waits for the lease, and archives until something breaks.
func (a *archiver) turn(ctx context.Context) error {
	a.found = false
	from, err := a.open(ctx)
	if err != nil {
		return errors.Join(err, a.emptySpool(ctx))
	}
	defer from.close()
	a.found, a.stood = true, true
	a.board.set(func(s *Status) { s.Member = from.server().ID() })
	if v := from.version(); a.config.Source == segment.Watch && v != a.warnedOf && leavesOut(v) {
		a.warnedOf = v
		a.warn("etcd %s may leave out changes from a watch that lags (mended in 3.4.36 and 3.5.18): update it, or use --source wal", v)
	}
	lease, err := a.stand(ctx, from)
	if err != nil {
		return errors.Join(err, a.emptySpool(ctx))
	}
	ctx, lost := context.WithCancelCause(ctx)
	keeping := a.keep(ctx, lease, lost)
	defer keeping.Wait()
	comparing := a.compareMembers(ctx)
	defer comparing.Wait()
	defer lost(nil)
	w, err := a.begin(ctx, from)
	if err != nil {
		return err
	}
	defer w.end()
	return w.follow(ctx)
}
