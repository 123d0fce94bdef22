package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// The number of objects of a lineage that are read in parallel. A header takes a round trip and hardly any memory.
const (
	headReaders  = 32
	indexReaders = 8
)

// logFolder is one lineage as the store lists it.
type logFolder struct {
	lineage  string
	segments listing  // without pruned ones
	indexes  []uint64 // first seqs, ascending; also those of packs without an index
	packs    []*pack  // ascending, without overlaps; only those with a wanted segment that has no object of its own

	unindexed []*pack // the packs without an index

	tombstones []uint64        // seqs of the last pruned segments, ascending
	pruned     uint64          // the highest valid one of tombstones; 0 if there is none
	ignored    []catalog.Fault // invalid tombstones above it, and the folder if it cannot be listed
}

// upToNext returns segments, which are those of the i-th index, without those that the next index also contains. Two agents can
// write overlapping indexes.
func (f logFolder) upToNext(segments []catalog.Segment, i int) []catalog.Segment {
	if i+1 == len(f.indexes) || len(segments) == 0 {
		return segments
	}
	return segments[:min(uint64(len(segments)), f.indexes[i+1]-f.indexes[i])]
}

// nextIndex returns the first seq of the index after the i-th; 0 if there is none.
func (f logFolder) nextIndex(i int) uint64 {
	if i+1 == len(f.indexes) {
		return 0
	}
	return f.indexes[i+1]
}

// shorten drops the header of each segment that the store does not list with the same size, except for its bounds. They suffice to
// report the segment as missing. So a forged index, with headers of segments that do not exist, cannot fill the memory.
func (f logFolder) shorten(segments []catalog.Segment) {
	for i := range segments {
		s := &segments[i]
		if s.Folded == 0 && !f.segments.has(*s) {
			bounds := segment.Header{Cluster: s.Cluster, Lineage: s.Lineage, Seq: s.Seq, First: s.First, Last: s.Last}
			*s = catalog.Segment{Header: bounds, Digest: s.Digest, Size: s.Size}
		}
	}
}

// upToNextPack returns segments, which are those of the i-th index, up to the beginning of the next pack, whose own index has the rest.
func (f logFolder) upToNextPack(segments []catalog.Segment, i int) []catalog.Segment {
	first := f.indexes[i]
	n := sort.Search(len(f.packs), func(n int) bool { return f.packs[n].first > first })
	if n == len(f.packs) {
		return segments
	}
	return segments[:min(uint64(len(segments)), f.packs[n].first-first)]
}

// packAt returns the pack that begins with seq first; nil if there is none.
func (f logFolder) packAt(first uint64) *pack {
	p := including(f.packs, first)
	if p == nil || p.first != first {
		return nil
	}
	return p
}

// usePacks adds to f the segments in wanted that only packs contain, and returns all distinct packs. An index that begins within such
// a pack is left out: that of the pack has the same headers.
func (f *logFolder) usePacks(wanted seqRange) []*pack {
	indexed := func(seq uint64) bool { _, found := slices.BinarySearch(f.indexes, seq); return found }
	all := distinct(f.packs, indexed)
	f.packs = nil
	for _, p := range all {
		from, to := max(p.first, wanted.first), min(p.last, wanted.last)
		if to < from {
			continue
		}
		listed := f.segments.count(from, to)
		p.mixed = listed > 0
		if !indexed(p.first) {
			f.unindexed = append(f.unindexed, p)
		}
		if listed < to-from+1 {
			f.packs = append(f.packs, p)
		}
	}
	f.indexes = slices.DeleteFunc(slices.Clone(f.indexes), func(seq uint64) bool {
		p := including(f.packs, seq)
		return p != nil && p.first != seq
	})
	for _, p := range f.unindexed {
		if including(f.packs, p.first) != nil {
			f.indexes = append(f.indexes, p.first)
		}
	}
	slices.Sort(f.indexes)
	f.segments = f.segments.withPacks(f.packs).after(f.pruned)
	return all
}

