package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Server is one member that answers.
type Server struct {
	Endpoint      string
	Aliases       []string // further endpoints of the same member
	MemberID      uint64
	Status        *pb.StatusResponse // as of Connect
	ReachesLeader bool               // a linearizable read through it succeeded, so it is not cut off

	config   Config
	client   *clientv3.Client
	remote   pb.MaintenanceClient
	timeout  time.Duration // Config.CommandTimeout
	noAccess bool          // a read was refused, so authentication is enabled
}

func connect(ctx context.Context, cfg Config, endpoint string) (*Server, error) {
	conf, err := cfg.client(endpoint)
	if err != nil {
		return nil, err
	}
	conf.Context = ctx
	var tried handshakes
	if cfg.encrypts(endpoint) {
		tried = newHandshakes(conf.TLS, cfg.tls)
		conf.DialOptions = append(conf.DialOptions, grpc.WithTransportCredentials(tried))
	}
	client, err := clientv3.New(conf)
	if err != nil && tried.err() != nil {
		return nil, cfg.statusFailed(endpoint, tried.err())
	}
	if err != nil {
		return nil, cfg.loginFailed(ctx, endpoint, err)
	}
	s := &Server{
		Endpoint: endpoint, config: cfg, client: client, remote: pb.NewMaintenanceClient(client.ActiveConnection()), timeout: cfg.CommandTimeout,
	}
	dial, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	s.Status, err = s.remote.Status(dial, &pb.StatusRequest{})
	if err != nil {
		client.Close()
		if status.Code(err) == codes.DeadlineExceeded {
			err = cmp.Or(tried.err(), err)
		}
		return nil, cfg.statusFailed(endpoint, err)
	}
	s.MemberID = s.Status.Header.MemberId
	return s, nil
}

// loginFailed returns the reason of a failed login. etcd's client retries until its deadline and then discards the reason, so
// loginFailed connects again without a login.
func (c Config) loginFailed(ctx context.Context, endpoint string, err error) error {
	// If the server's deadline passes before the client's, the error is the server's. A 3.4 server sends it without a code.
	late := strings.Contains(err.Error(), context.DeadlineExceeded.Error()) || errors.Is(err, rpctypes.ErrTimeout)
	if c.User == "" || !late {
		return c.withRemedy(endpoint, explain(err))
	}
	c.User, c.Password = "", ""
	s, connectErr := connect(ctx, c, endpoint)
	if connectErr != nil && !errors.Is(connectErr, errUsers) { // newer servers refuse their status without a login
		return connectErr
	}
	if s != nil {
		s.client.Close()
	}
	return fmt.Errorf("it answers, but every login fails: etcd cannot check passwords without a quorum; "+
		"use a client certificate (--cert, --key) whose CN is a user with the role root: %w", err)
}

// statusFailed returns the error with its remedy if a member's status could not be read.
func (c Config) statusFailed(endpoint string, err error) error {
	return c.withRemedy(endpoint, explain(err))
}

// errUsers means that authentication is enabled, but the request was made without a login.
var errUsers = errors.New("etcd requires authentication: pass --user, or a client certificate whose CN is a user")

// explain returns err with the remedy if a login is wrong, and shortens gRPC's errors.
func explain(err error) error {
	err = withCode(err)
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("etcd refuses this user and password: %w", err)
	case rpctypes.Error(err) == rpctypes.ErrUserEmpty:
		return errUsers
	case rpctypes.Error(err) == rpctypes.ErrPermissionDenied:
		return fmt.Errorf("etcd refuses this user, who needs the role root (etcdctl user grant-role USER root): %w",
			rpctypes.ErrPermissionDenied)
	}
	s, ok := status.FromError(err)
	if ok && s.Code() == codes.Unavailable {
		return errors.New(grpcWrapping.Replace(s.Message()))
	}
	return err
}

// grpcWrapping removes gRPC's wrapping from an error message.
var grpcWrapping = strings.NewReplacer("connection error: desc = \"transport: ", "", "Error while dialing: ", "", "\"", "")

// ID returns the member's id as etcdctl prints it.
func (s *Server) ID() string { return memberID(s.MemberID) }

func memberID(id uint64) string { return fmt.Sprintf("%x", id) }

func (s *Server) members(ctx context.Context) ([]catalog.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.client.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, explain(err)
	}
	return membersOf(answer.Members), nil
}

func membersOf(list []*pb.Member) []catalog.Member {
	members := make([]catalog.Member, len(list))
	for i, m := range list {
		members[i] = catalog.Member{
			ID: memberID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner,
		}
	}
	return members
}

// Confirm makes a read that the leader confirms. If it returns nil, this member has committed every write that was
// acknowledged to a client before the call. Learners never confirm.
func (s *Server) Confirm(ctx context.Context) error {
	answered, _ := s.linearizable(ctx)
	if answered {
		return nil
	}
	cause := context.Cause(ctx)
	if cause != nil {
		return cause
	}
	return fmt.Errorf("%w: no leader confirms a read through %s: check its peers' network, or use another endpoint", ErrCutOff, s.Endpoint)
}

// ErrCutOff means that the member answers, but does not reach its leader.
var ErrCutOff = fault.New(fault.Unreachable, "the member is cut off")

// kubernetesPrefix begins all keys of Kubernetes. A user may have the right to read only those.
const kubernetesPrefix = "/registry/"

