package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// PackOptions control Pack.
type PackOptions struct {
	Now    time.Time
	DryRun bool // store nothing
	Report storage.Report
}

// Packed counts the packs that a Pack has stored, and the segments in them.
type Packed struct {
	Packs, Segments int
	Bytes           int64
}

// The limits of a pack. Large segments are few, so they stay objects of their own.
const (
	packAge       = time.Hour // since the newest segment was stored: agents read the newest ones often
	fewestPacked  = 8         // segments
	maxPackMember = 4 << 20   // bytes of a segment
	maxPack       = 256 << 20 // bytes
	packsAtOnce   = 512       // packs that one call stores: a prune must end, and the next one continues
	packReaders   = 8         // segments that are read at the same time, each up to maxPackMember in memory
)

// Pack stores the segments of each index that is older than packAge in one object, so that a log of many small segments takes few
// requests to list and to read. The segments become Leftovers once they are packed. Each is checked when it is read. A lineage
// with locked segments is packed up to these: its objects cannot be removed. Pack may be repeated, and continues where an
// interrupted one stopped. After an error, the result counts the work until then.
func (log *Log) Pack(ctx context.Context, o PackOptions) (Packed, error) {
	folders, err := log.logFolders(ctx)
	if err != nil {
		return Packed{}, err
	}
	p := packer{log: log, o: o}
	for _, f := range folders {
		err := p.lineage(ctx, f)
		if err != nil {
			return p.done, fmt.Errorf("pack the log of cluster %s: %w", log.store.Cluster, err)
		}
	}
	return p.done, nil
}

// packer is the state of a Pack.
type packer struct {
	log  *Log
	o    PackOptions
	done Packed
}

// lineage packs the segments of each index of a lineage, oldest first.
func (p *packer) lineage(ctx context.Context, f logFolder) error {
	err := p.restoreIndexes(ctx, f)
	if err != nil {
		return err
	}
	for i, first := range f.indexes {
		stored, ok := f.segments.storedAt(first)
		if !ok {
			continue // pruned, missing or packed
		}
		if p.done.Packs == packsAtOnce || p.o.Now.Sub(stored) < packAge {
			return nil
		}
		segments, err := p.packable(ctx, f, i)
		if err != nil {
			return err
		}
		if len(segments) == 0 {
			continue
		}
		locked, err := p.isLocked(ctx, segments[len(segments)-1])
		if err != nil || locked {
			return err
		}
		err = p.store(ctx, segments)
		if err != nil {
			return err
		}
	}
	return nil
}

// restoreIndexes stores the index of each pack that has none: without it, each reader would read the pack.
func (p *packer) restoreIndexes(ctx context.Context, f logFolder) error {
	if p.o.DryRun {
		return nil
	}
	for _, bare := range f.bare {
		segments, err := p.log.scanPack(ctx, f.lineage, bare)
		if err == nil {
			err = p.log.StoreIndex(ctx, f.lineage, segments)
		}
		if err != nil && !errors.Is(err, catalog.ErrDamaged) && !errors.Is(err, storage.ErrExist) && !records.IsAbsent(err) {
			return err
		}
	}
	return nil
}

// packable returns the segments of the i-th index; none if they must not be packed together, or are packed already.
func (p *packer) packable(ctx context.Context, f logFolder, i int) ([]catalog.Segment, error) {
	segments, err := p.log.readIndex(ctx, f.lineage, f.indexes[i])
	if errors.Is(err, catalog.ErrDamaged) || records.IsAbsent(err) {
		return nil, nil // a load reports it
	}
	if err != nil {
		return nil, err
	}
	segments = f.upToNext(segments, i)
	if len(segments) < fewestPacked || len(segments) > maxPacked {
		return nil, nil
	}
	last := segments[len(segments)-1].Seq
	if p.log.packs.overlapping(f.lineage, segments[0].Seq, last) {
		return nil, nil
	}
	var size int64
	for _, s := range segments {
		size += s.Size
		stored, ok := f.segments.storedAt(s.Seq)
		if !ok || s.Size > maxPackMember || p.o.Now.Sub(stored) < packAge {
			return nil, nil
		}
	}
	if size > maxPack {
		return nil, nil
	}
	return segments, nil
}

// isLocked reports whether the store does not let anyone remove s yet.
func (p *packer) isLocked(ctx context.Context, s catalog.Segment) (bool, error) {
	o, err := p.log.store.Bucket.Stat(ctx, catalog.SegmentKey(p.log.store.Cluster, s.Lineage, s.Seq))
	if records.IsAbsent(err) {
		return false, nil // the pack will not be stored
	}
	return o.RetainUntil.After(p.o.Now), err
}

