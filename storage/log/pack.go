package log

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// pack is an object that contains the segments from first to last as they were stored, one directly after the other. Their
// index has their sizes. Without an index, the headers show where each segment ends.
type pack struct {
	first, last uint64    // seqs
	size        int64     // bytes
	stored      time.Time // by the store's clock
	mixed       bool      // some of the segments are also objects of their own

	reading chan struct{} // has room for one reader of the index
}

const maxPackSegments = 4096 // segments in a pack

// count returns the number of segments in p.
func (p *pack) count() int { return int(p.last - p.first + 1) }

// packOf returns the pack that a listing contains as n; nil if it has more segments than any pack.
func packOf(n catalog.LogName, o storage.Object) *pack {
	if n.Last-n.Seq >= maxPackSegments {
		return nil
	}
	return &pack{first: n.Seq, last: n.Last, size: o.Size, stored: o.ModTime, reading: make(chan struct{}, 1)}
}

// distinct returns packs without those that overlap a better one, ascending. A pack that was stored earlier is better, so an
// attacker who can only create objects hides none. indexed reports whether an index begins with a seq; a pack without one is worse than all
// others. packs must ascend by their first seqs.
func distinct(packs []*pack, indexed func(seq uint64) bool) []*pack {
	better := func(a, b *pack) bool {
		if indexed(a.first) != indexed(b.first) {
			return indexed(a.first)
		}
		return a.stored.Before(b.stored)
	}
	var kept []*pack
	for _, p := range packs {
		for len(kept) > 0 && kept[len(kept)-1].last >= p.first && better(p, kept[len(kept)-1]) {
			kept = kept[:len(kept)-1]
		}
		if len(kept) == 0 || kept[len(kept)-1].last < p.first {
			kept = append(kept, p)
		}
	}
	return kept
}

// including returns the pack of packs, which are distinct, that includes seq; nil if none does.
func including(packs []*pack, seq uint64) *pack {
	i, found := slices.BinarySearchFunc(packs, seq, func(p *pack, seq uint64) int { return cmp.Compare(p.first, seq) })
	if !found {
		i--
	}
	if i < 0 || packs[i].last < seq {
		return nil
	}
	return packs[i]
}

// describedBy reports whether segments, which begin with p's first, are those in p by their sizes.
func (p *pack) describedBy(segments []catalog.Segment) bool {
	if len(segments) < p.count() || segments[0].Seq != p.first {
		return false
	}
	return totalSize(segments[:p.count()]) == p.size
}

// totalSize returns the bytes of the segments.
func totalSize(segments []catalog.Segment) (size int64) {
	for _, s := range segments {
		size += s.Size
	}
	return size
}

// packs remembers the packs that the log has listed, and where their segments begin. It is safe for concurrent use.
type packs struct {
	mu        sync.Mutex
	known     map[string][]*pack // by lineage; distinct
	offsets   map[*pack][]int64  // of each segment and of the end, in bytes
	lastStore time.Time          // by the wall clock: when StoreSegment began to store the last segment that it has stored
}

const offsetsKept = 64 // packs whose offsets are remembered, at most 32 KiB each

// set remembers the packs of a lineage.
func (k *packs) set(lineage string, all []*pack) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string][]*pack{}
	}
	k.known[lineage] = all
}

// merge replaces the known packs of a lineage by all, but keeps each known pack that is unchanged. A new pack counts as mixed: if its
// segments are objects of their own too, no prune has compared them yet. It returns the known packs.
func (k *packs) merge(lineage string, all []*pack) []*pack {
	known := k.of(lineage)
	for i, p := range all {
		old := including(known, p.first)
		if old != nil && old.first == p.first && old.last == p.last && old.size == p.size {
			all[i] = old
		} else {
			p.mixed = true
		}
	}
	k.set(lineage, all)
	return all
}

// offsetsOf returns the offsets in p if they are remembered, else nil.
func (k *packs) offsetsOf(p *pack) []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.offsets[p]
}

// setOffsets remembers the offsets in p.
func (k *packs) setOffsets(p *pack, offsets []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.offsets == nil || len(k.offsets) >= offsetsKept {
		k.offsets = map[*pack][]int64{}
	}
	k.offsets[p] = offsets
}

