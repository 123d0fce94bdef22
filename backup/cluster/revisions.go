package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// place is a position of the log and the revision of a member's key space directly after it.
type place struct {
	server   *Server
	position uint64
	revision int64
}

// placeTries is how often each member's place is requested: on a busy member a try rarely succeeds.
const placeTries = 3

// Agreement is the result of comparing the members' key spaces.
type Agreement struct {
	Difference string // in words; "" if none was found
	Equal      bool   // every member answers and was compared, and all are equal
}

// CompareRevisions compares the revisions of the answering members: at the same position of the log they must be equal.
// It makes a few calls of Status, and finds members that have applied different requests. Only Compare finds different
// key spaces at equal revisions.
func (c *Cluster) CompareRevisions(ctx context.Context) Agreement {
	var all []place
	for range placeTries {
		all = append(all, c.places(ctx)...)
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.position, b.position) })
	equal := false
	for i, a := range all {
		together := map[*Server]bool{}
		for _, b := range all[i:] {
			// Each position between a and b adds 0 or 1 to the revision.
			if b.revision < a.revision || b.revision > a.revision+int64(b.position-a.position) {
				return Agreement{Difference: fmt.Sprintf("%s is at revision %d at position %d of the log, %s at revision %d at position %d",
					a.server.ID(), a.revision, a.position, b.server.ID(), b.revision, b.position)}
			}
			if b.position == a.position {
				together[b.server] = true
			}
		}
		equal = equal || len(together) == len(c.Servers)
	}
	return Agreement{Equal: equal && c.complete()}
}

// complete reports whether every member that has ever been started answers.
func (c *Cluster) complete() bool {
	missing := slices.ContainsFunc(c.Members, func(m catalog.Member) bool { return len(m.ClientURLs) > 0 && !c.answered(m.ID) })
	return len(c.Silent) == 0 && len(c.Members) > 0 && !missing
}

// places returns the members' places. It queries all at once: with few writes they are then usually at one position.
func (c *Cluster) places(ctx context.Context) []place {
	found := make([]place, len(c.Servers))
	var asking sync.WaitGroup
	for i, s := range c.Servers {
		asking.Go(func() { found[i], _ = s.place(ctx) })
	}
	asking.Wait()
	return slices.DeleteFunc(found, func(p place) bool { return p.server == nil })
}

// place returns the member's place, from two Status calls. A server reads its revision first, then the committed index,
// then the applied index (etcdserver/api/v3rpc, Status). So if the second call's committed index equals the first
// call's applied index, the second call's revision is exactly the one after this index. ok is false if they are not
// equal, or the member does not answer.
func (s *Server) place(ctx context.Context) (p place, ok bool) {
	first, err := s.Now(ctx)
	if err != nil {
		return place{}, false
	}
	second, err := s.Now(ctx)
	if err != nil || second.RaftIndex != first.RaftAppliedIndex || second.RaftIndex == 0 {
		return place{}, false
	}
	return place{server: s, position: second.RaftIndex, revision: second.Header.Revision}, true
}
