package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// disk is the log of the member next to which the agent runs, with a client of that member.
type disk struct {
	config      Config
	cluster     *cluster.Cluster
	member      *cluster.Server
	log         *wal.Log
	lastVersion string    // of the server, as last reported
	began       time.Time // when log was opened
}

// errMismatch means that the log and the endpoints belong to different clusters. At first it ends the agent, as an ErrConfig. Once the
// source was found, the agent retries: during a restore, members of the old and the new cluster may both respond.
var errMismatch = fmt.Errorf("%w", ErrConfig)

// openDisk opens the log and connects to its member. It checks that the ids in the log are those of the cluster and the member: the
// position of another member would prove nothing about this log.
func openDisk(ctx context.Context, config Config) (source, error) {
	log, err := wal.Open(config.DataDir, segment.End{})
	if err != nil {
		return nil, err
	}
	d := &disk{config: config, log: log, began: time.Now()}
	err = d.connect(ctx)
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// connect finds the member of the log among the endpoints.
func (d *disk) connect(ctx context.Context) (err error) {
	d.cluster, err = cluster.Connect(ctx, d.config.Etcd)
	if err != nil {
		return err
	}
	clusterID, memberID := d.log.IDs()
	if d.cluster.ID != clusterID {
		return fmt.Errorf("%w: the log in --data-dir is of cluster %x, the endpoints are of cluster %x",
			errMismatch, clusterID, d.cluster.ID)
	}
	for _, s := range d.cluster.Servers {
		if s.MemberID == memberID {
			d.member, d.lastVersion = s, s.Status.Version
			return nil
		}
	}
	return fmt.Errorf("%w: member %x, whose log is in --data-dir, does not respond at the endpoints: add its own to --endpoints", cluster.ErrSilent, memberID)
}

func (d *disk) server() *cluster.Server    { return d.member }
func (d *disk) clusterID() string          { return fmt.Sprintf("%x", d.cluster.ID) }
func (d *disk) version() string            { return d.lastVersion }
func (d *disk) name() string               { return "the member's log in " + d.config.DataDir }
func (d *disk) hold() error                { return d.log.Hold() }
func (d *disk) waiting() <-chan struct{}   { return nil }
func (d *disk) lastDataAt() time.Time      { return time.Time{} }
func (d *disk) normalDelay() time.Duration { return 0 }
func (d *disk) release(position uint64)    { d.log.Release(position) }

func (d *disk) close() {
	d.log.Close()
	if d.cluster != nil {
		d.cluster.Close()
	}
}

func (d *disk) continueAfter(_ context.Context, after segment.End) error { return d.log.Skip(after) }

func (d *disk) skipTo(_ context.Context, from uint64) error {
	d.log.Resume(from)
	return nil
}

// startNew moves to the oldest entry in the member's log, so that backups taken before the agent started can be bases too.
func (d *disk) startNew(context.Context) (uint64, error) {
	d.log.Close()
	log, err := wal.Open(d.config.DataDir, segment.End{})
	if err != nil {
		return 0, err
	}
	d.log, d.began = log, time.Now()
	return 0, nil
}

// take reads more only when all entries read so far are taken, so that memory is bounded, however much of the log is unread.
func (d *disk) take(_ context.Context, maxBytes int) (segment.Batch, error) {
	var readErr error
	for more := true; ; {
		batch, err := d.log.Take(maxBytes)
		switch {
		case err != nil:
			return segment.Batch{}, err
		case batch.Last != 0:
			return batch, d.refusePasswords(batch)
		case !more:
			return segment.Batch{}, readErr
		}
		more, readErr = d.log.Read()
	}
}

// refusePasswords returns an error if the log may contain passwords in plain text, as servers before 3.5 write them, and would be
// stored without encryption.
func (d *disk) refusePasswords(b segment.Batch) error {
	if d.config.To.Seal().Encryption != "" {
		return nil
	}
	for _, r := range b.Requests {
		if wal.HoldsPassword(r.Data) {
			return fmt.Errorf("%w: the log of this etcd %s holds users' passwords in plain text: archive it with --recipient", fault.Refused, d.lastVersion)
		}
	}
	return nil
}

// memberReport is a member's report about its log. If the log's entry at index applied has the term term, this entry and all before
// it are committed; wal.Log.Confirm explains why term must be requested after applied.
type memberReport struct {
	applied, term uint64
	committed     uint64 // the committed index
	revision      int64  // of the key space right after committed; 0: not known
}

// ask makes two Status calls, and up to so many more until it knows the revision. A server reads its revision first, then the committed
// index, then the applied index (etcdserver/api/v3rpc, Status). So if a call's committed index equals the applied index of the call
// before it, nothing was committed between the two, and the later call's revision is exactly the one after this index.
func (d *disk) ask(ctx context.Context, more int) (memberReport, error) {
	before, err := d.member.Now(ctx)
	if err != nil {
		return memberReport{}, err
	}
	for {
		after, err := d.member.Now(ctx)
		if err != nil {
			return memberReport{}, err
		}
		d.lastVersion = after.Version
		r := memberReport{applied: before.RaftAppliedIndex, term: after.RaftTerm, committed: after.RaftIndex}
		if after.RaftIndex == before.RaftAppliedIndex {
			r.revision = after.Header.Revision
		}
		if r.revision > 0 || more == 0 {
			return r, nil
		}
		before, more = after, more-1
	}
}

// listen asks the member only if the log has entries that it does not record as committed: on an idle cluster it may not record them
// for minutes.
func (d *disk) listen(ctx context.Context) (asked bool, err error) {
	if d.log.Backlog().Held == 0 {
		return false, nil
	}
	reported, err := d.ask(ctx, 0)
	if err != nil {
		return true, err
	}
	d.log.Confirm(reported.applied, reported.term)
	return true, nil
}

// markTries bounds how often mark asks again for a position with a known revision: on a busy member a try rarely succeeds.
const markTries = 3

// mark returns the committed index, after a read that the leader confirms. The revision is 0 if it is not known.
func (d *disk) mark(ctx context.Context) (segment.Mark, error) {
	notBefore := time.Now().UTC()
	err := d.member.Confirm(ctx)
	if err != nil {
		return segment.Mark{}, err
	}
	r, err := d.ask(ctx, markTries)
	if err != nil {
		return segment.Mark{}, err
	}
	d.log.Confirm(r.applied, r.term)
	return segment.Mark{
		Position: r.committed, Revision: r.revision, Interval: segment.Interval{NotBefore: notBefore, NotAfter: time.Now().UTC()},
	}, nil
}

// hasher returns a function that asks for the HashKV at the newest revision that the member has applied. An applied revision is
// committed.
func (d *disk) hasher() func(context.Context, cluster.HashLimit) (segment.Hash, error) {
	member := d.member
	return func(ctx context.Context, limit cluster.HashLimit) (segment.Hash, error) {
		return hashNewest(ctx, member, limit)
	}
}

// hashNewest returns the HashKV of the member's newest revision. Position is the committed index that the member reports with this
// revision.
func hashNewest(ctx context.Context, member *cluster.Server, limit cluster.HashLimit) (segment.Hash, error) {
	now, err := member.Now(ctx)
	if err != nil {
		return segment.Hash{}, err
	}
	h, err := member.HashKVWithin(ctx, now.Header.Revision, now, limit)
	if err != nil {
		return segment.Hash{}, err
	}
	return segment.Hash{
		Position: now.RaftIndex, Revision: h.Revision, CompactRevision: h.CompactRevision, Hash: h.Hash,
	}, nil
}

// headroom estimates how soon etcd would purge a file of the log that is not completely stored, from the member's write rate
// since the log was opened. Right after the start this rate includes older entries, so the estimate is too short.
func (d *disk) headroom() Headroom {
	b := d.log.Backlog()
	h := Headroom{Files: b.Files, UnlinkedBytes: b.UnlinkedBytes}
	left, purges := b.UntilPurge(d.config.MaxWALs)
	pace := float64(b.Read) / time.Since(d.began).Seconds()
	h.Purges = purges
	if purges && pace > 0 {
		h.Seconds = float64(left) / pace
	}
	return h
}
