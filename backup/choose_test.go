package backup

import (
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// member returns a server with this status: its id, the leader's id, its applied index, and whether it reaches the
// leader.
func member(id, leader, applied uint64, reaches bool) *cluster.Server {
	return &cluster.Server{
		Endpoint: endpointOf(id), MemberID: id, ReachesLeader: reaches,
		Status: &pb.StatusResponse{Leader: leader, RaftTerm: 5, RaftAppliedIndex: applied},
	}
}

func endpointOf(id uint64) string { return "http://m" + string(rune('0'+id)) }

func learner(id, leader, applied uint64) *cluster.Server {
	s := member(id, leader, applied, false)
	s.Status.IsLearner = true
	return s
}

func inTerm(term uint64, s *cluster.Server) *cluster.Server {
	s.Status.RaftTerm = term
	return s
}

func alias(s *cluster.Server, endpoint string) *cluster.Server {
	s.Aliases = append(s.Aliases, endpoint)
	return s
}

func TestChoose(t *testing.T) {
	errDown := errors.New("connection refused")
	healthy := []*cluster.Server{member(1, 2, 90, true), member(2, 2, 99, true), member(3, 2, 95, true)}
	noQuorum := []*cluster.Server{member(1, 0, 90, false), member(3, 0, 95, false)}
	for _, test := range []struct {
		name    string
		from    string
		servers []*cluster.Server
		want    uint64 // 0: an error
		err     error
		word    string
	}{
		{"the leader", "leader", healthy, 2, nil, ""},
		{"the leader, though another has got further", "leader",
			[]*cluster.Server{member(1, 1, 90, true), member(2, 1, 99, true)}, 1, nil, ""},
		{"a leader that is cut off is none", "leader",
			[]*cluster.Server{member(1, 1, 99, false), inTerm(6, member(2, 3, 90, true))}, 2, nil, ""},
		{"the leader is silent", "leader",
			[]*cluster.Server{member(1, 2, 90, true), member(3, 2, 95, true)}, 3, nil, ""},
		{"no quorum: the furthest", "leader", noQuorum, 3, nil, ""},
		{"no quorum: the later term goes before the higher index", "leader",
			[]*cluster.Server{inTerm(7, member(1, 0, 90, false)), member(3, 0, 95, false)}, 1, nil, ""},
		{"only a learner", "leader", []*cluster.Server{learner(4, 2, 99)}, 0, fault.Refused, "only learners"},
		{"a learner is not chosen", "leader", []*cluster.Server{learner(1, 9, 99), member(3, 9, 5, false)}, 3, nil, ""},

		{"the furthest follower", "follower", healthy, 3, nil, ""},
		{"a follower that is cut off is unhealthy", "follower",
			[]*cluster.Server{member(1, 2, 90, true), member(2, 2, 99, true), member(3, 2, 95, false)}, 1, nil, ""},
		{"no follower", "follower", []*cluster.Server{member(2, 2, 99, true)}, 0, fault.Refused, "--from any"},
		{"the only follower is cut off", "follower",
			[]*cluster.Server{member(1, 2, 90, false), member(2, 2, 99, true)}, 0, fault.Refused, "--from leader"},
		{"a learner is no follower", "follower",
			[]*cluster.Server{member(2, 2, 99, true), learner(4, 2, 99)}, 0, fault.Refused, ""},
		{"no quorum: any is a follower", "follower", noQuorum, 3, nil, ""},

		{"any: the furthest", "any", healthy, 2, nil, ""},
		{"any: not one that is cut off", "any",
			[]*cluster.Server{member(1, 2, 90, true), inTerm(9, member(3, 0, 95, false))}, 1, nil, ""},
		{"any: never a learner", "any", []*cluster.Server{learner(1, 2, 99), member(2, 2, 5, true)}, 2, nil, ""},
		{"any: only learners", "any", []*cluster.Server{learner(1, 2, 99)}, 0, fault.Refused, "--endpoints"},

		{"named", "http://m1", healthy, 1, nil, ""},
		{"named by another of its endpoints", "localhost:1",
			[]*cluster.Server{alias(member(1, 2, 90, true), "localhost:1"), healthy[1]}, 1, nil, ""},
		{"named, cut off", "http://m3", []*cluster.Server{member(1, 1, 90, true), member(3, 0, 5, false)}, 3, nil, ""},
		{"a learner by name", "http://m4",
			[]*cluster.Server{healthy[1], learner(4, 2, 99)}, 0, fault.Refused, "http://m4 is a learner"},
		{"a silent one by name", "http://m9", healthy, 0, errDown, "http://m9 does not answer"},
		{"an unknown one", "http://m8", healthy, 0, cluster.ErrConfig, "--from http://m8"},
		{"nothing", "", healthy, 0, cluster.ErrConfig, "--from"},
		{"a word of no use", "Leader", healthy, 0, cluster.ErrConfig, "leader, follower, any"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &cluster.Cluster{Servers: test.servers, Silent: []cluster.Silence{{Endpoint: "http://m9", Err: errDown}}}
			for _, s := range test.servers {
				c.Quorum = c.Quorum || s.ReachesLeader
			}
			got, err := choose(c, test.from)
			if test.want != 0 {
				if err != nil || got.MemberID != test.want {
					t.Errorf("got %+v, %v; want member %d", got, err, test.want)
				}
				return
			}
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.word) {
				t.Errorf("error %v, want %q and %v", err, test.word, test.err)
			}
		})
	}
}

func TestWarnOf(t *testing.T) {
	leader, follower, cutOff := member(2, 2, 99, true), member(1, 2, 90, true), member(3, 0, 5, false)
	for _, test := range []struct {
		name     string
		cluster  *cluster.Cluster
		chosen   *cluster.Server
		from     string
		warnings []string
	}{
		{"all is well", &cluster.Cluster{Servers: []*cluster.Server{follower, leader}, Quorum: true}, leader, "leader", nil},
		{"a silent one", &cluster.Cluster{
			Servers: []*cluster.Server{leader}, Quorum: true,
			Silent: []cluster.Silence{{Endpoint: "http://m9", Err: errors.New("connection refused")}},
		}, leader, "leader", []string{"http://m9 does not answer: connection refused"}},
		{"no quorum", &cluster.Cluster{Servers: []*cluster.Server{cutOff}}, cutOff, "leader", []string{"no quorum"}},
		{"cut off", &cluster.Cluster{Servers: []*cluster.Server{leader, cutOff}, Quorum: true}, cutOff, "http://m3",
			[]string{"cut off"}},
		{"no leader", &cluster.Cluster{Servers: []*cluster.Server{follower}, Quorum: true}, follower, "leader",
			[]string{"leader does not answer"}},
		{"no leader, none wanted", &cluster.Cluster{Servers: []*cluster.Server{follower}, Quorum: true}, follower, "any",
			nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			warnAbout(test.cluster, test.chosen, test.from, func(e storage.Event) {
				if e.Level == storage.Warning {
					got = append(got, e.Message)
				}
			})
			for i, want := range test.warnings {
				if len(got) != len(test.warnings) || !strings.Contains(got[i], want) {
					t.Fatalf("warnings %q, want %q", got, test.warnings)
				}
			}
			if len(got) != len(test.warnings) {
				t.Errorf("warnings %q, want %q", got, test.warnings)
			}
		})
	}
}
