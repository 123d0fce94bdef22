package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// member is the one whose log is read, as it answers for itself.
type member struct {
	cluster *cluster.Cluster
	server  *cluster.Server
}

// connect finds the member with those ids among the endpoints. Another one's word would prove nothing about this log.
func connect(ctx context.Context, cfg cluster.Config, clusterID, memberID uint64) (*member, error) {
	c, err := cluster.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if c.ID != clusterID {
		c.Close()
		return nil, fmt.Errorf("%w: the log in --data-dir is of cluster %x, the endpoints are of cluster %x",
			ErrConfig, clusterID, c.ID)
	}
	for _, s := range c.Servers {
		if s.MemberID == memberID {
			return &member{c, s}, nil
		}
	}
	c.Close()
	return nil, fmt.Errorf("%w: member %x, whose log is in --data-dir, does not answer at the endpoints", cluster.ErrSilent, memberID)
}

// clusterID is the cluster's id as etcdctl prints it.
func (m *member) clusterID() string { return fmt.Sprintf("%x", m.cluster.ID) }

func (m *member) close() { m.cluster.Close() }

// word is what a member said of its log. Entries up to applied are committed if the one at applied is of that term: the
// term was asked for later, so whoever led then has them (see wal.Log.Confirm).
type word struct {
	applied, term uint64
	committed     uint64
	revision      int64 // of the key space right after committed; 0: not known
	version       string
}

// ask takes two Status calls. A server reads its revision first, then what is committed, then what is applied
// (etcdserver/api/v3rpc, Status). So if the second call's committed index is the first's applied one, nothing was
// committed between the two, and the second's revision is exactly that after this index.
func (m *member) ask(ctx context.Context) (word, error) {
	first, err := m.server.Now(ctx)
	if err != nil {
		return word{}, err
	}
	second, err := m.server.Now(ctx)
	if err != nil {
		return word{}, err
	}
	w := word{applied: first.RaftAppliedIndex, term: second.RaftTerm, committed: second.RaftIndex, version: second.Version}
	if second.RaftIndex == first.RaftAppliedIndex {
		w.revision = second.Header.Revision
	}
	return w, nil
}

// markTries is how often a mark asks for a moment at which the revision is known: a busy member is rarely still.
const markTries = 4

// mark is a place in the log and a time: all that a client was told before NotBefore is at Position or before, and
// nothing up to it was written after NotAfter. The member's last word comes with it.
func (m *member) mark(ctx context.Context) (mark segment.Mark, w word, err error) {
	mark = segment.Mark{Interval: segment.Interval{NotBefore: time.Now().UTC()}}
	if err := m.server.Confirm(ctx); err != nil {
		return segment.Mark{}, word{}, err
	}
	for range markTries {
		if w, err = m.ask(ctx); err != nil {
			return segment.Mark{}, word{}, err
		}
		mark.Position, mark.Revision, mark.NotAfter = w.committed, w.revision, time.Now().UTC()
		if mark.Revision > 0 {
			break
		}
	}
	return mark, w, nil
}

// hash asks for the HashKV of the newest revision. What made that revision had been committed when it was named.
func (m *member) hash(ctx context.Context) (segment.Hash, error) {
	now, err := m.server.Now(ctx)
	if err != nil {
		return segment.Hash{}, err
	}
	h, err := m.server.HashKV(ctx, now.Header.Revision)
	if err != nil {
		return segment.Hash{}, err
	}
	return segment.Hash{
		Position: now.RaftIndex, Revision: h.Revision, CompactRevision: h.CompactRevision, Hash: h.Hash,
	}, nil
}
