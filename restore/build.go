package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
)

// build makes the data dirs in the work dir. It uses etcd's packages as etcdutl's snapshot.Restore does, but edits the database once
// for all members. etcdutl copies and hashes the database for each member, which takes most of its time with three members. A test
// compares the result with etcdutl's.
func (r *run) build(ctx context.Context) error {
	debug.FreeOSMemory() // the whole database is about to be mapped: return the memory of the key space first
	m, err := newMembership(r.plan)
	if err != nil {
		return err
	}
	r.result.ClusterID = m.cluster.ID().String()
	err = r.edit(m)
	if err != nil {
		return err
	}
	dirs := r.plan.DataDirs()
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range dirs {
		r.report.Say(storage.Event{Stage: "build", Object: d.Name, Message: "data dir of " + d.Name})
		group.Go(func() error {
			return guard("build", func() error {
				err := r.buildMember(ctx, m, d, i > 0)
				if err != nil {
					return fmt.Errorf("build member %s: %w", d.Name, err)
				}
				return nil
			})
		})
	}
	err = group.Wait()
	if err != nil {
		return err
	}
	// The first member gets the database itself, after the other members have copied it.
	err = os.Rename(r.db, r.dataOf(dirs[0], "snap", "db"))
	if err != nil {
		return err
	}
	r.announce()
	if r.wal != nil {
		err := r.wal.sync()
		if err != nil {
			return err
		}
	}
	return r.work.sync()
}

// buildMember makes one data dir, with a copy of the database or without one.
func (r *run) buildMember(ctx context.Context, m *membershipOf, d plan.DataDir, withCopy bool) error {
	snapDir, walDir := r.dataOf(d, "snap"), r.dataOf(d, "wal")
	if r.wal != nil {
		walDir = r.wal.tree
	}
	for _, dir := range []string{snapDir, walDir} {
		err := os.MkdirAll(dir, 0o700)
		if err != nil {
			return err
		}
	}
	err := m.writeLog(snapDir, walDir, d.Name)
	if err != nil {
		return err
	}
	if withCopy {
		return copyFile(ctx, r.dataOf(d, "snap", "db"), r.db)
	}
	return nil
}

// dataOf returns a path below a member's data in the work dir.
func (r *run) dataOf(d plan.DataDir, path ...string) string {
	return filepath.Join(append([]string{r.work.tree, d.Folder, "member"}, path...)...)
}

// copyStep is the number of bytes after which a copy starts to write to the disk.
const copyStep = 32 << 20

// copyFile copies in the kernel, or shares blocks if the file system can. The kernel writes each step to the disk while the
// next one is copied.
func copyFile(ctx context.Context, to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	for offset := int64(0); ctx.Err() == nil; offset += copyStep {
		n, err := dst.ReadFrom(io.LimitReader(src, copyStep))
		startWriteback(dst, offset, n)
		if offset > 0 {
			finishWriteback(dst, offset-copyStep, copyStep)
		}
		if err != nil || n < copyStep {
			return err
		}
	}
	return context.Cause(ctx)
}

// membershipOf contains the new cluster's membership, which is equal in every member's data dir.
type membershipOf struct {
	cluster *membership.RaftCluster
}

func newMembership(p plan.Plan) (*membershipOf, error) {
	urls, err := types.NewURLsMap(p.InitialCluster())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", plan.ErrLayout, err)
	}
	cluster, err := membership.NewClusterFromURLsMap(replay.LastWords(), p.Token, urls)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", plan.ErrLayout, err)
	}
	return &membershipOf{cluster}, nil
}

// firstTerm is the term of the new log's first entries: one per member, all committed.
const firstTerm = 1

// commit returns the index of the last of these entries.
func (m *membershipOf) commit() uint64 { return uint64(len(m.cluster.MemberIDs())) }

// write replaces the members in the database, and sets its consistent index to the end of the new log.
func (m *membershipOf) write(be backend.Backend) error {
	store := schema.NewMembershipBackend(replay.LastWords(), be)
	err := store.TrimMembershipFromBackend()
	if err != nil {
		return fmt.Errorf("remove the old members: %w", err)
	}
	m.cluster.SetBackend(store)
	for _, member := range m.cluster.Members() {
		m.cluster.AddMember(member, membership.ApplyBoth)
	}
	cindex.UpdateConsistentIndexForce(be.BatchTx(), m.commit(), firstTerm)
	return nil
}

// writeLog writes a member's WAL and raft snapshot (etcdutl/snapshot, saveWALAndSnap). The data dirs of the members differ only in
// these two.
func (m *membershipOf) writeLog(snapDir, walDir, name string) error {
	//nolint:staticcheck // as etcdutl does: before the first start only the name identifies a member
	self := m.cluster.MemberByName(name)
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(self.ID)), ClusterID: new(uint64(m.cluster.ID()))})
	if err != nil {
		return err
	}
	entries, voters, err := m.entries()
	if err != nil {
		return err
	}
	w, err := wal.Create(replay.LastWords(), walDir, metadata)
	if err != nil {
		return err
	}
	defer w.Close()
	commit, term := m.commit(), uint64(firstTerm)
	hardState := raftpb.HardState{Term: &term, Vote: &voters[0], Commit: &commit}
	err = w.Save(&hardState, entries)
	if err != nil {
		return err
	}
	confState := &raftpb.ConfState{Voters: voters}
	snapshot := &raftpb.Snapshot{
		Data:     etcdserver.GetMembershipInfoInV2Format(replay.LastWords(), m.cluster),
		Metadata: &raftpb.SnapshotMetadata{Index: &commit, Term: &term, ConfState: confState},
	}
	err = snap.New(replay.LastWords(), snapDir).SaveSnap(snapshot)
	if err != nil {
		return err
	}
	return w.SaveSnapshot(&walpb.Snapshot{Index: &commit, Term: &term, ConfState: confState})
}

// entries returns the configuration changes that add the members, in the order of their ids.
func (m *membershipOf) entries() (entries []*raftpb.Entry, voters []uint64, err error) {
	for i, id := range m.cluster.MemberIDs() {
		about, err := json.Marshal(m.cluster.Member(id))
		if err != nil {
			return nil, nil, err
		}
		peer := raft.Peer{ID: uint64(id), Context: about}
		change, err := proto.Marshal(&raftpb.ConfChange{
			Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &peer.ID, Context: peer.Context,
		})
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, &raftpb.Entry{
			Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(firstTerm)), Index: new(uint64(i + 1)), Data: change,
		})
		voters = append(voters, peer.ID)
	}
	return entries, voters, nil
}
