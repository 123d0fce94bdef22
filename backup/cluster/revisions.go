package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// place is a position of the log and the revision of a member's key space right after it.
type place struct {
	server   *Server
	position uint64
	revision int64
}

// placeTries is how often a member is asked for a place: a busy one is rarely still.
const placeTries = 3

// RevisionsDiffer says how the answering members' revisions contradict each other, "" if they do not. It costs a few calls of
// Status, and finds members that have not applied the same requests; what differs at equal revisions only Compare finds.
func (c *Cluster) RevisionsDiffer(ctx context.Context) string {
	var all []place
	for _, s := range c.Servers {
		for range placeTries {
			if p, ok := s.place(ctx); ok {
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.position, b.position) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			// Behind a place each request makes one revision at most.
			if b.revision < a.revision || b.revision > a.revision+int64(b.position-a.position) {
				return fmt.Sprintf("%s is at revision %d at position %d of the log, %s at revision %d at position %d",
					a.server.ID(), a.revision, a.position, b.server.ID(), b.revision, b.position)
			}
		}
	}
	return ""
}

// place takes two Status calls. A server reads its revision first, then what is committed, then what is applied
// (etcdserver/api/v3rpc, Status): so if the second call's committed index is the first's applied one, the second's revision is
// exactly that after this index. ok is false if it is not, or if the member does not answer.
func (s *Server) place(ctx context.Context) (p place, ok bool) {
	first, err := s.Now(ctx)
	if err != nil {
		return place{}, false
	}
	second, err := s.Now(ctx)
	if err != nil || second.RaftIndex != first.RaftAppliedIndex || second.RaftIndex == 0 {
		return place{}, false
	}
	return place{s, second.RaftIndex, second.Header.Revision}, true
}