// linearizable reports whether a linearizable read gets an answer from this member. A refusal is an answer too.
func (s *Server) linearizable(ctx context.Context) (answered, refused bool) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.client.Get(ctx, kubernetesPrefix, clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	refused = errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
	return err == nil || refused, refused
}

func (s *Server) alarms(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.remote.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	if err != nil {
		return nil, fmt.Errorf("list alarms at %s: %w", s.Endpoint, explain(err))
	}
	var names []string
	for _, alarm := range answer.Alarms {
		names = append(names, alarm.Alarm.String())
	}
	return sorted(names), nil
}

// Now returns the member's current status.
func (s *Server) Now(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.remote.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s for its status: %w", s.Endpoint, reason(ctx, err))
	}
	return answer, nil
}

// hashTimeout bounds one HashKV: the member reads its whole database, possibly from disk.
const hashTimeout = 5 * time.Minute

// HashKV returns the member's hash of its key space at revision; 0 means the newest one. Hashing stalls the member's
// writes, for about 0.8 s per million entries and 160 ms per cached GB. The error matches ErrFuture if the member has not reached the revision,
// and ErrCompacted if it has compacted it.
func (s *Server) HashKV(ctx context.Context, revision int64) (catalog.HashKV, error) {
	ctx, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	answer, err := s.remote.HashKV(ctx, &pb.HashKVRequest{Revision: revision})
	if err != nil {
		switch rpctypes.Error(err) {
		case rpctypes.ErrFutureRev:
			err = ErrFuture
		case rpctypes.ErrCompacted:
			err = ErrCompacted
		}
		return catalog.HashKV{}, fmt.Errorf("hash the key space of %s at revision %d: %w", s.Endpoint, revision, explain(err))
	}
	return catalog.HashKV{Revision: revision, CompactRevision: answer.CompactRevision, Hash: answer.Hash}, nil
}

// HashLimit limits the estimated time for which a HashKV may stall a member's writes.
type HashLimit struct {
	Stall   time.Duration   // 0: HashStall
	Density catalog.Density // of the cluster's newest backup; zero: the estimate assumes the smallest entries
}

// HashStall is the default of HashLimit.Stall.
const HashStall = 500 * time.Millisecond

// The cost of a HashKV, measured with etcd 3.7, and the sizes of entries that an estimate assumes.
const (
	stallOfEntry  = 800e-9 // seconds
	stallOfByte   = 160e-12
	smallestEntry = 40   // bytes
	largestMean   = 4000 // bytes: a false manifest cannot make a large member look cheap
)

// estimate returns how long a HashKV is expected to stall a member with inUse bytes in use, and the expected number of its entries.
func (l HashLimit) estimate(inUse int64) (stall time.Duration, entries int64) {
	n := float64(inUse) / smallestEntry
	if l.Density.Bytes > 0 {
		n = max(float64(l.Density.Entries)/float64(l.Density.Bytes), 1./largestMean) * float64(inUse)
	}
	seconds := n*stallOfEntry + float64(inUse)*stallOfByte
	const most = 1e9 // caps the seconds, and its square the entries, so that both fit into an int64
	return time.Duration(min(seconds, most) * float64(time.Second)), int64(min(n, most*most))
}

// check returns an error that matches ErrTooLarge if a database with inUse bytes in use exceeds l.
func (l HashLimit) check(inUse int64) error {
	stall, entries := l.estimate(inUse)
	most := cmp.Or(l.Stall, HashStall)
	if stall <= most {
		return nil
	}
	long, size := stall.Round(100*time.Millisecond), humanize.IBytes(uint64(inUse))
	if l.Density.Bytes == 0 {
		return fmt.Errorf("%w: up to %s, since the number of entries in %s is not known yet, --hash-max is %s", ErrTooLarge, long, size, most)
	}
	return fmt.Errorf("%w: about %s for about %s entries in %s, --hash-max is %s",
		ErrTooLarge, long, humanize.SIWithDigits(float64(entries), 1, ""), size, most)
}

// HashKVWithin calls HashKV, unless the estimate for the member's current status exceeds l: then it sends no request, and the error matches
// ErrTooLarge.
func (s *Server) HashKVWithin(ctx context.Context, revision int64, current *pb.StatusResponse, l HashLimit) (catalog.HashKV, error) {
	err := l.check(current.DbSizeInUse)
	if err != nil {
		return catalog.HashKV{}, err
	}
	return s.HashKV(ctx, revision)
}

// Errors of HashKV, to be matched with errors.Is.
var (
	// ErrTooLarge means that hashing would stall the member's writes for too long.
	ErrTooLarge = errors.New("hashing would stall the member's writes for too long")
	// ErrFuture means that the member has not reached that revision yet.
	ErrFuture = errors.New("the member has not reached this revision yet")
	// ErrCompacted means that a compaction has removed that revision.
	ErrCompacted = errors.New("this revision is compacted")
)

// AuthEnabled reports whether authentication is enabled. It needs a quorum; if the value is true, it is valid even with an error.
// Servers before 3.5 reveal it only in the answer to a login.
func (s *Server) AuthEnabled(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.client.AuthStatus(ctx)
	if err == nil {
		return answer.Enabled, nil
	}
	if status.Code(err) == codes.Unimplemented {
		_, err = s.client.Authenticate(ctx, "", "") // refused before anything is proposed to the cluster
		if errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			return false, nil
		}
		if errors.Is(err, rpctypes.ErrAuthFailed) {
			return true, nil
		}
	}
	return s.noAccess, fmt.Errorf("ask %s whether authentication is enabled: %w", s.Endpoint, explain(err))
}
