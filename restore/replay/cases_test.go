package replay_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// scene is a server on which a test makes changes between two snapshots.
type scene struct {
	*testing.T
	cluster *servers.Cluster
	client  *clientv3.Client
}

// played is the result of a scene.
type played struct {
	lived
	at uint64 // position of the second snapshot
}

func play(t *testing.T, o servers.Options, do func(s scene)) played {
	t.Helper()
	cluster := servers.Start(t, o)
	s := scene{T: t, cluster: cluster, client: cluster.Client(t)}
	p := played{lived: lived{version: o.Version, marks: serverVersion(t, s.client, cluster)}}
	s.put("base", "of the log")
	p.snapshots = append(p.snapshots, s.snapshot())
	p.marks = append(p.marks, takeMarks(t, cluster, s.client)...)
	do(s)
	s.put("end", "of the log")
	p.marks = append(p.marks, takeMarks(t, cluster, s.client)...)
	p.snapshots = append(p.snapshots, s.snapshot())
	cluster.StopAll(t)
	p.requests = readLog(t, cluster.Members[0])
	var err error
	p.at, _, err = database.Place(p.snapshots[1])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// equal replays, compares every bucket, and requires that the last marks matched.
func (p played) equal(t *testing.T) string {
	t.Helper()
	db := copyOf(t, p.snapshots[0])
	at := apply(t, db, inSegments(p.marks, p.requests), replay.Stop{Position: p.at})
	same(t, fmt.Sprintf("%+v", at), p.snapshots[1], db, p.exempt())
	sameHash(t, p.snapshots[1], db)
	if at.Marked == 0 || at.Proven == 0 {
		t.Errorf("no mark was compared: %+v", at)
	}
	return db
}

func (s scene) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s scene) put(key, value string, options ...clientv3.OpOption) {
	s.Helper()
	_, err := s.client.Put(s.Context(), key, value, options...)
	s.must("put "+key, err)
}

func (s scene) snapshot() string {
	s.Helper()
	stream, err := s.client.Snapshot(s.Context())
	s.must("snapshot", err)
	defer stream.Close()
	data, err := io.ReadAll(stream)
	s.must("snapshot", err)
	path := filepath.Join(s.TempDir(), "db")
	s.must("snapshot", os.WriteFile(path, data[:len(data)-32], 0o600))
	return path
}

// A lease that is kept alive exists at the end, however long the replay takes.
func TestLeaseThatIsKeptAlive(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		t.Parallel() // the test mostly waits
		p := play(t, servers.Options{Version: version}, func(s scene) {
			lease, err := s.client.Grant(s.Context(), 20) // long enough for a machine that stops for a moment
			s.must("grant", err)
			_, err = s.client.KeepAlive(s.Context(), lease.ID)
			s.must("keep alive", err)
			s.put("kept", "alive", clientv3.WithLease(lease.ID))
			time.Sleep(25 * time.Second) // more than the lease lives without being kept alive
		})
		image, _, err := database.Newest(p.equal(t))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprint(image.KVs), `"kept"`) {
			t.Error("the key has gone with its lease")
		}
	})
}

// etcd's limits for its clients do not apply to a replay.
func TestLargeRequests(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		o := servers.Options{Version: version, ExtraArgs: []string{"--max-txn-ops", "10001", "--max-request-bytes", "4000000"}}
		p := play(t, o, scene.largeRequests)
		p.equal(t)
	})
}

// largeRequests sends transactions and values that are larger than etcd allows its clients by default.
func (s scene) largeRequests() {
	for n := range 6 {
		var ops []clientv3.Op
		for i := range 10_000 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("many/%d/%05d", n, i), "x"))
		}
		_, err := s.client.Txn(s.Context()).Then(ops...).Commit()
		s.must("transaction", err)
	}
	for n := range 3 {
		s.put(fmt.Sprint("large/", n), strings.Repeat("large ", 250_000))
	}
	response, err := s.client.Delete(s.Context(), "many/", clientv3.WithPrefix())
	s.must("delete", err)
	if response.Deleted != 60_000 {
		s.Fatalf("deleted %d keys", response.Deleted)
	}
}

