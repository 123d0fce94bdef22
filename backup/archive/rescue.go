package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// emptySpool stores what is in the spool while the cluster does not answer: after a disaster it may be the last that there
// is of it. It needs no lease, for a segment's name is the fence.
func (a *archiver) emptySpool(ctx context.Context) error {
	if a.spool.dir == "" {
		return nil
	}
	tail, err := a.to.LogTail(ctx)
	if err != nil {
		return err
	}
	waiting, err := a.spool.goOn(tail)
	if err != nil {
		return err
	}
	a.board.set(func(b *Status) { b.Spool = a.spool.status() })
	for _, s := range waiting {
		if err := a.storeSpooled(ctx, s); err != nil {
			return err
		}
		a.note("segment %d of lineage %s is stored, from the spool", s.Seq, s.Lineage)
	}
	return nil
}

func (a *archiver) storeSpooled(ctx context.Context, s repository.Segment) error {
	e, err := a.spool.get(s.Header)
	if err == nil {
		err = a.storeOnce(ctx, e)
	}
	if err != nil { // nothing that ends the agent: the next turn finds out what is still good for something
		return fmt.Errorf("store what is in the spool: %v", err)
	}
	err = a.spool.remove(s)
	a.board.set(func(b *Status) {
		b.stored(s, time.Now())
		b.Lineage, b.Spool = s.Lineage, a.spool.status()
	})
	return err
}

// storeOnce tries once.
func (a *archiver) storeOnce(ctx context.Context, e segment.Encoded) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return a.to.StoreSegment(ctx, e)
}

// isTaken: something stands under the segment's name, whole or not.
func isTaken(err error) bool {
	return errors.Is(err, repository.ErrTaken) || errors.Is(err, repository.ErrDamaged)
}
