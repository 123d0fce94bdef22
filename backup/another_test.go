package backup_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// dies sends half of a database and then fails, like the connection to a killed member.
func dies(s pb.Maintenance_SnapshotServer) error {
	data := database(4 << 20)
	err := send(s, data[:len(data)/2])
	if err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "error reading from server: EOF")
}

// TestRunContinuesWithAnotherMember checks that after a member's failure the next healthy member is read in a second
// stream, and that the manifest names it.
func TestRunContinuesWithAnotherMember(t *testing.T) {
	needsQuiet(t)
	for name, breaks := range map[string]func(*fakeMember){
		"in the middle of the stream": func(f *fakeMember) { f.snapshot = dies },
		"before the stream": func(f *fakeMember) {
			f.snapshot = func(pb.Maintenance_SnapshotServer) error { return status.Error(codes.Unavailable, "gone") }
		},
		"with a wrong digest": func(f *fakeMember) {
			f.snapshot = func(s pb.Maintenance_SnapshotServer) error { return send(s, database(4096)[:4096]) }
		},
		"before it is asked": func(f *fakeMember) {
			f.status = func(call int64) error {
				if call == 1 {
					return nil
				}
				return status.Error(codes.Unavailable, "gone")
			}
		},
	} {
		for _, from := range []string{"leader", "any"} {
			for _, spool := range []string{"", t.TempDir()} {
				t.Run(name+" "+from+" "+filepath.Base(spool), func(t *testing.T) {
					fakes, urls := three(t)
					breaks(fakes[0])
					in := append(memories(2), fileBucket(t))
					r, keys := request(t)
					r.From, r.Spool.Dir = from, spool
					l := &listener{}
					result, err := backup.Run(t.Context(), at(urls...), in.stores(t), reporting(r, l.report))
					if err != nil {
						t.Fatal(err)
					}
					if result.Member.ID == "1" {
						t.Errorf("the manifest names member %s, which broke off", result.Member.ID)
					}
					said := strings.Join(l.warnings(), "\n")
					if !strings.Contains(said, urls[0]) || !strings.Contains(said, "reading from another member") {
						t.Errorf("warnings:\n%s", said)
					}
					for _, b := range in {
						to := open(t, b)
						fetched(t, to, result.Backup, keys)
						wantNothing(t, to, result.ID)
						all := objects(t, b)
						if len(all) != 2 {
							t.Errorf("%d objects, want the backup's two", len(all))
						}
					}
					wantEmpty(t, spool)
				})
			}
		}
	}
	wantEnded(t)
}

// TestRunWithoutAnotherMember checks that only one other member is tried, that none is tried if the caller named the
// member or there is no other, and that nothing incomplete stays.
func TestRunWithoutAnotherMember(t *testing.T) {
	for _, test := range []struct {
		name    string
		from    string // "" is the first member by name
		members int
		dying   int
		streams int64
	}{
		{"a single member", "leader", 1, 1, 1},
		{"the second breaks off too", "leader", 3, 3, 2},
		{"named", "", 3, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			fakes, urls := three(t)
			streams := make(chan struct{}, 10)
			for _, fake := range fakes[:test.dying] {
				fake.snapshot = func(s pb.Maintenance_SnapshotServer) error {
					streams <- struct{}{}
					return dies(s)
				}
			}
			if test.members == 1 {
				fakes[0].members = fakes[0].members[:1]
				urls = urls[:1]
			}
			r, _ := request(t)
			r.From = test.from
			if r.From == "" {
				r.From = urls[0]
			}
			bucket := mem.New()
			_, err := backup.Run(t.Context(), at(urls...), only(open(t, bucket)), r)
			if err == nil || !strings.Contains(err.Error(), "read the snapshot of http://") {
				t.Errorf("error %v", err)
			}
			if errors.Is(err, fault.Refused) || errors.Is(err, cluster.ErrSilent) {
				t.Errorf("the cause is hidden: %v", err)
			}
			n := int64(len(streams))
			if n != test.streams {
				t.Errorf("%d streams, want %d", n, test.streams)
			}
			all := objects(t, bucket)
			if len(all) != 0 {
				t.Errorf("%d objects stay", len(all))
			}
		})
	}
}

// TestRunBlamesNoMemberForAStore checks that no other member is tried after the error of a store or the end of the
// caller's time.
func TestRunBlamesNoMemberForAStore(t *testing.T) {
	fakes, urls := three(t)
	faults := storagetest.Faulty(mem.New())
	faults.On(storagetest.VerbPut).Nth(1).Cut(100, errStore)
	r, _ := request(t)
	_, err := backup.Run(t.Context(), at(urls...), only(open(t, faults)), r)
	if !errors.Is(err, errStore) {
		t.Errorf("error %v", err)
	}
	n := fakes[1].statuses.Load() + fakes[2].statuses.Load()
	if n != 2 {
		t.Errorf("the other members were asked %d times, want once each", n)
	}
}
