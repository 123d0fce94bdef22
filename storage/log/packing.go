package log

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// PackOptions control Pack.
type PackOptions struct {
	Now        time.Time
	Ahead      func(context.Context) (time.Duration, error) // how far Now is ahead of the store's clock; nil: it is not
	Grace      time.Duration                                // how long packed segments stay objects of their own, at most maxPackGrace
	PrunedUpTo map[string]uint64                            // by lineage: the last segment that this prune removes; in a dry run its tombstone is not stored
	DryRun     bool                                         // change nothing
	Report     storage.Report
}

// Packed is the result of a Pack.
type Packed struct {
	Packs, Segments int                // new packs, and the segments in them
	Removed         []catalog.Leftover // the segments' own objects, which packs replace
}

// The limits of a pack. Large segments are few, so they stay objects of their own.
const (
	minSegmentAge   = time.Hour // since a segment was stored: agents read the newest ones often
	maxPackGrace    = time.Hour // a reader that misses a segment's own object reads the pack
	minPackSegments = 8         // segments
	maxSegmentBytes = 4 << 20   // bytes of a segment
	maxPackBytes    = 256 << 20 // bytes
	maxNewPacks     = 512       // packs that one call stores: a prune must end, and the next one continues
	packReaders     = 8         // segments that are read at the same time, each up to maxSegmentBytes in memory
	removers        = 32        // segments that are compared or removed at the same time
)

// Pack stores the segments of each index in one object, so that a log of many small segments takes few requests to list and to delete.
// It removes the segments' own objects once they have been packed for o.Grace, after it has read the pack and compared both. Segments
// must be older than minSegmentAge. A lineage with locked segments is packed up to these, because they cannot be removed. Pack may be
// repeated, and continues where an interrupted one stopped.
//
// A pack or a segment that is damaged is reported as a warning, and stays. Any other error ends the work on its lineage. The result
// counts the work until then.
func (log *Log) Pack(ctx context.Context, o PackOptions) (Packed, error) {
	folders, err := log.logFolders(ctx)
	if err != nil {
		return Packed{}, err
	}
	p := packer{log: log, o: o}
	for _, f := range folders {
		f.pruned = max(f.pruned, o.PrunedUpTo[f.lineage])
		err = errors.Join(err, p.lineage(ctx, f))
		if ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return p.done, fmt.Errorf("pack the log of cluster %s: %w", log.store.Cluster, err)
	}
	return p.done, nil
}

// packer is the state of a Pack.
type packer struct {
	log  *Log
	o    PackOptions
	done Packed
}

// isOld reports whether an object that was stored at t has the given age by the store's clock. It asks for that clock at most once, and
// only if the object is old by the host's clock.
func (p *packer) isOld(ctx context.Context, t time.Time, age time.Duration) (bool, error) {
	if p.o.Now.Sub(t) >= age && p.o.Ahead != nil {
		ahead, err := p.o.Ahead(ctx)
		if err != nil {
			return false, err
		}
		p.o.Now, p.o.Ahead = p.o.Now.Add(-ahead), nil
	}
	return p.o.Now.Sub(t) >= age, nil
}

func (p *packer) lineage(ctx context.Context, f logFolder) error {
	err := p.storeMissingIndexes(ctx, f)
	if err != nil {
		return err
	}
	for _, candidate := range p.log.packs.of(f.lineage) {
		if !candidate.mixed || candidate.last <= f.pruned {
			continue
		}
		old, err := p.isOld(ctx, candidate.stored, min(p.o.Grace, maxPackGrace))
		if err == nil && old {
			err = p.removeDuplicates(ctx, f, candidate)
		}
		if errors.Is(err, storage.ErrLocked) { // a legal hold, most likely on the whole lineage
			return nil
		}
		if err != nil {
			return err
		}
	}
	return p.pack(ctx, f)
}

// isUnusable reports whether err is about one object only, which is damaged or missing, so that the work on others can continue.
func isUnusable(err error) bool {
	return errors.Is(err, catalog.ErrDamaged) || errors.Is(err, catalog.ErrNotFound) || records.IsAbsent(err)
}

func (p *packer) warn(key string, err error, consequence string) {
	p.o.Report.Say(storage.Event{Stage: "pack", Level: storage.Warning, Object: key, Message: fmt.Sprintf("%v: %s", err, consequence)})
}

// storeMissingIndexes stores the index of each pack that has none: without it, each reader would read the pack.
func (p *packer) storeMissingIndexes(ctx context.Context, f logFolder) error {
	if p.o.DryRun {
		return nil
	}
	for _, bare := range f.unindexed {
		segments, err := p.log.scanPack(ctx, f.lineage, bare)
		if err != nil && !isUnusable(err) {
			return err
		}
		if err != nil {
			p.warn(p.log.packKey(f.lineage, bare), err, fmt.Sprintf("if all segments from %d to %d are still objects (.seg), delete the pack", bare.first, bare.last))
			continue
		}
		err = p.log.StoreIndex(ctx, f.lineage, segments)
		if err != nil && !errors.Is(err, storage.ErrExist) {
			p.warn(p.log.packKey(f.lineage, bare), err, "it stays without an index, and each load of the log reads all of it")
		}
	}
	return nil
}