// The server itself raises the alarm of a full disk; the replay then refuses the same requests.
func TestFullDisk(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version, QuotaBytes: 3 << 20}, func(s scene) {
			refused := 0
			for n := 0; refused < 5; n++ {
				_, err := s.client.Put(s.Context(), fmt.Sprint("full/", n%7), strings.Repeat("x", 300_000))
				if errors.Is(err, rpctypes.ErrNoSpace) {
					refused++
				}
				if n > 200 {
					s.Fatal("the disk does not get full")
				}
			}
			_, err := s.client.Delete(s.Context(), "full/3") // deletes are still possible
			s.must("delete", err)
			response, err := s.client.Get(s.Context(), "full/2")
			s.must("get", err)
			_, err = s.client.Compact(s.Context(), response.Header.Revision, clientv3.WithCompactPhysical())
			s.must("compact", err)
			_, err = s.client.Defragment(s.Context(), s.cluster.Members[0].ClientURL)
			s.must("defragment", err)
			_, err = s.client.AlarmDisarm(s.Context(), &clientv3.AlarmMember{})
			s.must("disarm", err)
		})
		p.equal(t)
	})
}

// A compaction to a revision that deleted a key keeps the tombstone, except on 3.4.23.
func TestCompactionToATombstone(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version}, func(s scene) {
			for n := range 10 {
				s.put(fmt.Sprint("gone/", n), "soon")
			}
			response, err := s.client.Delete(s.Context(), "gone/", clientv3.WithPrefix())
			s.must("delete", err)
			s.put("gone/3", "back")
			_, err = s.client.Compact(s.Context(), response.Header.Revision, clientv3.WithCompactPhysical())
			s.must("compact", err)
			s.put("gone/4", "back")
		})
		p.equal(t)
	})
}

// writeOnly adds a user that may write below app/ and read nothing, and returns a client that is logged in as that user.
func (s scene) writeOnly() *clientv3.Client {
	s.Helper()
	_, err := s.client.UserAdd(s.Context(), "writer", "secret")
	s.must("user", err)
	_, err = s.client.RoleAdd(s.Context(), "write-only")
	s.must("role", err)
	_, err = s.client.RoleGrantPermission(s.Context(), "write-only", "app/", clientv3.GetPrefixRangeEnd("app/"),
		clientv3.PermissionType(clientv3.PermWrite))
	s.must("permission", err)
	_, err = s.client.UserGrantRole(s.Context(), "writer", "write-only")
	s.must("grant", err)
	return s.cluster.Client(s.T, servers.As("writer", "secret"))
}

// beyondPermissions sends transactions that today's rules deny to a user with write permission only. Servers follow the rules
// of their version; their responses are ignored.
func beyondPermissions(s scene) {
	lease, err := s.client.Grant(s.Context(), 1000)
	s.must("lease", err)
	s.put("not-yours", "x", clientv3.WithLease(lease.ID))
	s.put("app/a", "x")
	user := s.writeOnly()
	for _, op := range []clientv3.Op{
		clientv3.OpPut("app/b", "asks back", clientv3.WithPrevKV()),
		clientv3.OpPut("app/c", "a lease of others", clientv3.WithLease(lease.ID)),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("not-yours", "nested")}, nil),
		clientv3.OpPut("app/d", "is good"),
		clientv3.OpPut("not-yours", "is bad"),
		clientv3.OpDelete("app/a"),
		clientv3.OpDelete("app/d", clientv3.WithPrevKV()),
	} {
		_, _ = user.Txn(s.Context()).Then(op).Commit()
		_, _ = user.Do(s.Context(), op)
	}
	_, _ = user.Txn(s.Context()).If(clientv3.Compare(clientv3.Version("app/a"), "=", 0)).Then(clientv3.OpPut("app/e", "x")).Commit()
	_, _ = user.Revoke(s.Context(), lease.ID)
}

// With authentication enabled, older servers permit requests that newer ones deny.
func TestPermissionsOfTheVersion(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version, Auth: true}, beyondPermissions)
		p.equal(t)
		image, _, err := database.Newest(p.snapshots[1])
		if err != nil {
			t.Fatal(err)
		}
		passed := strings.Contains(fmt.Sprint(image.KVs), "nested")
		if passed != (version == "3.4") {
			t.Errorf("the nested write has passed on the server: %v", passed)
		}
		if version != "3.4" {
			return
		}
		// A replay of a log without a server version ends at the first mark that does not match.
		marks := p.marks[1:]
		_, err = replay.Apply(t.Context(), copyOf(t, p.snapshots[0]), fromWAL(inSegments(marks, p.requests)), replay.Options{})
		var mismatch *replay.MismatchError
		if !errors.As(err, &mismatch) || !errors.Is(err, replay.ErrMismatch) {
			t.Fatalf("got %v, want a mismatch", err)
		}
		if mismatch.Last.Marked != marks[0].Position || mismatch.Last.Revision != marks[0].Revision {
			t.Errorf("got %v, %+v; want the mark before, at %d", mismatch, mismatch.Last, marks[0].Position)
		}
	})
}