// including returns the known pack that includes a segment; nil if there is none.
func (k *packs) including(lineage string, seq uint64) *pack {
	k.mu.Lock()
	defer k.mu.Unlock()
	return including(k.known[lineage], seq)
}

// lastStoreTime returns packs.lastStore; zero if StoreSegment has stored nothing.
func (k *packs) lastStoreTime() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastStore
}

// setLastStoreTime sets packs.lastStore.
func (k *packs) setLastStoreTime(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastStore = t
}

// of returns the known packs of a lineage.
func (k *packs) of(lineage string) []*pack {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[lineage]
}

// overlapping reports whether a known pack of the lineage includes one of the segments from first to last.
func (k *packs) overlapping(lineage string, first, last uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.known[lineage], func(p *pack) bool { return p.first <= last && p.last >= first })
}

// listPacks lists the packs of a lineage, which may overlap.
func (log *Log) listPacks(ctx context.Context, lineage string) ([]*pack, error) {
	var found []*pack
	err := log.listLogNames(ctx, lineage, catalog.PackPrefix, func(n catalog.LogName, o storage.Object) bool {
		p := packOf(n, o)
		if p != nil {
			found = append(found, p)
		}
		return true
	})
	return found, err
}

// place is where the bytes of a segment are stored.
type place struct {
	key    string
	offset int64
	size   int64  // bytes; 0: the whole object
	name   string // for errors: the segment's own key, and that of the pack
}

// ownPlace returns the place of a segment that is an object of its own.
func (log *Log) ownPlace(lineage string, seq uint64) place {
	key := catalog.SegmentKey(log.store.Cluster, lineage, seq)
	return place{key: key, name: key}
}

// openPlace opens the first length bytes of a segment; 0: all of it. size is that of the whole segment, in bytes.
func (log *Log) openPlace(ctx context.Context, at place, length int64) (r io.ReadCloser, size int64, err error) {
	o := storage.OpenOptions{Offset: at.offset, Length: at.size}
	if length > 0 && (at.size == 0 || length < at.size) {
		o.Length = length
	}
	r, object, err := log.store.Bucket.Open(ctx, at.key, o)
	if errors.Is(err, storage.ErrRange) {
		return nil, 0, fmt.Errorf("%w: it ends before byte %d", catalog.ErrDamaged, at.offset)
	}
	return r, cmp.Or(at.size, object.Size), err
}

// tryPlaces calls read for one place of a segment, and for the other if the segment is missing or damaged there. The places are its own
// object and a pack; the pack comes first only if none of its segments was listed as an object. If both fail, it returns the first error,
// or the second if only the first means that the segment is missing. It lists the packs if it knows none that includes the segment.
func (log *Log) tryPlaces(ctx context.Context, lineage string, seq uint64, read func(at place) error) error {
	own := func() error { return read(log.ownPlace(lineage, seq)) }
	packed := func() error { return log.readPacked(ctx, lineage, seq, read) }
	first, second := own, packed
	p := log.packs.including(lineage, seq)
	if p != nil && !p.mixed {
		first, second = packed, own
	}
	err := first()
	if !isUnusable(err) {
		return err
	}
	e := second()
	if e == nil || records.IsAbsent(err) && !records.IsAbsent(e) {
		return e
	}
	return err
}

// readPacked calls read for the place of a segment in a pack. The error matches storage.ErrNotExist if no pack includes it.
func (log *Log) readPacked(ctx context.Context, lineage string, seq uint64, read func(at place) error) error {
	p := log.packs.including(lineage, seq)
	if p == nil {
		all, err := log.listPacks(ctx, lineage)
		if err != nil {
			return fmt.Errorf("list the packs of lineage %s: %w", lineage, err)
		}
		p = including(log.packs.merge(lineage, distinct(all, func(uint64) bool { return true })), seq)
	}
	if p == nil {
		return fmt.Errorf("%s: %w", catalog.SegmentKey(log.store.Cluster, lineage, seq), storage.ErrNotExist)
	}
	at, err := log.inPack(ctx, lineage, p, seq)
	if err != nil {
		return err
	}
	return read(at)
}