// removeDuplicates removes the segments' own objects that the pack replaces. It compares their headers with those in the pack. If any are
// equal, it then checks the whole pack.
func (p *packer) removeDuplicates(ctx context.Context, f logFolder, candidate *pack) error {
	key := p.log.packKey(f.lineage, candidate)
	packed, err := p.log.packedSegments(ctx, f.lineage, candidate)
	var equal []catalog.Segment
	if err == nil {
		equal, err = p.equalObjects(ctx, f, packed)
	}
	if err == nil && len(equal) > 0 {
		err = p.log.checkPack(ctx, key, packed)
	}
	if isUnusable(err) {
		p.warn(key, err, fmt.Sprintf("the segments that it should replace are kept: if all of %d to %d are still objects (.seg), delete the pack", candidate.first, candidate.last))
		return nil
	}
	if err != nil {
		return err
	}
	removed := make([]bool, len(equal))
	err = records.Parallel(ctx, removers, len(equal), func(ctx context.Context, i int) error {
		err := p.remove(ctx, equal[i])
		removed[i] = err == nil
		return err
	})
	for i, s := range equal {
		if removed[i] {
			object := catalog.Leftover{Key: catalog.SegmentKey(p.log.store.Cluster, s.Lineage, s.Seq), Size: s.Size, Since: candidate.stored}
			p.done.Removed = append(p.done.Removed, object)
		}
	}
	return err
}

// equalObjects returns the segments of packed that are not pruned, and whose own objects exist and are equal.
func (p *packer) equalObjects(ctx context.Context, f logFolder, packed []catalog.Segment) ([]catalog.Segment, error) {
	var own []catalog.Segment
	for _, s := range packed {
		_, ok := f.segments.storedAt(s.Seq)
		if ok && s.Seq > f.pruned {
			own = append(own, s)
		}
	}
	equal := make([]bool, len(own))
	err := records.Parallel(ctx, removers, len(own), func(ctx context.Context, i int) error {
		at := p.log.ownPlace(f.lineage, own[i].Seq)
		read, err := p.log.readHead(ctx, at, usualHead)
		equal[i] = err == nil && read.Digest == own[i].Digest
		if err != nil && !isUnusable(err) {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		return nil
	})
	var all []catalog.Segment
	for i, s := range own {
		if equal[i] {
			all = append(all, s)
		}
	}
	return all, err
}

// remove removes a segment's own object. The error matches storage.ErrLocked if the store does not let anyone remove it.
func (p *packer) remove(ctx context.Context, s catalog.Segment) error {
	if p.o.DryRun {
		return nil
	}
	at := p.log.ownPlace(s.Lineage, s.Seq)
	err := p.log.store.Bucket.Delete(ctx, at.key, storage.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", at.name, err)
	}
	return nil
}

// checkPack reads the pack with the key, and returns an error that matches catalog.ErrDamaged unless it contains the segments.
func (log *Log) checkPack(ctx context.Context, key string, segments []catalog.Segment) error {
	r, _, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", key, records.ReadError(err))
	}
	defer r.Close()
	buffered := bufio.NewReaderSize(r, 64<<10)
	for _, s := range segments {
		err := checkContent(io.LimitReader(buffered, s.Size), s)
		if err != nil {
			return fmt.Errorf("%s: segment %d in it: %w", key, s.Seq, records.ReadError(err))
		}
	}
	return nil
}

// checkContent reads r to its end. It returns an error that matches catalog.ErrDamaged unless that is the segment s.
func checkContent(r io.Reader, s catalog.Segment) error {
	_, digest, err := segment.Check(r)
	if err == nil && digest != s.Digest {
		err = fmt.Errorf("%w: it is not the segment that its index describes", catalog.ErrDamaged)
	}
	return err
}

// pack packs the segments of each index of a lineage, oldest first.
func (p *packer) pack(ctx context.Context, f logFolder) error {
	for i, first := range f.indexes {
		stored, ok := f.segments.storedAt(first)
		if !ok || p.log.packs.including(f.lineage, first) != nil || !p.smallSegments(f, i) {
			continue
		}
		old, err := p.isOld(ctx, stored, minSegmentAge)
		if err != nil || !old || p.done.Packs == maxNewPacks {
			return err
		}
		locked, err := p.isLocked(ctx, f.lineage, first)
		if err != nil || locked {
			return err
		}
		segments, err := p.packable(ctx, f, i)
		if err != nil {
			return err
		}
		if len(segments) == 0 {
			continue
		}
		locked, err = p.isLocked(ctx, f.lineage, segments[len(segments)-1].Seq)
		if err == nil && !locked {
			err = p.store(ctx, segments)
		}
		if err != nil || locked {
			return err
		}
	}
	return nil
}

