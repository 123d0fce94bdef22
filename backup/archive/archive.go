// Package archive stores a cluster's log continuously as segments in a repository.
//
//	member/wal ── committed requests ──┐
//	watch ─────── whole revisions ─────┴─► pending ── flush ──► segment, sealed ──► (spool) ──► Bucket.Put (create-only)
//	member ────── Status, reads ─────────► marks: which position, which revision, when
//
// An agent runs next to a member, or watches from any host. Several agents write one log: a lease selects the one that works,
// and segment names, which can be created only once, prevent two from storing different segments. Next to a member, the member's
// log is the spool: while the store is unreachable the agent keeps its files open, so nothing is lost when etcd purges them. For
// a watch, a directory can be the spool.
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
	// ErrConfig reports a Config that cannot be used.
	ErrConfig = fault.New(fault.Usage, "bad archive configuration")
)

// Config selects a log, and how to archive it.
type Config struct {
	Source  segment.Source
	DataDir string         // WAL: the member's; only read
	Etcd    cluster.Config // access to that member and its cluster, or to the cluster to watch
	To      seal.Recipients
	Plain   bool // allow no recipients, even if the existing log is encrypted

	Flush       time.Duration // maximum time before a request is sent to the store
	SegmentSize int           // bytes of requests that are sent without waiting for --flush
	Lease       time.Duration // time after which another agent takes over from a stopped one
	HashEvery   time.Duration // how often the member is asked for its HashKV; 0: never
	HashMax     time.Duration // the HashKV is requested only if its estimated stall is at most this; 0: cluster.HashStall
	MaxWALs     int           // WAL: the member's --max-wals, for the headroom; 0: the member never purges its log
	Spool       string        // Watch: directory in which segments wait while the store is unreachable; "": none
	SpoolMax    int64         // its maximum size in bytes

	Host    string // of this agent, shown in the lease
	Version string // of dr
	// Snapshot takes a backup at once, because a log without a backup before it restores nothing. It must not be nil.
	Snapshot func(ctx context.Context, why string) error
	Observe  func(Status) // called with each change of the status; nil: not called
	Report   storage.Report
}

// Limits of Config.
const (
	// MinFlush is the shortest Flush, DefaultFlush that of dr archive.
	MinFlush     = 100 * time.Millisecond
	DefaultFlush = 2 * time.Second
	// MinSpool is the minimum size of a spool as a multiple of SegmentSize. The spool must be larger than the memory buffer,
	// because it must have room for the buffer's segments.
	MinSpool = 2 * heldSegments

	minSegmentSize = 4 << 10
	minLease       = time.Second
)

// Validate returns an error that matches ErrConfig if c cannot be used.
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
		return fmt.Errorf("%w: each segment would cost a second of CPU with a passphrase: use --recipient", ErrConfig)
	case c.Snapshot == nil:
		return fmt.Errorf("%w: Snapshot is nil: the log needs backups", ErrConfig)
	case c.HashMax < 0:
		return fmt.Errorf("%w: --hash-max %s is below zero: use 0 or more", ErrConfig, c.HashMax)
	case c.HashEvery < 0:
		return fmt.Errorf("%w: --hash-every %s is below zero: use 0 or more", ErrConfig, c.HashEvery)
	}
	err := c.validateSource()
	if err != nil {
		return err
	}
	return c.Etcd.Validate()
}

func (c Config) validateSource() error {
	if c.Source != segment.WAL && c.Source != segment.Watch {
		return fmt.Errorf("%w: --source %q is unknown: use %s or %s", ErrConfig, c.Source, segment.WAL, segment.Watch)
	}
	if c.Source == segment.Watch {
		least := MinSpool * int64(c.SegmentSize)
		if c.Spool != "" && c.SpoolMax < least {
			return fmt.Errorf("%w: --spool-max %d is too small: use at least %d, which is %d times --segment-size", ErrConfig, c.SpoolMax, least, MinSpool)
		}
		return nil
	}
	if c.Spool != "" {
		return fmt.Errorf("%w: --spool with --source wal: the member's own log is the spool: leave it out", ErrConfig)
	}
	_, err := os.ReadDir(c.DataDir)
	if err != nil {
		return fmt.Errorf("%w: --data-dir: %w", ErrConfig, err)
	}
	return nil
}

