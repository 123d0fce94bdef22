package backup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

type answer = func(call int64) (*pb.HashKVResponse, error)

func hashing(hash uint32, compacted int64) answer {
	return func(int64) (*pb.HashKVResponse, error) {
		return &pb.HashKVResponse{Header: &pb.ResponseHeader{}, Hash: hash, CompactRevision: compacted}, nil
	}
}

func failingHash(text string) answer {
	return func(int64) (*pb.HashKVResponse, error) { return nil, status.Error(codes.Unknown, text) }
}

// first returns some for the first n calls and then others.
func first(n int64, some, others answer) answer {
	return func(call int64) (*pb.HashKVResponse, error) {
		if call <= n {
			return some(call)
		}
		return others(call)
	}
}

func refusing(err error) answer {
	return func(int64) (*pb.HashKVResponse, error) { return nil, err }
}

// three starts one cluster's members and returns their client URLs; the first leads.
func three(t *testing.T) (fakes [3]*fakeMember, urls []string) {
	t.Helper()
	for i := range fakes {
		fakes[i] = &fakeMember{clusterID: 9, memberID: uint64(i + 1)}
		urls = append(urls, fakes[i].serve(t))
	}
	for i := range fakes {
		for j, url := range urls {
			fakes[i].members = append(fakes[i].members, &pb.Member{ID: uint64(j + 1), ClientURLs: []string{url}})
		}
	}
	return fakes, urls
}

func TestCompareMembers(t *testing.T) {
	t.Parallel()
	same, other := hashing(0xaa, 3), hashing(0xbb, 3)
	compacted := refusing(rpctypes.ErrGRPCCompacted)
	for _, test := range []struct {
		name     string
		answers  [3]answer
		diverged []string // words of the mark; nil: none
		warnings []string
	}{
		{"alike", [3]answer{same, same, same}, nil, nil},
		{"one differs", [3]answer{same, other, same},
			[]string{"revision 7", "1 has 000000aa", "2 has 000000bb", "3 has 000000aa"}, nil},
		{"one is dumb", [3]answer{same, same, failingHash("disk on fire")}, nil, []string{"not compared: "}},
		{"one is dumb and one differs", [3]answer{same, failingHash("disk on fire"), other},
			[]string{"1 has 000000aa", "3 has 000000bb"}, []string{"not compared: "}},
		{"a compaction in between",
			[3]answer{same, first(1, hashing(0xbb, 5), same), first(1, hashing(0xbb, 5), same)}, nil, nil},
		{"a compaction in between hides nothing",
			[3]answer{same, first(1, hashing(0xaa, 5), same), first(1, hashing(0xbb, 5), other)},
			[]string{"3 has 000000bb"}, nil},
		{"a compaction past the revision", [3]answer{same, first(1, compacted, same), first(1, compacted, same)}, nil, nil},
		{"a compaction past the revision hides nothing",
			[3]answer{same, first(1, compacted, other), same}, []string{"2 has 000000bb"}, nil},
		{"one catches up", [3]answer{same, first(3, refusing(rpctypes.ErrGRPCFutureRev), same), same}, nil, nil},
		{"one catches up and differs", [3]answer{same, first(3, refusing(rpctypes.ErrGRPCFutureRev), other), same},
			[]string{"2 has 000000bb"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fakes, urls := three(t)
			for i, fake := range fakes {
				fake.hashKV = test.answers[i]
			}
			to, l := open(t, mem.New()), &listener{}
			r, _ := request(t)
			r.CompareMembers, r.NoHash = true, true
			result, err := backup.Run(t.Context(), at(urls[0]), only(to), reporting(r, l.report))
			if errors.Is(err, backup.ErrDiverged) != (test.diverged != nil) || err != nil && test.diverged == nil {
				t.Errorf("error %v", err)
			}
			dumb := strings.Contains(test.name, "dumb")
			if result.Compared == dumb {
				t.Errorf("compared: %t", result.Compared)
			}
			if (result.Diverged != "") != (test.diverged != nil) {
				t.Errorf("diverged %q", result.Diverged)
			}
			for _, word := range test.diverged {
				if !strings.Contains(result.Diverged, word) || !strings.Contains(err.Error(), word) {
					t.Errorf("diverged %q, error %v; want %q", result.Diverged, err, word)
				}
			}
			l.wantWarnings(t, test.warnings...)
			got := listed(t, to)
			if len(got) != 1 || got[0] != result.ID {
				t.Errorf("listed %v, want %s", got, result.ID)
			}
		})
	}
}

// TestCompareMembersAfterTheMemberWent checks that a member which fails after the snapshot is complete does not end the
// backup.
func TestCompareMembersAfterTheMemberWent(t *testing.T) {
	t.Parallel()
	fakes, urls := three(t)
	fakes[0].status = func(call int64) error {
		if call <= 4 { // Connect's, two before the stream and the one at its beginning
			return nil
		}
		return status.Error(codes.Unavailable, "gone")
	}
	to, l := open(t, mem.New()), &listener{}
	r, _ := request(t)
	r.CompareMembers = true
	mustRun(t, at(urls[0]), to, r, l)
	l.wantWarnings(t, "could not be compared: ask "+urls[0])
}

// TestCompareMembersCancelled checks that the end of ctx is no divergence, and that Run does not wait for members then.
func TestCompareMembersCancelled(t *testing.T) {
	t.Parallel()
	for name, never := range map[string]answer{
		"a member that never catches up": refusing(rpctypes.ErrGRPCFutureRev),
		"compactions without an end":     refusing(rpctypes.ErrGRPCCompacted),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fakes, urls := three(t)
			fakes[2].hashKV = never
			to := open(t, mem.New())
			r, _ := request(t)
			r.CompareMembers = true
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			enough, compares := errors.New("enough"), 0
			l := &listener{hear: func(_ int, e storage.Event) {
				if e.Stage == "compare" {
					compares++
					if compares == 3 {
						cancel(enough)
					}
				}
			}}
			_, err := backup.Run(ctx, at(urls[0]), only(to), reporting(r, l.report))
			if !errors.Is(err, enough) {
				t.Errorf("error %v", err)
			}
			wantNothing(t, to)
		})
	}
}

func TestCompareMembersIsNotTheDefault(t *testing.T) {
	t.Parallel()
	fakes, urls := three(t)
	fakes[1].hashKV = hashing(0xbb, 3)
	r, _ := request(t)
	l := &listener{}
	mustRun(t, at(urls[0]), open(t, mem.New()), r, l)
	asked := []int64{fakes[0].hashes.Load(), fakes[1].hashes.Load(), fakes[2].hashes.Load()}
	if !slices.Equal(asked, []int64{1, 0, 0}) {
		t.Errorf("hashes asked of the members: %v", asked)
	}
}