// logFolders returns the lineages in the store, without their pruned segments.
func (log *Log) logFolders(ctx context.Context) ([]logFolder, error) {
	folders, err := log.listLog(ctx)
	if err != nil {
		return nil, err
	}
	for i := range folders {
		err := log.completeFolder(ctx, &folders[i], allSeqs)
		if err != nil {
			return nil, err
		}
	}
	return folders, nil
}

// completeFolder removes the pruned segments from f, and adds those that are in packs only. f has only the segments in wanted.
func (log *Log) completeFolder(ctx context.Context, f *logFolder, wanted seqRange) error {
	err := log.removePruned(ctx, f)
	if err == nil {
		wanted.first = max(wanted.first, f.pruned+1)
		log.packs.set(f.lineage, f.usePacks(wanted))
	}
	return err
}

// listLog returns the lineages in the store, with their pruned segments.
func (log *Log) listLog(ctx context.Context) ([]logFolder, error) {
	var folders []logFolder
	held := 0 // listed objects, except segments that directly follow another: those take only eight bytes of memory
	for object, err := range log.store.Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(log.store.Cluster)}) {
		unlisted, skipped := log.UnlistedLineage(err)
		if skipped {
			folders = append(folders, unlisted)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the log of cluster %s: %w", log.store.Cluster, err)
		}
		name, ok := catalog.SplitLogKey(log.store.Cluster, object.Key)
		if !ok {
			continue // another program has written it
		}
		if len(folders) == 0 || folders[len(folders)-1].lineage != name.Lineage {
			folders = append(folders, logFolder{lineage: name.Lineage})
		}
		f := &folders[len(folders)-1]
		if name.Kind != catalog.LogSegment || !f.segments.endsBefore(name.Seq) {
			held++
		}
		if held > records.MaxListed {
			return nil, records.TooMany(catalog.LogPrefix(log.store.Cluster))
		}
		f.add(name, object)
	}
	return folders, nil
}

// add adds a listed object to f. Those of each kind must come in the order of their seqs.
func (f *logFolder) add(name catalog.LogName, object storage.Object) {
	switch name.Kind {
	case catalog.LogIndex:
		f.indexes = append(f.indexes, name.Seq)
	case catalog.LogTombstone:
		f.tombstones = append(f.tombstones, name.Seq)
	case catalog.LogSegment:
		f.segments.add(name.Seq, object.Size, object.ModTime)
	case catalog.LogPack:
		p := packOf(name, object)
		if p != nil {
			f.packs = append(f.packs, p)
		}
	}
}

// UnlistedLineage returns the folder of the lineage that a listing skipped with err. The folder contains only a fault. ok is
// false if err is another error, or if the skipped prefix does not belong to a lineage.
func (log *Log) UnlistedLineage(err error) (f logFolder, ok bool) {
	u, ok := errors.AsType[*storage.UnlistedError](err)
	if !ok {
		return logFolder{}, false
	}
	id, below := strings.CutPrefix(strings.TrimSuffix(u.Prefix, "/"), catalog.LogPrefix(log.store.Cluster))
	fault := catalog.Fault{Key: u.Prefix, Err: fmt.Errorf("%s: %w", u.Prefix, records.ReadError(err))}
	return logFolder{lineage: id, ignored: []catalog.Fault{fault}}, below && catalog.ValidLineage(id) == nil
}

// lineagesAtOnce bounds the memory for indexes: each lineage that is being loaded holds up to indexReaders of them.
const lineagesAtOnce = 4

// LoadOptions configure Load.
type LoadOptions struct {
	Details bool           // do not fold the segments: each takes about 1 KiB of memory
	Copies  records.Copies // whether folded indexes may be taken from the summary
}