// On a full disk, older servers do not count the puts in nested transactions.
func TestNestedPutsOnAFullDisk(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version}, func(s scene) {
			s.raise(etcdserverpb.AlarmType_NOSPACE)
			nested := clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("nested", "1")}, nil)
			_, _ = s.client.Txn(s.Context()).Then(nested).Commit()
			_, _ = s.client.Txn(s.Context()).Then(clientv3.OpPut("beside", "1"), nested).Commit()
			_, _ = s.client.Txn(s.Context()).Then(nested).Else(clientv3.OpPut("else", "1")).Commit()
			_, err := s.client.AlarmDisarm(s.Context(), &clientv3.AlarmMember{})
			s.must("disarm", err)
			_, err = s.client.Txn(s.Context()).Then(nested).Commit()
			s.must("nested put", err)
		})
		p.equal(t)
	})
}

func (s scene) raise(alarm etcdserverpb.AlarmType) {
	s.Helper()
	status, err := s.client.Status(s.Context(), s.cluster.Members[0].ClientURL)
	s.must("status", err)
	_, err = clientv3.RetryMaintenanceClient(s.client, s.client.ActiveConnection()).Alarm(s.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: alarm,
	})
	s.must("alarm", err)
}

// While an alarm is raised, 3.4 and 3.5 check no permissions.
func TestPermissionsUnderAnAlarm(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version, Auth: true}, func(s scene) {
			s.put("not-yours", "x")
			user := s.writeOnly()
			s.raise(etcdserverpb.AlarmType_NOSPACE)
			_, _ = user.Delete(s.Context(), "not-yours")
			_, err := s.client.AlarmDisarm(s.Context(), &clientv3.AlarmMember{})
			s.must("disarm", err)
			_, _ = user.Delete(s.Context(), "base")
		})
		p.equal(t)
	})
}

// 3.4.23 accepts a role with a range that ends before it begins, and an empty password.
func TestRequestsOfOldServers(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		p := play(t, servers.Options{Version: version, Auth: true}, func(s scene) {
			_, err := s.client.RoleAdd(s.Context(), "odd")
			s.must("role", err)
			for _, end := range []string{"b", "z", "b", "c"} {
				_, _ = s.client.RoleGrantPermission(s.Context(), "odd", "c", end, clientv3.PermissionType(clientv3.PermReadWrite))
			}
			_, err = s.client.UserGrantRole(s.Context(), servers.User, "odd")
			s.must("grant", err)
			_, _ = s.client.UserAdd(s.Context(), "nothing", "")
			_, _ = s.client.UserChangePassword(s.Context(), servers.User, "")
			s.put("c", "x")
		})
		p.equal(t)
	})
}

// If a transaction reads a compacted revision, etcd before 3.7 refuses it only on the member that the client is connected to (etcd #18667). A
// replay refuses it too. If a mark of another member then does not match, the error names the transaction.
func TestReadOfACompactedRevision(t *testing.T) {
	if testing.Short() {
		t.Skip("real servers are slow")
	}
	p := play(t, servers.Options{Version: "3.6", Members: 3}, func(s scene) {
		s.put("a", "1")
		response, err := s.client.Get(s.Context(), "a")
		s.must("get", err)
		_, err = s.client.Compact(s.Context(), response.Header.Revision)
		s.must("compact", err)
		other := s.cluster.Client(s.T, servers.At(s.cluster.Members[1]))
		_, err = other.Txn(s.Context()).Then(clientv3.OpGet("a", clientv3.WithRev(1)), clientv3.OpPut("disputed", "")).Commit()
		if !errors.Is(err, rpctypes.ErrCompacted) {
			s.Fatalf("the transaction: %v, want that the revision is compacted", err)
		}
	})
	records := fromWAL(inSegments(p.marks, p.requests))
	_, err := replay.Apply(t.Context(), copyOf(t, p.snapshots[0]), records, replay.Options{})
	m, ok := errors.AsType[*replay.MismatchError](err)
	if !ok || m.Disputed == 0 || m.Want != m.Got+1 || !strings.Contains(err.Error(), "18667") {
		t.Errorf("the replay: %v, want a mismatch that names the transaction", err)
	}
}