// inPack returns the place of segment seq in p.
func (log *Log) inPack(ctx context.Context, lineage string, p *pack, seq uint64) (place, error) {
	offsets, err := log.packOffsets(ctx, lineage, p)
	if err != nil {
		return place{}, err
	}
	key := log.packKey(lineage, p)
	name := catalog.SegmentKey(log.store.Cluster, lineage, seq) + " in " + path.Base(key)
	i := seq - p.first
	if i+1 >= uint64(len(offsets)) {
		return place{}, fmt.Errorf("%s: %w: a segment before it is damaged, and without an index it cannot be found", name, catalog.ErrDamaged)
	}
	return place{key, offsets[i], offsets[i+1] - offsets[i], name}, nil
}

func (log *Log) packKey(lineage string, p *pack) string {
	return catalog.PackKey(log.store.Cluster, lineage, p.first, p.last)
}

// packOffsets returns where the segments in p begin, and where the last one ends. If p is damaged, only the first of them.
func (log *Log) packOffsets(ctx context.Context, lineage string, p *pack) ([]int64, error) {
	select { // while one reads the index, the others wait
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	offsets := log.packs.offsetsOf(p)
	if offsets != nil {
		return offsets, nil
	}
	segments, err := log.packedSegments(ctx, lineage, p)
	if err != nil && !errors.Is(err, catalog.ErrDamaged) {
		return nil, err
	}
	offsets = []int64{0}
	for i, s := range segments {
		offsets = append(offsets, offsets[i]+s.Size)
	}
	log.packs.setOffsets(p, offsets)
	return offsets, nil
}

// packedSegments returns the segments in p, from their index or, if that is missing or does not describe p, from p itself. If p
// is damaged, it returns those before the damage and an error that matches catalog.ErrDamaged.
func (log *Log) packedSegments(ctx context.Context, lineage string, p *pack) ([]catalog.Segment, error) {
	segments, err := log.readIndex(ctx, lineage, p.first)
	if err == nil && p.describedBy(segments) {
		return segments[:p.count()], nil
	}
	if err != nil && !isUnusable(err) {
		return nil, err
	}
	return log.scanPack(ctx, lineage, p)
}

// scanPack reads p and returns its segments. If p is damaged, it returns those before the damage and an error that matches
// catalog.ErrDamaged. It is storage.ErrNotExist if p is missing.
func (log *Log) scanPack(ctx context.Context, lineage string, p *pack) ([]catalog.Segment, error) {
	key := log.packKey(lineage, p)
	r, _, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, records.ReadError(err))
	}
	defer r.Close()
	buffered := bufio.NewReaderSize(r, 64<<10)
	var segments []catalog.Segment
	headers := 0 // bytes
	for seq := p.first; seq <= p.last; seq++ {
		s, length, err := log.scanSegment(buffered, lineage, seq)
		headers += length
		if err == nil && headers > maxIndexHeaders {
			err = fmt.Errorf("%w: its headers have more than %d bytes", catalog.ErrDamaged, maxIndexHeaders)
		}
		if err != nil {
			return segments, fmt.Errorf("%s: segment %d in it: %w", key, seq, records.ReadError(err))
		}
		segments = append(segments, s)
	}
	_, err = buffered.ReadByte()
	if !errors.Is(err, io.EOF) {
		return segments, fmt.Errorf("%s: %w: it continues after segment %d", key, catalog.ErrDamaged, p.last)
	}
	return segments, nil
}

// scanSegment reads a segment from r, of which it checks the header. length is the header's, in bytes.
func (log *Log) scanSegment(r io.Reader, lineage string, seq uint64) (s catalog.Segment, length int, err error) {
	doc, err := segment.ReadDocument(r)
	if err != nil {
		return catalog.Segment{}, 0, err
	}
	s, err = segmentOf(doc, log.DecodeHeader)
	if err != nil {
		return catalog.Segment{}, 0, err
	}
	err = s.CheckPlace(log.store.Cluster, lineage, seq)
	if err != nil {
		return catalog.Segment{}, 0, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	_, err = io.CopyN(io.Discard, r, s.Stored.Size)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the pack ends within it", catalog.ErrDamaged)
	}
	return s, len(doc), err
}
