package backup

import (
	"context"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// compareMembers returns how the members' key spaces differ, or "" if they do not. It warns of members that could not
// be compared. If all were compared, it sets Compared in the manifest. It returns an error only if ctx has ended: the
// snapshot is complete at this point and must not be lost because a member has failed.
func (r *run) compareMembers(ctx context.Context) (string, error) {
	difference, skipped, err := r.cluster.Compare(ctx, r.member, cluster.Unlimited(), r.request.Report)
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