// store stores a pack of segments. A segment that is missing or damaged is only reported: its index is packed once a load no longer
// finds a fault.
func (p *packer) store(ctx context.Context, segments []catalog.Segment) error {
	first, last := segments[0], segments[len(segments)-1]
	key := catalog.PackKey(p.log.store.Cluster, first.Lineage, first.Seq, last.Seq)
	var size int64
	for _, s := range segments {
		size += s.Size
	}
	if !p.o.DryRun {
		p.o.Report.Say(storage.Event{Stage: "pack", Object: key, Message: fmt.Sprintf("packing %d segments of the log", len(segments))})
		err := p.log.store.Create(ctx, key, &packContent{ctx: ctx, log: p.log, left: segments}, size)
		switch {
		case errors.Is(err, storage.ErrExist): // another prune has stored it
			return nil
		case errors.Is(err, catalog.ErrDamaged), errors.Is(err, catalog.ErrNotFound):
			p.o.Report.Say(storage.Event{Stage: "pack", Level: storage.Warning, Object: key, Message: fmt.Sprintf("the segments stay as they are: %v", err)})
			return nil
		case err != nil:
			return fmt.Errorf("store pack %s: %w", key, err)
		}
	}
	p.done.Packs++
	p.done.Segments += len(segments)
	p.done.Bytes += size
	return nil
}

// packContent reads segments, one after the other, as they are stored. It ends with an error if one differs from its index.
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

// readChecked returns a segment as it is stored. The error matches catalog.ErrNotFound if it is missing, and catalog.ErrDamaged if
// its bytes are not those of s.
func (log *Log) readChecked(ctx context.Context, s catalog.Segment) ([]byte, error) {
	r, err := log.OpenStored(ctx, s)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content := bytes.NewBuffer(make([]byte, 0, s.Size+bytes.MinRead))
	_, err = content.ReadFrom(io.LimitReader(r, s.Size+1))
	if err == nil {
		err = checkContent(content.Bytes(), s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq), records.ReadError(err))
	}
	return content.Bytes(), nil
}

// checkContent returns an error that matches catalog.ErrDamaged unless content is the segment s.
func checkContent(content []byte, s catalog.Segment) error {
	_, digest, err := segment.Check(bytes.NewReader(content))
	if err == nil && (digest != s.Digest || int64(len(content)) != s.Size) {
		err = fmt.Errorf("%w: it is not the segment that its index describes", catalog.ErrDamaged)
	}
	return err
}

// Duplicates reads a pack, and returns those of segments that are equal objects of their own and so can be removed. The error matches
// catalog.ErrDamaged if the pack is not intact, or no index describes it.
func (log *Log) Duplicates(ctx context.Context, key string, segments []uint64) ([]uint64, error) {
	name, ok := catalog.SplitLogKey(log.store.Cluster, key)
	if !ok || name.Kind != catalog.LogPack {
		return nil, fmt.Errorf("%s: %w: it is no pack", key, catalog.ErrName)
	}
	packed, err := log.checkPack(ctx, key, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	equal := make([]bool, len(segments))
	err = records.Parallel(ctx, headReaders, len(segments), func(ctx context.Context, i int) error {
		own, err := log.readHead(ctx, log.ownPlace(name.Lineage, segments[i]), usualHead)
		equal[i] = err == nil && own.Digest == packed[segments[i]-name.Seq].Digest
		if errors.Is(err, catalog.ErrDamaged) || records.IsAbsent(err) {
			err = nil
		}
		return err
	})
	var duplicates []uint64
	for i, seq := range segments {
		if equal[i] {
			duplicates = append(duplicates, seq)
		}
	}
	return duplicates, err
}

// checkPack reads a pack, and returns its segments if all are intact and described by their index.
func (log *Log) checkPack(ctx context.Context, key string, name catalog.LogName) ([]catalog.Segment, error) {
	segments, err := log.readIndex(ctx, name.Lineage, name.Seq)
	if err != nil && !records.IsAbsent(err) {
		return nil, err
	}
	r, object, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, records.ReadError(err)
	}
	defer r.Close()
	p := packOf(name, object)
	if p == nil || !p.describedBy(segments) {
		return nil, fmt.Errorf("%w: its index does not describe it", catalog.ErrDamaged)
	}
	segments = segments[:p.count()]
	for _, s := range segments {
		content := make([]byte, s.Size)
		_, err := io.ReadFull(r, content)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends early", catalog.ErrDamaged)
		}
		if err == nil {
			err = checkContent(content, s)
		}
		if err != nil {
			return nil, fmt.Errorf("segment %d in it: %w", s.Seq, records.ReadError(err))
		}
	}
	return segments, nil
}

// packedLeftovers returns the segments of a lineage, after seq pruned, that are objects of their own and in one of packs too.
func (log *Log) packedLeftovers(ctx context.Context, lineage string, packs []*pack, pruned uint64) (leftovers []catalog.Leftover, err error) {
	if len(packs) == 0 {
		return nil, nil
	}
	last := packs[len(packs)-1].last
	err = log.listLogNames(ctx, lineage, "", func(n catalog.LogName, o storage.Object) bool {
		if n.Kind != catalog.LogSegment || n.Seq > last {
			return false
		}
		p := including(packs, n.Seq)
		if p != nil && n.Seq > pruned {
			since := slices.MaxFunc([]time.Time{o.ModTime, p.stored}, time.Time.Compare)
			leftovers = append(leftovers, catalog.Leftover{Key: o.Key, Size: o.Size, Since: since, Pack: log.packKey(lineage, p)})
		}
		return true
	})
	return leftovers, err
}
