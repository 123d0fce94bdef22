package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrSilent means that no member answers.
	ErrSilent = fault.New(fault.Unreachable, "no member of the cluster answers")
	// ErrMixed means that the endpoints belong to more than one cluster.
	ErrMixed = fault.New(fault.Usage, "the endpoints belong to different clusters")
)

// Cluster is the state of a live cluster at one moment, as its answering members reported it.
type Cluster struct {
	ID      uint64
	Servers []*Server        // those that answer, in the order of their member ids
	Silent  []Silence        // endpoints and members that do not answer
	Members []catalog.Member // all, according to one answering member
	Quorum  bool             // a linearizable read succeeded
}

// Silence is an endpoint that does not answer, and the reason.
type Silence struct {
	Endpoint string
	Err      error
}

// Connect connects to all endpoints at once, and then to all other members that these know. It succeeds if at least one
// answers. The caller must call Close.
func Connect(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{}
	c.connectAll(ctx, cfg, cfg.Endpoints)
	if len(c.Servers) == 0 {
		return nil, c.allSilent(ctx)
	}
	err := c.identify()
	if err != nil {
		c.Close()
		return nil, err
	}
	err = c.listMembers(ctx)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.connectAll(ctx, cfg, c.otherURLs(cfg))
	c.dropForeignServers()
	c.probeQuorum(ctx)
	return c, nil
}

// Close ends all connections.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.client.Close()
	}
}

// Leader returns the member that is the leader, or nil if it does not answer or there is none.
func (c *Cluster) Leader() *Server {
	for _, s := range c.Servers {
		if s.ReachesLeader && s.Status.Leader == s.MemberID {
			return s
		}
	}
	return nil
}

// connectAll connects to the endpoints concurrently. Several endpoints of one member become one Server with Aliases.
func (c *Cluster) connectAll(ctx context.Context, cfg Config, endpoints []string) {
	servers, errs := make([]*Server, len(endpoints)), make([]error, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() { servers[i], errs[i] = connect(ctx, cfg, endpoint) })
	}
	wg.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			c.Silent = append(c.Silent, Silence{Endpoint: endpoints[i], Err: errs[i]})
			continue
		}
		known := slices.IndexFunc(c.Servers, func(known *Server) bool {
			return known.MemberID == s.MemberID && known.Status.Header.ClusterId == s.Status.Header.ClusterId
		})
		if known < 0 {
			c.Servers = append(c.Servers, s)
			continue
		}
		c.Servers[known].Aliases = append(c.Servers[known].Aliases, s.Endpoint)
		s.client.Close()
	}
	slices.SortFunc(c.Servers, func(a, b *Server) int { return cmp.Compare(a.MemberID, b.MemberID) })
}

// SilentError is the error of Connect if no endpoint answers. It matches ErrSilent.
type SilentError struct{ Endpoints []Silence }

func (e *SilentError) Error() string {
	var why []string
	for _, s := range e.Endpoints {
		why = append(why, fmt.Sprintf("%s: %v", s.Endpoint, s.Err))
	}
	return fmt.Sprintf("%v: %s: name running members with --endpoints or ETCDCTL_ENDPOINTS", ErrSilent, strings.Join(why, "; "))
}

// Unwrap makes e match ErrSilent.
func (e *SilentError) Unwrap() error { return ErrSilent }

// allSilent returns the error of Connect if no endpoint answers.
func (c *Cluster) allSilent(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause != nil { // the members had no time to answer
		return fmt.Errorf("connect to the cluster: %w", cause)
	}
	return &SilentError{c.Silent}
}

// identify sets ID. It returns ErrMixed if the servers do not all belong to one cluster.
func (c *Cluster) identify() error {
	c.ID = c.Servers[0].Status.Header.ClusterId
	for _, s := range c.Servers {
		if s.Status.Header.ClusterId != c.ID {
			return fmt.Errorf("%w: %s is of cluster %016x, %s of cluster %016x: name members of one cluster with --endpoints",
				ErrMixed, c.Servers[0].Endpoint, c.ID, s.Endpoint, s.Status.Header.ClusterId)
		}
	}
	return nil
}

// listMembers requests the member list without linearizability, because it must work without a quorum. Learners do not
// return the list. If only learners answer, Members stays empty.
func (c *Cluster) listMembers(ctx context.Context) (err error) {
	for _, s := range c.Servers {
		if s.Status.IsLearner {
			continue
		}
		c.Members, err = s.members(ctx)
		if err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("list the members: %w", err)
	}
	return nil
}

// otherURLs returns the client URLs of the members that have not answered yet. If a configured endpoint is encrypted,
// it omits plain URLs: credentials must not be sent there.
func (c *Cluster) otherURLs(cfg Config) []string {
	given, secure := cfg.Endpoints, slices.ContainsFunc(cfg.Endpoints, cfg.encrypts)
	var urls []string
	for _, m := range c.Members {
		if c.answered(m.ID) {
			continue
		}
		for _, url := range m.ClientURLs {
			if !slices.Contains(given, url) && (!secure || strings.HasPrefix(url, "https://")) {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

func (c *Cluster) answered(memberID string) bool {
	return slices.ContainsFunc(c.Servers, func(s *Server) bool { return s.ID() == memberID })
}

// Drop closes the connection to a member and removes it from Servers.
func (c *Cluster) Drop(memberID uint64) {
	c.Servers = slices.DeleteFunc(c.Servers, func(s *Server) bool {
		if s.MemberID != memberID {
			return false
		}
		s.client.Close()
		return true
	})
}

// dropForeignServers drops servers that answer under a member's URL but belong to another cluster. A remote member with the
// default URL 127.0.0.1 leads to a server on this machine.
func (c *Cluster) dropForeignServers() {
	c.Servers = slices.DeleteFunc(c.Servers, func(s *Server) bool {
		stranger := s.Status.Header.ClusterId != c.ID
		if stranger {
			s.client.Close()
			err := fmt.Errorf("cluster %016x answers there", s.Status.Header.ClusterId)
			c.Silent = append(c.Silent, Silence{Endpoint: s.Endpoint, Err: err})
		}
		return stranger
	})
}

// probeQuorum makes a linearizable read through each member, and sets ReachesLeader where it succeeds, and Quorum if it
// succeeds anywhere. Status would not suffice: it may still name a leader that has failed. Learners serve no such reads.
func (c *Cluster) probeQuorum(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range c.Servers {
		if !s.Status.IsLearner {
			wg.Go(func() { s.ReachesLeader, s.noAccess = s.linearizable(ctx) })
		}
	}
	wg.Wait()
	for _, s := range c.Servers {
		c.Quorum = c.Quorum || s.ReachesLeader
	}
}

// Alarms returns the names of the alarms raised by any member, sorted. Without a quorum it returns those that the
// answering members report about themselves.
func (c *Cluster) Alarms(ctx context.Context) ([]string, error) {
	var names []string
	for _, s := range c.Servers {
		if !s.ReachesLeader {
			continue
		}
		alarms, err := s.alarms(ctx)
		if err != nil {
			return nil, err
		}
		return alarms, nil
	}
	for _, s := range c.Servers {
		for _, text := range s.Status.Errors {
			for _, name := range []string{pb.AlarmType_NOSPACE.String(), pb.AlarmType_CORRUPT.String()} {
				if strings.Contains(text, name) {
					names = append(names, name)
				}
			}
		}
	}
	return sorted(names), nil
}

// versions returns the versions of etcd that the answering members run, sorted.
func (c *Cluster) versions() []string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Status.Version)
	}
	return sorted(all)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
