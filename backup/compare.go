package backup

import (
	"context"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// compareMembers says how the members' key spaces differ; "" if they do not. Members that could not be compared are
// warned of. Only the end of ctx is an error: the snapshot is here and whole by now, and must not be lost because a
// member went away.
func (r *run) compareMembers(ctx context.Context) (string, error) {
	difference, skipped, err := r.cluster.Compare(ctx, r.member, cluster.Unlimited, r.report)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		r.warn("the members could not be compared: %v", err)
		return "", nil
	}
	for _, err := range skipped {
		r.warn("not compared: %v", err)
	}
	r.manifest.Compared = len(skipped)+len(r.cluster.Silent) == 0 && len(r.cluster.Servers) > 1
	return difference, nil
}
