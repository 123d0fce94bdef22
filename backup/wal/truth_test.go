package wal_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// applied returns a member's applied index, once the member has applied everything that the cluster had committed.
func applied(t *testing.T, c *servers.Cluster, i int) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := c.Client(t, servers.At(c.Members[i]))
	for {
		_, err := client.Get(ctx, "linearizable")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	s, err := client.Status(ctx, c.Members[i].ClientURL)
	ok(t, err)
	return s.RaftAppliedIndex
}

// onDisk returns the entries that etcd itself reads from the log of a stopped member, up to its commit index.
func onDisk(t *testing.T, dir string) map[uint64]*raftpb.Entry {
	t.Helper()
	w, err := etcdwal.OpenForRead(zap.NewNop(), filepath.Join(dir, "member", "wal"), &walpb.Snapshot{})
	ok(t, err)
	defer w.Close()
	_, state, entries, err := w.ReadAll()
	ok(t, err)
	all := map[uint64]*raftpb.Entry{}
	for _, e := range entries {
		if e.GetIndex() <= state.GetCommit() {
			all[e.GetIndex()] = e
		}
	}
	return all
}

// compare fails unless each request is one of the entries, and every entry up to last that changes the database is a
// request.
func compare(t *testing.T, name string, requests map[uint64]segment.Record, entries map[uint64]*raftpb.Entry, last uint64) {
	t.Helper()
	for position, r := range requests {
		e := entries[position]
		if e == nil && position > last {
			continue // committed, but the disk did not know it yet
		}
		if e == nil || e.GetTerm() != r.Term || string(e.GetData()) != string(r.Data) {
			t.Errorf("%s: request %d of term %d is not the entry %v", name, position, r.Term, e)
		}
	}
	for position, e := range entries {
		_, came := requests[position]
		if !came && position <= last && changesTheDatabase(e) {
			t.Errorf("%s: entry %d is missing: %v", name, position, e)
		}
	}
}

// changesTheDatabase does not use the package's own rules.
func changesTheDatabase(e *raftpb.Entry) bool {
	var r pb.InternalRaftRequest
	if e.GetType() != raftpb.EntryNormal || proto.Unmarshal(e.GetData(), &r) != nil {
		return false
	}
	for _, set := range []bool{
		r.Put != nil, r.DeleteRange != nil, r.Txn != nil, r.Compaction != nil, r.LeaseGrant != nil, r.LeaseRevoke != nil,
		r.LeaseCheckpoint != nil, r.AuthEnable != nil, r.AuthDisable != nil, r.AuthUserAdd != nil, r.AuthUserDelete != nil,
		r.AuthUserChangePassword != nil, r.AuthUserGrantRole != nil, r.AuthUserRevokeRole != nil, r.AuthRoleAdd != nil,
		r.AuthRoleDelete != nil, r.AuthRoleGrantPermission != nil, r.AuthRoleRevokePermission != nil,
		r.Alarm.GetAction() != pb.AlarmRequest_GET,
	} {
		if set {
			return true
		}
	}
	return false
}
