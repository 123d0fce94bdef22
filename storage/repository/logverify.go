package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// verifiers is how many segments are read at a time: each takes a few MiB, and a core to unseal.
const verifiers = 4

// VerifyLineage reads every segment of l to its end: without a key it holds the stored bytes against their digests, with
// one it opens and decodes them too. What is missing, damaged or does not open is a fault of the returned lineage, and in
// none of its stretches.
func (c *Cluster) VerifyLineage(ctx context.Context, l Lineage, keys seal.Keys, report storage.Report) (Lineage, error) {
	var mu sync.Mutex
	bad := map[uint64]error{}
	var done, total int64
	for _, s := range l.Segments {
		total += s.Size
	}
	err := atOnce(ctx, verifiers, len(l.Segments), func(ctx context.Context, i int) error {
		s := l.Segments[i]
		err := c.verifySegment(ctx, s, keys)
		mu.Lock()
		defer mu.Unlock()
		done += s.Size
		report.Say(storage.Event{Stage: "read", Message: "reading the log", Object: c.segmentKey(s.Lineage, s.Seq), Done: done, Total: total})
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) || errors.Is(err, seal.ErrWrongKey) {
			bad[s.Seq], err = err, nil
		}
		return err
	})
	if err != nil {
		return Lineage{}, fmt.Errorf("verify lineage %s of cluster %s: %w", l.ID, c.name, err)
	}
	for _, seq := range slices.Sorted(maps.Keys(bad)) {
		l = l.Without(seq, bad[seq])
	}
	return l, nil
}

func (c *Cluster) verifySegment(ctx context.Context, s Segment, keys seal.Keys) error {
	if keys.None() && s.Seal.Encryption != "" {
		return c.checkSegment(ctx, s)
	}
	r, err := c.OpenSegment(ctx, s, keys)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, err := range r.Records() {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) checkSegment(ctx context.Context, s Segment) error {
	key := c.segmentKey(s.Lineage, s.Seq)
	source, _, err := c.bucket.Open(ctx, key, storage.OpenOptions{})
	if isAbsent(err) {
		return missing(key)
	}
	if err != nil {
		return fmt.Errorf("open segment %s: %w", key, err)
	}
	defer source.Close()
	_, digest, err := segment.Check(source)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if digest != s.Digest {
		return fmt.Errorf("%s: %w: its header is another one than the catalog's", key, ErrDamaged)
	}
	return nil
}
