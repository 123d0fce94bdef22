package replay_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// readLog returns the requests in the log of a stopped member. It must be the only member, so that all of them are committed.
func readLog(t testing.TB, m *servers.Member) []segment.Record {
	t.Helper()
	log, err := wal.OpenForRead(zap.NewNop(), filepath.Join(m.DataDir, "member", "wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, _, entries, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var records []segment.Record
	for _, e := range entries {
		if e.GetType() == raftpb.EntryNormal && isRequest(e.Data) {
			records = append(records, segment.Record{
				Kind: segment.Request, Position: e.GetIndex(), Term: e.GetTerm(), Data: e.Data,
			})
		}
	}
	return records
}

// isRequest reports whether an entry is a request: raft writes other entries, and so do 3.4 and 3.5 about their members.
func isRequest(data []byte) bool {
	var r pb.InternalRaftRequest
	if len(data) == 0 || proto.Unmarshal(data, &r) != nil || len(r.ProtoReflect().GetUnknown()) > 0 {
		return false
	}
	return r.ClusterVersionSet == nil && r.ClusterMemberAttrSet == nil && r.DowngradeInfoSet == nil
}

// inSegments yields records like segments: marks first, and data that is valid until the next record.
func inSegments(parts ...[]segment.Record) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		var data []byte
		for _, part := range parts {
			for _, record := range part {
				clear(data)
				data = append(data[:0], record.Data...)
				record.Data = data
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

func copyOf(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "db")
	err = os.WriteFile(to, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// takeMarks returns the marks of a member's revision and hash, of a moment at which nothing changed: leases expire, and soon
// after its start a cluster sets its version. There must be no other writer.
func takeMarks(t testing.TB, c *servers.Cluster, client *clientv3.Client) []segment.Record {
	t.Helper()
	for range 20 {
		marks := tryMarks(t, c, client)
		if marks != nil {
			return marks
		}
	}
	t.Fatal("the member changes all the time")
	return nil
}

// tryMarks returns nil if the member has changed meanwhile.
func tryMarks(t testing.TB, c *servers.Cluster, client *clientv3.Client) []segment.Record {
	t.Helper()
	hash, err := client.HashKV(t.Context(), c.Members[0].ClientURL, 0)
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.Status(t.Context(), c.Members[0].ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	after, err := client.Status(t.Context(), c.Members[0].ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	// A change that was not committed yet when the second response's revision was read is not in the hash. The applied index
	// alone does not show this: a member sets it after the revision.
	if before.RaftAppliedIndex != after.RaftIndex || hash.Header.Revision != after.Header.Revision {
		return nil
	}
	return []segment.Record{
		{Kind: segment.RevisionMark, Position: before.RaftAppliedIndex, Revision: after.Header.Revision},
		{Kind: segment.HashMark, Position: before.RaftAppliedIndex, Revision: hash.Header.Revision,
			CompactRevision: hash.CompactRevision, Hash: hash.Hash},
	}
}

func fromWAL(records iter.Seq2[segment.Record, error]) replay.Log {
	return replay.Log{Source: segment.WAL, Records: records}
}

func apply(t testing.TB, db string, records iter.Seq2[segment.Record, error], stop replay.Stop) replay.At {
	t.Helper()
	at, err := replay.Apply(context.Background(), db, fromWAL(records), replay.Options{Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func same(t testing.TB, what, a, b string, exempt database.Exempt) {
	t.Helper()
	found, err := database.Differences(a, b, exempt)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("%s: the databases differ:\n%s", what, strings.Join(found, "\n"))
	}
}
