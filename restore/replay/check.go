package replay

import (
	"context"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Check returns an error if the records of one segment cannot be applied to any database: they must be whole, in order, valid
// and known to this version. The error is a *RecordError, or that of log.Records. Only a replay can find that a key to delete
// does not exist, or that a mark does not match.
func Check(ctx context.Context, log Log) error {
	r := &run{source: log.Source}
	for batch, err := range ahead(ctx, log.Records, 0) {
		for i := range batch {
			err := r.check(&batch[i])
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	err := ctx.Err()
	if err != nil {
		return err
	}
	return r.endsWhole()
}

// check does the checks that run.record does without a database. It assumes a database at the position before the first request.
func (r *run) check(d *decoded) error {
	err := r.ofSource(d)
	if err != nil {
		return err
	}
	if d.request == nil && d.err == nil {
		return r.checkMark(d)
	}
	if r.seen.position == 0 {
		r.base, r.at.Position = d.Position-1, d.Position-1
	}
	err = r.inOrder(place{d.Position, d.Term})
	if err != nil {
		return err
	}
	if d.err != nil {
		return r.badRecord(d.Position-1, d.err)
	}
	if d.request.LeaseGrant == nil || d.Term != 0 { // term 0: source Watch, where the revision of a grant comes after it
		r.at.Position = d.Position
	}
	return nil
}

func (r *run) checkMark(d *decoded) error {
	if d.Kind != segment.ServerVersion {
		return r.badRecord(r.at.Position, new(marks).add(d, 0, r.seen.position))
	}
	_, err := rulesOf(d.version)
	return r.badRecord(max(d.Position, r.at.Position), err)
}