// Load returns the lineages of the log, oldest first. It lists the log, reads its indexes, and reads the headers of the
// segments that are in no index. It folds each index to save memory, as catalog.Fold does, unless o has Details. Segments that are
// missing or unusable are faults of their lineage, not errors.
func (log *Log) Load(ctx context.Context, o LoadOptions) ([]catalog.Lineage, error) {
	folders, err := log.logFolders(ctx)
	if err != nil {
		return nil, err
	}
	lineages := make([]catalog.Lineage, len(folders))
	folds, recent := log.summaryFor(ctx, folders, o), &recentIndex{}
	err = records.Parallel(ctx, lineagesAtOnce, len(folders), func(ctx context.Context, i int) (err error) {
		l := newLineageLoad(log, folders[i], o.Details, folds)
		l.recent = recent
		lineages[i], err = log.loadLineage(ctx, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of cluster %s: %w", log.store.Cluster, err)
	}
	return sortByHistory(lineages), nil
}

// LoadRange returns the segments of a lineage with a seq from first to last, as Load does without details. It lists and reads little
// else, however long the log is. A lineage that is missing has no segments. The error matches catalog.ErrName if id is malformed.
func (log *Log) LoadRange(ctx context.Context, id string, first, last uint64) (catalog.Lineage, error) {
	err := catalog.ValidLineage(id)
	if err != nil {
		return catalog.Lineage{}, err
	}
	f, err := log.listRange(ctx, id, seqRange{first, last})
	if err == nil {
		err = log.completeFolder(ctx, &f, seqRange{first, last})
	}
	var lineage catalog.Lineage
	if err == nil {
		f.restrict(seqRange{first, last})
		l := newLineageLoad(log, f, false, nil)
		l.recent, l.wanted = &recentIndex{}, seqRange{first, last}
		lineage, err = log.loadLineage(ctx, l)
	}
	if err != nil {
		return catalog.Lineage{}, fmt.Errorf("read segments %d to %d of lineage %s of cluster %s: %w", first, last, id, log.store.Cluster, err)
	}
	return lineage, nil
}

// seqRange is the seqs from first to last.
type seqRange struct{ first, last uint64 }

var allSeqs = seqRange{1, math.MaxUint64 - 1}

func (r seqRange) includes(seq uint64) bool { return r.first <= seq && seq <= r.last }

// listRange returns the folder of a lineage with the wanted segments, and all indexes, packs and tombstones.
func (log *Log) listRange(ctx context.Context, lineage string, wanted seqRange) (logFolder, error) {
	f := logFolder{lineage: lineage}
	o := storage.ListOptions{
		Prefix: catalog.LineagePrefix(log.store.Cluster, lineage), After: catalog.SegmentKey(log.store.Cluster, lineage, wanted.first-1),
	}
	for object, err := range log.store.Bucket.List(ctx, o) {
		unlisted, skipped := log.UnlistedLineage(err)
		if skipped {
			return unlisted, nil
		}
		if err != nil {
			return f, err
		}
		name, ok := catalog.SplitLogKey(log.store.Cluster, object.Key)
		if ok && (name.Kind != catalog.LogSegment || name.Seq > wanted.last) {
			break
		}
		if ok {
			f.segments.add(name.Seq, object.Size, object.ModTime)
		}
	}
	for _, prefix := range []string{catalog.IndexPrefix, catalog.PackPrefix, catalog.TombstonePrefix} {
		err := log.listLogNames(ctx, lineage, prefix, func(n catalog.LogName, o storage.Object) bool {
			f.add(n, o)
			return true
		})
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// restrict removes all segments and indexes outside wanted.
func (f *logFolder) restrict(wanted seqRange) {
	_, f.segments = f.segments.cut(wanted.first)
	f.segments, _ = f.segments.cut(wanted.last + 1)
	i := sort.Search(len(f.indexes), func(i int) bool { return f.indexes[i] > wanted.first })
	f.indexes = f.indexes[max(i-1, 0):]
	f.indexes = slices.DeleteFunc(f.indexes, func(seq uint64) bool { return seq > wanted.last })
}

// lineageLoad is the state of loading one lineage.
type lineageLoad struct {
	log     *Log
	folder  logFolder
	details bool                // fold no index
	wanted  seqRange            // the seqs that are loaded
	folds   map[string]keptFold // of the summary, by key
	recent  *recentIndex        // all lineages of a load share it
	doubted map[uint64]bool     // indexes that must not be folded, by first seq: they contradict the log or have a fault
	indexes [][]catalog.Segment // parallel to folder.indexes; nil for an unusable index
	damaged []error             // parallel to folder.indexes; why the rest of the pack cannot be read

	known   map[uint64]*catalog.Segment // segments in the indexes, by seq; nil if two indexes differ
	folded  map[uint64]*catalog.Segment // folded segments, by first seq
	slots   []slot                      // ascending by seq
	refused []catalog.Fault             // unusable indexes
}

// slot is the place of one listed segment, or of a folded one.
type slot struct {
	listed
	begins  uint64           // the first of several segments in a damaged pack; 0 for one segment
	segment *catalog.Segment // nil: not read yet, or err is set
	indexed bool             // the segment comes from an index
	recent  bool             // that index is the recent one
	err     error            // why the segment cannot be used
}

// first returns the first seq that s includes.
func (s slot) first() uint64 {
	if s.segment != nil {
		return s.segment.FirstSeq()
	}
	return cmp.Or(s.begins, s.seq)
}

func newLineageLoad(log *Log, f logFolder, details bool, folds map[string]keptFold) *lineageLoad {
	n := len(f.indexes)
	return &lineageLoad{
		log: log, folder: f, details: details, folds: folds, wanted: allSeqs,
		doubted: map[uint64]bool{}, indexes: make([][]catalog.Segment, n), damaged: make([]error, n),
	}
}

// loadLineage loads one lineage. If a folded index has a fault, it loads the lineage again with that index unfolded.
func (log *Log) loadLineage(ctx context.Context, l *lineageLoad) (catalog.Lineage, error) {
	unread := l.folder.indexes
	for {
		err := l.readIndexes(ctx, unread)
		if err != nil {
			return catalog.Lineage{}, err
		}
		lineage, err := l.lineage(ctx)
		if err != nil {
			return catalog.Lineage{}, err
		}
		unread = l.doubtFolded(lineage) // the faults must name single segments
		if len(unread) == 0 {
			return lineage, nil
		}
	}
}

// lineage returns the lineage that the indexes and the headers of all other segments describe.
func (l *lineageLoad) lineage(ctx context.Context) (catalog.Lineage, error) {
	l.collectIndexed()
	l.makeSlots()
	l.fillFromIndexes()
	l.fillFromRecent(ctx)
	for again := true; again; again = l.emptyDoubtfulSlots() {
		err := l.readHeaders(ctx)
		if err != nil {
			return catalog.Lineage{}, err
		}
	}
	missing, err := l.findMissing(ctx)
	if err != nil {
		return catalog.Lineage{}, err
	}
	return l.lineageWith(slices.Concat(l.folder.ignored, l.refused, missing)).WithMisfits(), nil
}

// doubtFolded adds to doubted each folded index that breaks the chain of digests or has a fault. It returns the first seqs of these.
func (l *lineageLoad) doubtFolded(lineage catalog.Lineage) (indexes []uint64) {
	doubt := func(s *catalog.Segment) {
		if s.Folded > 0 && !l.doubted[s.IndexSeq()] {
			l.doubted[s.IndexSeq()] = true
			indexes = append(indexes, s.IndexSeq())
		}
	}
	for i := 1; i < len(l.slots); i++ {
		a, b := &l.slots[i-1], &l.slots[i]
		if a.contradicts(b) {
			doubt(a.segment)
			doubt(b.segment)
		}
	}
	for _, f := range lineage.Faults {
		folded := l.folded[f.Seq]
		if folded != nil && errors.Is(f.Err, catalog.ErrDamaged) {
			doubt(folded)
		}
	}
	return indexes
}

// readIndexes reads the indexes with the given first seqs. It leaves out an index that is damaged or was pruned in the
// meantime: the segments of that index are then read one by one.
func (l *lineageLoad) readIndexes(ctx context.Context, firsts []uint64) error {
	refused := make([]error, len(l.indexes))
	err := records.Parallel(ctx, indexReaders, len(firsts), func(ctx context.Context, n int) error {
		i, _ := slices.BinarySearch(l.folder.indexes, firsts[n])
		l.indexes[i] = nil
		key, folds := catalog.IndexKey(l.log.store.Cluster, l.folder.lineage, firsts[n]), !l.details && !l.doubted[firsts[n]]
		p := l.folder.packAt(firsts[n])
		if folds {
			kept := l.keptFold(key, i, p)
			if kept != nil {
				l.folder.segments.setPackedSizes(p, kept[:1])
				l.indexes[i] = kept
				return nil
			}
		}
		segments, err := l.log.readIndex(ctx, l.folder.lineage, firsts[n])
		if errors.Is(err, catalog.ErrDamaged) {
			refused[i] = err
		}
		if p != nil {
			segments, err = l.segmentsForPack(ctx, i, p, segments, err)
		}
		if isUnusable(err) {
			return nil
		}
		segments = l.folder.upToNextPack(segments, i)
		if folds && len(segments) > 0 {
			last := segments[len(segments)-1].Seq
			segments = catalog.Fold(l.folder.upToNext(segments, i), l.folder.segments.has)
			l.log.Headers.rememberFold(key, segments, l.folder.segments, last)
		}
		l.folder.shorten(segments)
		l.indexes[i] = segments
		return err
	})
	l.refuseIndexes(refused)
	return err
}

// keptFold returns the fold of the i-th index, which has the key and the pack p, from the cache or the summary; nil if neither has it.
func (l *lineageLoad) keptFold(key string, i int, p *pack) []catalog.Segment {
	next := l.folder.nextIndex(i)
	kept, ok := l.log.Headers.fold(key)
	if !ok || !kept.fits(l.folder.segments, p, next) {
		kept, ok = l.folds[key]
		if !ok || !kept.fits(l.folder.segments, p, next) {
			return nil
		}
		l.log.Headers.keep(key, kept)
	}
	if !l.wanted.includes(kept.segments[0].Seq) || !l.wanted.includes(kept.segments[1].Seq) {
		return nil
	}
	return slices.Clone(kept.segments)
}

// segmentsForPack takes the result of reading the i-th index, and sets the sizes of the segments in its pack p. If the index is missing or
// does not fit p, it scans p. It returns the segments of the index, or those found in p.
func (l *lineageLoad) segmentsForPack(ctx context.Context, i int, p *pack, segments []catalog.Segment, err error) ([]catalog.Segment, error) {
	if err != nil && !isUnusable(err) {
		return nil, err
	}
	l.damaged[i] = nil
	if err != nil || !p.describedBy(segments) {
		segments, err = l.log.scanPack(ctx, l.folder.lineage, p)
	}
	if isUnusable(err) {
		l.damaged[i], err = err, nil
	}
	l.folder.segments.setPackedSizes(p, segments[:min(len(segments), p.count())])
	return segments, err
}

// collectIndexed fills known and folded from the indexes.
func (l *lineageLoad) collectIndexed() {
	l.known, l.folded, l.slots = map[uint64]*catalog.Segment{}, map[uint64]*catalog.Segment{}, nil
	for _, segments := range l.indexes {
		for i := range segments {
			s := &segments[i]
			if s.Seq <= l.folder.pruned || !l.wanted.includes(s.FirstSeq()) || !l.wanted.includes(s.Seq) {
				continue
			}
			if s.Folded > 0 {
				l.folded[s.FirstSeq()] = s
				continue
			}
			other, twice := l.known[s.Seq]
			if twice && (other == nil || other.Digest != s.Digest) {
				s = nil
			}
			l.known[segments[i].Seq] = s
		}
	}
}

// refuseIndexes records a fault for each index with an error. errs is parallel to the indexes.
func (l *lineageLoad) refuseIndexes(errs []error) {
	for i, err := range errs {
		if err != nil {
			err = fmt.Errorf("%w: delete this index; until then the log is read from its segments, which only takes longer", err)
			l.refused = append(l.refused, catalog.Fault{Key: catalog.IndexKey(l.log.store.Cluster, l.folder.lineage, l.folder.indexes[i]), Err: err})
		}
	}
}

// makeSlots makes one slot for each folded segment, and one for each other segment of the listing.
func (l *lineageLoad) makeSlots() {
	var last uint64 // seq of the latest folded segment
	for i := range l.folder.segments.runs {
		r := &l.folder.segments.runs[i]
		for seq := max(r.first, last+1); seq <= r.last; seq++ {
			folded := l.folded[seq]
			if folded != nil {
				l.slots = append(l.slots, slot{listed: listed{seq: folded.Seq, size: folded.Size}, segment: folded, indexed: true})
				last, seq = folded.Seq, folded.Seq
				continue
			}
			s := slot{listed: listed{seq, r.size(seq)}}
			if r.pack != nil && s.size == 0 {
				s = slot{listed: listed{seq: r.last}, begins: seq, err: l.whyUnreadable(r.pack, seq)}
				seq = r.last
			}
			l.slots = append(l.slots, s)
		}
	}
}

// whyUnreadable returns why the segments in p cannot be read from seq on.
func (l *lineageLoad) whyUnreadable(p *pack, seq uint64) error {
	i, _ := slices.BinarySearch(l.folder.indexes, p.first)
	key := catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, seq)
	if l.damaged[i] == nil || records.IsAbsent(l.damaged[i]) { // a prune has removed the pack
		return Missing(key)
	}
	return fmt.Errorf("%s: %w", key, l.damaged[i])
}

// fillFromIndexes fills each slot whose segment is in an index with the listed size.
func (l *lineageLoad) fillFromIndexes() {
	for i := range l.slots {
		s := &l.slots[i]
		known := l.known[s.seq]
		if known != nil && known.Size == s.size {
			s.segment, s.indexed = known, true
		}
	}
}

// emptyDoubtfulSlots empties the slots that come from an index and break the chain of digests. It reports whether it emptied any. An
// archiver that lost a race can have indexed its own segment in place of the winner's.
func (l *lineageLoad) emptyDoubtfulSlots() (any bool) {
	for i := 1; i < len(l.slots); i++ {
		a, b := &l.slots[i-1], &l.slots[i]
		if !a.contradicts(b) || a.segment.Folded+b.segment.Folded > 0 { // doubtFolded handles folded segments
			continue
		}
		for _, s := range []*slot{a, b} {
			if s.recent {
				l.emptyRecent() // all at once, because one object contains all
				any = true
			}
			if s.indexed {
				s.segment, s.indexed, any = nil, false, true
			}
		}
	}
	return any
}

// contradicts reports whether b follows s in the listing but continues another segment.
func (s *slot) contradicts(b *slot) bool {
	return s.segment != nil && b.segment != nil && b.first() == s.seq+1 && b.segment.Previous != s.segment.Digest
}

// readHeaders reads the headers for all empty slots.
func (l *lineageLoad) readHeaders(ctx context.Context) error {
	empty := l.empty()
	return records.Parallel(ctx, headReaders, len(empty), func(ctx context.Context, i int) error {
		return l.readHeader(ctx, empty[i])
	})
}

// empty returns the slots that have neither a segment nor an error.
func (l *lineageLoad) empty() (slots []*slot) {
	for i := range l.slots {
		s := &l.slots[i]
		if s.segment == nil && s.err == nil {
			slots = append(slots, s)
		}
	}
	return slots
}

// readHeader fills s with its header, or with the reason why the segment is unusable. It returns an error only if the failure is
// not the segment's, for example if the store is unreachable.
func (l *lineageLoad) readHeader(ctx context.Context, s *slot) error {
	key := catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, s.seq)
	known, ok := l.log.Headers.get(key, s.size)
	if ok { // a segment that was not listed has size 0 and is always read
		s.segment = &known
		return nil
	}
	read, err := l.log.ReadSegment(ctx, l.folder.lineage, s.seq)
	switch {
	case err == nil:
		s.segment = &read
		l.log.Headers.remember(key, read)
	case records.IsAbsent(err):
		s.err = Missing(catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, s.seq))
	case errors.Is(err, catalog.ErrDamaged):
		s.err = err
	default:
		return err
	}
	return nil
}

// findMissing returns a fault for each run of missing segments. A listing can omit segments that were stored while it ran, so
// findMissing reads the segments of a hole by name until one is missing.
func (l *lineageLoad) findMissing(ctx context.Context) ([]catalog.Fault, error) {
	var runs []catalog.Fault
	var late []slot
	for _, run := range l.holes() {
		for ; run.Seq <= run.Upto; run.Seq++ {
			s := slot{listed: listed{seq: run.Seq}}
			err := l.readHeader(ctx, &s)
			if err != nil {
				return nil, err
			}
			if errors.Is(s.err, catalog.ErrNotFound) {
				break
			}
			late = append(late, s)
		}
		if run.Seq <= run.Upto {
			runs = append(runs, l.missing(run))
		}
	}
	l.slots = append(l.slots, late...)
	slices.SortFunc(l.slots, func(a, b slot) int { return cmp.Compare(a.seq, b.seq) })
	return runs, nil
}

// holes returns the runs of seqs that were not listed, between the lowest and the highest seq that is listed or in an index.
func (l *lineageLoad) holes() []catalog.Fault {
	var holes []catalog.Fault
	first, last := l.bounds()
	next := first
	for _, s := range l.slots {
		if s.first() > next {
			holes = append(holes, catalog.Fault{Seq: next, Upto: s.first() - 1})
		}
		next = s.seq + 1
	}
	if next <= last && next != 0 { // 0: nothing is listed or in an index
		holes = append(holes, catalog.Fault{Seq: next, Upto: last})
	}
	return holes
}

// bounds returns the lowest and the highest seq that is listed or in an index; 0 if there is none.
func (l *lineageLoad) bounds() (first, last uint64) {
	n := len(l.slots)
	if n > 0 {
		first, last = l.slots[0].seq, l.slots[n-1].seq
	}
	for seq := range l.known {
		if first == 0 || seq < first {
			first = seq
		}
		last = max(last, seq)
	}
	if first > 0 && l.wanted != allSeqs { // the caller asks for a range because its segments existed
		return max(l.wanted.first, l.folder.pruned+1), l.wanted.last
	}
	return first, last
}

// missing returns run with its key and error, and with those of its positions that an index contains.
func (l *lineageLoad) missing(run catalog.Fault) catalog.Fault {
	run.Key = catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, run.Seq)
	run.Err = Missing(run.Key)
	if run.Upto > run.Seq {
		run.Err = fmt.Errorf("%w, and so are those after it up to seq %d", run.Err, run.Upto)
	}
	s := l.known[run.Seq]
	if s != nil {
		run.First = s.First
	}
	s = l.known[run.Upto]
	if s != nil {
		run.Last = s.Last
	}
	return run
}

