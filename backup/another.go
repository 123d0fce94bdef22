package backup

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// memberError is an error of the member that is read, not of a store or the caller. Another member may succeed.
type memberError struct {
	id  uint64
	err error
}

func (e *memberError) Error() string { return e.err.Error() }
func (e *memberError) Unwrap() error { return e.err }

// blame returns err, which came from the member, as a memberError. If ctx has ended, err may not be the member's fault, so
// blame returns it unchanged.
func (r *run) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &memberError{r.member.MemberID, err}
}

// memberStream passes on a member's stream, and turns read errors into memberErrors.
type memberStream struct {
	run  *run
	ctx  context.Context // of the stream
	from io.Reader
}

func (b *memberStream) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil && err != io.EOF {
		err = b.run.blame(b.ctx, err)
	}
	return n, err
}

// errNoOther means that no member is left to read besides the one that failed.
var errNoOther = errors.New("no other member can be read")

// mayChoose reports whether r leaves the choice of the member to Run.
func (r Request) mayChoose() bool {
	return slices.Contains([]string{"leader", "follower", "any"}, r.From)
}

// connect connects to the cluster's members, except the one that failed.
func (r Request) connect(ctx context.Context, cfg cluster.Config) (*cluster.Cluster, error) {
	c, err := cluster.Connect(ctx, cfg)
	switch {
	case r.failed == nil:
	case errors.Is(err, cluster.ErrSilent):
		err = errors.Join(errNoOther, err)
	case err == nil:
		c.Drop(r.failed.id)
	}
	return c, err
}

// choose returns the member to read.
func (r Request) choose(c *cluster.Cluster) (*cluster.Server, error) {
	member, err := choose(c, r.From)
	if err != nil && r.failed != nil {
		err = errors.Join(errNoOther, err)
	}
	return member, err
}