// Run archives until ctx ends, and then stores the pending requests. It returns an error only if a retry cannot help, or if the process must be
// started again because its mount shows a replaced data dir. While a store, a member or a cluster is unreachable it waits, and reports that
// through c.Report and c.Observe.
func Run(ctx context.Context, c Config, to *repository.Cluster) error {
	err := c.Validate()
	if err != nil {
		return err
	}
	a := &archiver{
		config: c, to: to, writer: strings.ToLower(rand.Text()[:16]),
		board: &board{observe: c.Observe},
	}
	if c.Source == segment.WAL {
		a.root, _ = rootOf(c.DataDir)
	}
	a.board.set(func(s *Status) { s.State, s.Source, s.Cluster = Starting, c.Source, to.Name() })
	a.spool, err = openSpool(c.Spool, to.Name(), c.SpoolMax, a.warn)
	if err != nil {
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
			moved := a.moved()
			if moved != nil {
				return moved
			}
			wait = min(wait, memberWait)
		}
		a.warn("%v", err)
		a.board.set(func(s *Status) { s.State, s.Problem = Waiting, err.Error() })
		if time.Since(began) > lastWait {
			wait = firstWait
		}
		if storage.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// How long to wait before the next turn.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 10 * time.Second
	// memberWait is the longest wait after a turn that could not open the source. It is short, because a new history may begin when the
	// member returns, and must be archived from its start.
	memberWait = 2 * time.Second
)

// isFinal reports whether a retry after err cannot help.
func (a *archiver) isFinal(err error) bool {
	if errors.Is(err, errMismatch) && a.everFound {
		return false
	}
	return errors.Is(err, ErrConfig) || errors.Is(err, fault.Refused) || errors.Is(err, cluster.ErrConfig) ||
		errors.Is(err, wal.ErrEntry) || errors.Is(err, storage.ErrDamaged)
}

// archiver is one run of the agent, over all its turns.
type archiver struct {
	config    Config
	to        *repository.Cluster
	writer    string // distinguishes the segments of this run from another run's
	board     *board
	snapshots sync.WaitGroup
	lastHash  time.Time // when a hash was last requested; zero: request one now
	unhashed  string    // why the member last returned no hash
	breach    *breach   // nil while this source continues the repository's log
	patience  patience
	root      string // directory of the host that was mounted as the data dir at the start; "": none
	found     bool   // open found the source in this turn
	everFound bool   // open found the source in this turn or an earlier one
	jumped    int64  // the first revision that a watch last omitted; 0: none
	warnedOf  string // the server version of the last warning
	spool     spool
	logEnd    atomic.Pointer[lease.LogEnd] // the last segment known to be stored, for the lease
	busyAt    atomic.Int64                 // when there was last a request to store, or a turn began, in nanoseconds since 1970
	released  lease.LogEnd                 // the last segment for which files were released on standby, in this turn
	members   members
}

func (a *archiver) note(format string, args ...any) {
	a.config.Report.Say(storage.Event{Stage: "archive", Level: storage.Note, Message: fmt.Sprintf(format, args...)})
}

func (a *archiver) warn(format string, args ...any) {
	a.config.Report.Say(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf(format, args...)})
}

// turn runs one turn of the agent: it opens the source, waits for the lease, and archives until an error or the end of ctx.
func (a *archiver) turn(ctx context.Context) error {
	a.found = false
	from, err := a.open(ctx)
	if err != nil {
		return errors.Join(err, a.emptySpool(ctx))
	}
	defer from.close()
	a.found, a.everFound = true, true
	a.board.set(func(s *Status) { s.Member = from.server().ID() })
	v := from.version()
	if a.config.Source == segment.Watch && v != a.warnedOf && mayDropEvents(v) {
		a.warnedOf = v
		a.warn("etcd %s may omit changes from a slow watch (fixed in 3.4.36 and 3.5.18): update it, or use --source wal", v)
	}
	lease, err := a.waitForLease(ctx, from)
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