// lineageWith returns the lineage of the filled slots. It adds a fault for each empty slot to faults.
func (l *lineageLoad) lineageWith(faults []catalog.Fault) catalog.Lineage {
	lineage := catalog.Lineage{ID: l.folder.lineage, Pruned: l.folder.pruned, Segments: make([]catalog.Segment, 0, len(l.slots)), Faults: faults}
	for _, s := range l.slots {
		if s.segment != nil {
			lineage.Segments = append(lineage.Segments, *s.segment)
			continue
		}
		fault := catalog.Fault{Key: catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, s.first()), Seq: s.first(), Upto: s.seq, Err: s.err}
		first, last := l.known[fault.Seq], l.known[fault.Upto]
		if first != nil && last != nil {
			fault.First, fault.Last = first.First, last.Last
		}
		lineage.Faults = append(lineage.Faults, fault)
	}
	return lineage
}

// sortByHistory returns lineages sorted by the time at which their first segment was written, oldest first. A lineage always
// comes after the one that it follows, even if the clocks differed.
func sortByHistory(lineages []catalog.Lineage) []catalog.Lineage {
	slices.SortStableFunc(lineages, func(a, b catalog.Lineage) int {
		return cmp.Or(a.FirstWritten().Compare(b.FirstWritten()), cmp.Compare(a.ID, b.ID))
	})
	waiting := map[string]bool{}
	for _, l := range lineages {
		waiting[l.ID] = true
	}
	sorted := make([]catalog.Lineage, 0, len(lineages))
	for len(lineages) > 0 {
		next := max(0, slices.IndexFunc(lineages, func(l catalog.Lineage) bool { // -1 only for a cycle, which dr never writes
			after := l.After()
			return after == nil || !waiting[after.Lineage]
		}))
		sorted = append(sorted, lineages[next])
		delete(waiting, lineages[next].ID)
		lineages = slices.Delete(lineages, next, next+1)
	}
	return sorted
}