// smallSegments reports whether the listed segments, from the i-th index to the next, have sizes that can be packed.
func (p *packer) smallSegments(f logFolder, i int) bool {
	next := f.nextIndex(i)
	if next == 0 {
		return true // only the index shows how many there are
	}
	first := f.indexes[i]
	if next-first < minPackSegments || next-first > maxPackSegments {
		return false
	}
	var size int64
	for seq := first; seq < next; seq++ {
		one := f.segments.sizeOf(seq)
		size += one
		if one == 0 || one > maxSegmentBytes || size > maxPackBytes {
			return false
		}
	}
	return true
}

// packable returns the segments of the i-th index; none if they must not be packed together.
func (p *packer) packable(ctx context.Context, f logFolder, i int) ([]catalog.Segment, error) {
	segments, err := p.log.readIndex(ctx, f.lineage, f.indexes[i])
	if isUnusable(err) {
		return nil, nil // a load reports it
	}
	if err != nil {
		return nil, err
	}
	segments = f.upToNext(segments, i)
	if len(segments) < minPackSegments || len(segments) > maxPackSegments || segments[0].Seq <= f.pruned {
		return nil, nil
	}
	if p.log.packs.overlapping(f.lineage, segments[0].Seq, segments[len(segments)-1].Seq) {
		return nil, nil
	}
	var size int64
	for _, s := range segments {
		size += s.Size
		stored, ok := f.segments.storedAt(s.Seq)
		if !ok || !f.segments.has(s) || s.Size > maxSegmentBytes || size > maxPackBytes || p.o.Now.Sub(stored) < minSegmentAge {
			return nil, nil
		}
	}
	return segments, nil
}

// isLocked reports whether the store still keeps the segment seq from being removed. If so, later segments are locked too.
func (p *packer) isLocked(ctx context.Context, lineage string, seq uint64) (bool, error) {
	o, err := p.log.store.Bucket.Stat(ctx, catalog.SegmentKey(p.log.store.Cluster, lineage, seq))
	if records.IsAbsent(err) {
		return false, nil // the pack will not be stored
	}
	return o.RetainUntil.After(p.o.Now), err
}

// store stores a pack of segments, without a lock: the locks of the segments have ended.
func (p *packer) store(ctx context.Context, segments []catalog.Segment) error {
	first, last := segments[0], segments[len(segments)-1]
	key := catalog.PackKey(p.log.store.Cluster, first.Lineage, first.Seq, last.Seq)
	size := totalSize(segments)
	if !p.o.DryRun {
		p.o.Report.Say(storage.Event{Stage: "pack", Object: key, Message: fmt.Sprintf("packing %d segments of the log", len(segments))})
		content := &packContent{ctx: ctx, log: p.log, left: segments}
		_, err := p.log.store.Bucket.Put(ctx, key, content, storage.PutOptions{IfAbsent: true, SizeHint: size})
		switch {
		case errors.Is(err, storage.ErrExist): // another prune has stored it
			return nil
		case isUnusable(err):
			p.warn(key, err, "the segments stay objects of their own")
			return nil
		case err != nil:
			return fmt.Errorf("store pack %s: %w", key, err)
		}
	}
	p.done.Packs++
	p.done.Segments += len(segments)
	return nil
}

// packContent reads segments, one after the other, as they are stored. It ends with an error if a segment differs
// from its entry in the index.
type packContent struct {
	ctx  context.Context
	log  *Log
	left []catalog.Segment // not read yet
	read bytes.Buffer
}

func (c *packContent) Read(b []byte) (int, error) {
	if c.read.Len() == 0 {
		err := c.next()
		if err != nil {
			return 0, err
		}
	}
	return c.read.Read(b)
}

// next reads some segments into c.read. It returns io.EOF after the last one.
func (c *packContent) next() error {
	if len(c.left) == 0 {
		return io.EOF
	}
	some := c.left[:min(packReaders, len(c.left))]
	c.left = c.left[len(some):]
	contents := make([][]byte, len(some))
	err := records.Parallel(c.ctx, packReaders, len(some), func(ctx context.Context, i int) (err error) {
		contents[i], err = c.log.readChecked(ctx, some[i])
		return err
	})
	c.read.Reset()
	for _, content := range contents {
		c.read.Write(content)
	}
	return err
}

// readChecked returns a segment, of at most maxSegmentBytes bytes, as it is stored. The error matches catalog.ErrNotFound if it is
// missing, and catalog.ErrDamaged if its bytes are not those of s.
func (log *Log) readChecked(ctx context.Context, s catalog.Segment) ([]byte, error) {
	r, err := log.OpenStored(ctx, s)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content := bytes.NewBuffer(make([]byte, 0, s.Size+bytes.MinRead))
	_, err = content.ReadFrom(io.LimitReader(r, s.Size+1))
	if err == nil {
		err = checkContent(bytes.NewReader(content.Bytes()), s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, records.ReadError(err))
	}
	return content.Bytes(), nil
}
