package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// A watch shows the lease of a key, but not the lease's TTL. So the TTL is requested from the member and, if the lease
// has ended by then, guessed.
const (
	guessedTTL = 60 // seconds; used if the TTL was never known
	askers     = 16 // concurrent requests
	// maxLeases bounds the cache. Beyond it, TTLs are requested again.
	maxLeases = 100_000
)

// Leases caches the TTLs of leases.
type Leases struct {
	server *cluster.Server
	known  map[int64]lease
}

type lease struct {
	seconds int64     // the TTL
	guessed bool      // the lease had ended when the member was asked
	asked   time.Time // when the member answered
}

// NewLeases returns an empty cache of the TTLs that s reports.
func NewLeases(s *cluster.Server) *Leases { return &Leases{server: s, known: map[int64]lease{}} }

// grants are the lease grants that a batch needs, by lease id. Each is stored once per batch: a batch is never split over
// two segments, and each segment must contain the grants that its changes need.
type grants map[int64]grant

type grant struct {
	data    []byte
	guessed bool // the TTL
}

// grantsFor returns the grants of the leases that the changes use.
func (l *Leases) grantsFor(ctx context.Context, changes []change) (grants, error) {
	wanted := map[int64]bool{}
	for _, c := range changes {
		for _, id := range c.leases {
			wanted[id] = true
		}
	}
	err := l.query(ctx, wanted)
	if err != nil {
		return nil, err
	}
	found := make(grants, len(wanted))
	for id := range wanted {
		known := l.known[id]
		data, err := proto.Marshal(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: known.seconds}})
		if err != nil {
			return nil, fmt.Errorf("encode lease %x: %w", id, err)
		}
		found[id] = grant{data: data, guessed: known.guessed}
	}
	return found, nil
}

// query requests the wanted leases that are not cached, and those cached for longer than their TTL: such a lease may have
// ended, and another lease may have its id.
func (l *Leases) query(ctx context.Context, wanted map[int64]bool) error {
	if len(l.known) > maxLeases {
		clear(l.known)
	}
	now := time.Now()
	var ids []int64
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		known, ok := l.known[id]
		if !ok || now.Sub(known.asked) >= time.Duration(known.seconds)*time.Second {
			ids = append(ids, id)
		}
	}
	answers := make([]lease, len(ids))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(askers)
	for i, id := range ids {
		last := l.known[id].seconds
		asking.Go(func() (err error) {
			answers[i], err = l.queryLease(ctx, id, last)
			return err
		})
	}
	err := asking.Wait()
	if err != nil {
		return err
	}
	for i, id := range ids {
		l.known[id] = answers[i]
	}
	return nil
}

// queryLease requests the TTL of a lease. If the lease has ended, queryLease guesses: last, which is the last known TTL, or
// guessedTTL if last is 0.
func (l *Leases) queryLease(ctx context.Context, id, last int64) (lease, error) {
	seconds, ok, err := l.server.LeaseTTL(ctx, id)
	if err != nil {
		return lease{}, err
	}
	if !ok {
		seconds = max(last, 0)
		if seconds == 0 {
			seconds = guessedTTL
		}
	}
	return lease{seconds: seconds, guessed: !ok, asked: time.Now()}, nil
}

// pop returns a grant and removes it, and reports whether there was one.
func (g grants) pop(id int64) (grant, bool) {
	found, ok := g[id]
	delete(g, id)
	return found, ok
}

func (g grant) guesses() int {
	if g.guessed {
		return 1
	}
	return 0
}
