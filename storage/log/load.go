package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// headReaders is how many headers are read at once: each takes a round trip and hardly any memory.
const (
	headReaders  = 32 // headers read at once
	indexReaders = 8
)

// logFolder is what the listing shows of one lineage.
type logFolder struct {
	lineage  string
	segments listing  // without those that are pruned
	indexes  []uint64 // their first seqs, ascending

	tombstones []uint64        // the seqs that they go up to, ascending
	pruned     uint64          // the highest of them that counts
	ignored    []catalog.Fault // tombstones above it, and what cannot be listed
}

// upToNext is what the i-th index says without what the next one says too: two agents may have made one each.
func (f logFolder) upToNext(segments []catalog.Segment, i int) []catalog.Segment {
	if i+1 == len(f.indexes) || len(segments) == 0 {
		return segments
	}
	return segments[:min(uint64(len(segments)), f.indexes[i+1]-f.indexes[i])]
}

// nextIndex returns the first seq of the index after the i-th, 0 if there is none.
func (f logFolder) nextIndex(i int) uint64 {
	if i+1 == len(f.indexes) {
		return 0
	}
	return f.indexes[i+1]
}

// shorten leaves of each segment that is not listed with its size only the bounds, for the report that it is missing. A header
// then takes memory for long only if its segment takes as much of the store.
func (f logFolder) shorten(segments []catalog.Segment) {
	for i := range segments {
		s := &segments[i]
		if s.Folded == 0 && !f.segments.has(*s) {
			bounds := segment.Header{Cluster: s.Cluster, Lineage: s.Lineage, Seq: s.Seq, First: s.First, Last: s.Last}
			*s = catalog.Segment{Header: bounds, Digest: s.Digest, Size: s.Size}
		}
	}
}

// logFolders lists the log, without what is pruned.
func (log *Log) logFolders(ctx context.Context) ([]logFolder, error) {
	folders, err := log.listLog(ctx)
	if err != nil {
		return nil, err
	}
	for i := range folders {
		if err := log.leaveOutPruned(ctx, &folders[i]); err != nil {
			return nil, err
		}
	}
	return folders, nil
}

func (log *Log) listLog(ctx context.Context) ([]logFolder, error) {
	var folders []logFolder
	held := 0 // what takes more than the four bytes of a segment that follows another
	for object, err := range log.store.Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(log.store.Cluster)}) {
		if f, ok := log.UnlistedLineage(err); ok {
			folders = append(folders, f)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the log of cluster %s: %w", log.store.Cluster, err)
		}
		name, ok := catalog.SplitLogKey(log.store.Cluster, object.Key)
		if !ok {
			continue // a stranger's file
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
		switch name.Kind {
		case catalog.LogIndex:
			f.indexes = append(f.indexes, name.Seq)
		case catalog.LogTombstoned:
			f.tombstones = append(f.tombstones, name.Seq)
		case catalog.LogSegment:
			f.segments.add(name.Seq, object.Size)
		}
	}
	return folders, nil
}

// unlistedLineage returns the lineage's folder that err leaves out of a listing, if it is one.
func (log *Log) UnlistedLineage(err error) (f logFolder, ok bool) {
	u, ok := errors.AsType[*storage.UnlistedError](err)
	if !ok {
		return logFolder{}, false
	}
	id, below := strings.CutPrefix(strings.TrimSuffix(u.Prefix, "/"), catalog.LogPrefix(log.store.Cluster))
	fault := catalog.Fault{Key: u.Prefix, Err: fmt.Errorf("%s: %w", u.Prefix, records.ReadError(err))}
	return logFolder{lineage: id, ignored: []catalog.Fault{fault}}, below && catalog.ValidLineage(id) == nil
}

// lineagesAtOnce bounds the memory for indexes, of which each lineage has up to readers in hand.
const lineagesAtOnce = 4

// loadLog reads the log: a listing, the indexes, and the headers of segments that are in none. With details no Segment stands
// for others.
func (log *Log) Load(ctx context.Context, details bool) ([]catalog.Lineage, error) {
	folders, err := log.logFolders(ctx)
	if err != nil {
		return nil, err
	}
	lineages := make([]catalog.Lineage, len(folders))
	err = records.Parallel(ctx, lineagesAtOnce, len(folders), func(ctx context.Context, i int) (err error) {
		lineages[i], err = log.loadLineage(ctx, folders[i], details)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of cluster %s: %w", log.store.Cluster, err)
	}
	return inHistory(lineages), nil
}

// LoadLineage reads one lineage of the log, as Load does. One that is not there gives ErrNotFound.
func (log *Log) LoadLineage(ctx context.Context, id string) (catalog.Lineage, error) {
	if err := catalog.ValidLineage(id); err != nil {
		return catalog.Lineage{}, err
	}
	folders, err := log.logFolders(ctx)
	if err != nil {
		return catalog.Lineage{}, err
	}
	for _, f := range folders {
		if f.lineage == id {
			return log.loadLineage(ctx, f, false)
		}
	}
	return catalog.Lineage{}, fmt.Errorf("lineage %s of cluster %s is %w", id, log.store.Cluster, catalog.ErrNotFound)
}

// lineageLoad is the work on one lineage.
type lineageLoad struct {
	log     *Log
	folder  logFolder
	details bool                // nothing is folded
	doubted map[uint64]bool     // the indexes, by their first seq, that are not folded: whether what they list is whole is in doubt
	indexes [][]catalog.Segment // in the order of folder.indexes; nil where one cannot be used

	known   map[uint64]*catalog.Segment // what the indexes say; nil where they contradict each other
	runs    map[uint64]*catalog.Segment // what was folded of them, by the first seq
	slots   []slot                      // ascending by seq
	refused []catalog.Fault             // the indexes that cannot be used, ascending by their first seq
}

// slot is one segment of the listing.
type slot struct {
	listed
	segment *catalog.Segment // nil: not read yet, or it cannot be used
	indexed bool             // the segment is what an index says
	err     error            // why it cannot be used
}

// first is the first seq that s has.
func (s slot) first() uint64 {
	if s.segment != nil {
		return s.segment.FirstSeq()
	}
	return s.seq
}

func (log *Log) loadLineage(ctx context.Context, f logFolder, details bool) (catalog.Lineage, error) {
	l := lineageLoad{log: log, folder: f, details: details, doubted: map[uint64]bool{}, indexes: make([][]catalog.Segment, len(f.indexes))}
	unread := f.indexes
	for {
		err := l.readIndexes(ctx, unread)
		if err != nil {
			return catalog.Lineage{}, err
		}
		lineage, err := l.lineage(ctx)
		if err != nil {
			return catalog.Lineage{}, err
		}
		unread = l.doubtRuns(lineage) // of which segments it is true is to be reported
		if len(unread) == 0 {
			return lineage, nil
		}
	}
}

// lineage makes a Lineage of what the indexes list and of the headers of all other segments.
func (l *lineageLoad) lineage(ctx context.Context) (catalog.Lineage, error) {
	l.learn()
	l.lay()
	l.believeIndexes()
	for again := true; again; again = l.doubtIndexes() {
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

// doubtRuns returns the indexes that were folded into what does not fit. They are not folded again.
func (l *lineageLoad) doubtRuns(lineage catalog.Lineage) (indexes []uint64) {
	doubt := func(run *catalog.Segment) {
		if run.Folded > 0 && !l.doubted[run.IndexSeq()] {
			l.doubted[run.IndexSeq()] = true
			indexes = append(indexes, run.IndexSeq())
		}
	}
	for i := 1; i < len(l.slots); i++ {
		if a, b := &l.slots[i-1], &l.slots[i]; a.contradicts(b) {
			doubt(a.segment)
			doubt(b.segment)
		}
	}
	for _, f := range lineage.Faults {
		if run := l.runs[f.Seq]; run != nil && errors.Is(f.Err, catalog.ErrDamaged) {
			doubt(run)
		}
	}
	return indexes
}

// readIndexes reads those indexes. One that is damaged, or was pruned meanwhile, costs time and nothing else.
func (l *lineageLoad) readIndexes(ctx context.Context, firsts []uint64) error {
	refused := make([]error, len(l.indexes))
	err := records.Parallel(ctx, indexReaders, len(firsts), func(ctx context.Context, n int) error {
		i, _ := slices.BinarySearch(l.folder.indexes, firsts[n])
		l.indexes[i] = nil
		key, folds := catalog.IndexKey(l.log.store.Cluster, l.folder.lineage, firsts[n]), !l.details && !l.doubted[firsts[n]]
		if folds {
			kept, ok := l.log.Headers.fold(key, l.folder.segments, l.folder.nextIndex(i))
			if ok {
				l.indexes[i] = kept
				return nil
			}
		}
		segments, err := l.log.readIndex(ctx, l.folder.lineage, firsts[n])
		if errors.Is(err, catalog.ErrDamaged) {
			refused[i] = err
			return nil
		}
		if records.IsAbsent(err) {
			return nil
		}
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

// learn fills known and runs from the indexes.
func (l *lineageLoad) learn() {
	l.known, l.runs, l.slots = map[uint64]*catalog.Segment{}, map[uint64]*catalog.Segment{}, nil
	for _, segments := range l.indexes {
		for i := range segments {
			s := &segments[i]
			if s.Seq <= l.folder.pruned {
				continue
			}
			if s.Folded > 0 {
				l.runs[s.FirstSeq()] = s
				continue
			}
			if other, twice := l.known[s.Seq]; twice && (other == nil || other.Digest != s.Digest) {
				s = nil
			}
			l.known[segments[i].Seq] = s
		}
	}
}

// refuseIndexes makes a fault of each index that cannot be used.
func (l *lineageLoad) refuseIndexes(errs []error) {
	for i, err := range errs {
		if err != nil {
			err = fmt.Errorf("%w: delete this index; until then the log is read from its segments, which only takes longer", err)
			l.refused = append(l.refused, catalog.Fault{Key: catalog.IndexKey(l.log.store.Cluster, l.folder.lineage, l.folder.indexes[i]), Err: err})
		}
	}
}

// lay makes a slot for each segment of the listing, one for all that were folded into one.
func (l *lineageLoad) lay() {
	var folded uint64 // up to that seq a run stands for all
	for one := range l.folder.segments.all() {
		if one.seq <= folded {
			continue
		}
		s := slot{listed: one}
		if run := l.runs[one.seq]; run != nil {
			s = slot{listed{run.Seq, run.Size}, run, true, nil}
			folded = run.Seq
		}
		l.slots = append(l.slots, s)
	}
}

// believeIndexes takes what the indexes say of the objects that have the size that they say.
func (l *lineageLoad) believeIndexes() {
	for i := range l.slots {
		s := &l.slots[i]
		if known := l.known[s.seq]; known != nil && known.Size == s.size {
			s.segment, s.indexed = known, true
		}
	}
}

// doubtIndexes takes back what they say where the chain does not fit, and reports whether there was anything: an
// archiver that lost a race may have indexed its own segment in place of the winner's.
func (l *lineageLoad) doubtIndexes() (any bool) {
	for i := 1; i < len(l.slots); i++ {
		a, b := &l.slots[i-1], &l.slots[i]
		if !a.contradicts(b) || a.segment.Folded+b.segment.Folded > 0 { // those are left to doubtRuns
			continue
		}
		for _, s := range []*slot{a, b} {
			if s.indexed {
				s.segment, s.indexed, any = nil, false, true
			}
		}
	}
	return any
}

// contradicts reports whether b follows s in the listing and continues another segment.
func (s *slot) contradicts(b *slot) bool {
	return s.segment != nil && b.segment != nil && b.first() == s.seq+1 && b.segment.Previous != s.segment.Digest
}

// readHeaders reads the segments' own headers where nothing is known yet.
func (l *lineageLoad) readHeaders(ctx context.Context) error {
	var unread []*slot
	for i := range l.slots {
		if s := &l.slots[i]; s.segment == nil && s.err == nil {
			unread = append(unread, s)
		}
	}
	return records.Parallel(ctx, headReaders, len(unread), func(ctx context.Context, i int) error {
		return l.readHeader(ctx, unread[i])
	})
}

// readHeader fills s. Only what says nothing about the segment, such as a store that is away, is an error.
func (l *lineageLoad) readHeader(ctx context.Context, s *slot) error {
	key := catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, s.seq)
	if known, ok := l.log.Headers.get(key, s.size); ok { // one that is not listed is asked for in any case
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

// findMissing returns the runs of seqs that should be there and are not. A listing may miss what was stored while it
// ran, so they are asked for by name before they are called missing.
func (l *lineageLoad) findMissing(ctx context.Context) ([]catalog.Fault, error) {
	var runs []catalog.Fault
	var late []slot
	for _, run := range l.holes() {
		for ; run.Seq <= run.Upto; run.Seq++ {
			s := slot{listed: listed{seq: run.Seq}}
			if err := l.readHeader(ctx, &s); err != nil {
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

// holes are the seqs between the first and the last that were listed or are known from an index, and were not listed.
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
	if next <= last && next != 0 {
		holes = append(holes, catalog.Fault{Seq: next, Upto: last})
	}
	return holes
}

// bounds are the lowest and the highest seq that are listed or known.
func (l *lineageLoad) bounds() (first, last uint64) {
	if n := len(l.slots); n > 0 {
		first, last = l.slots[0].seq, l.slots[n-1].seq
	}
	for seq := range l.known {
		if first == 0 || seq < first {
			first = seq
		}
		last = max(last, seq)
	}
	return first, last
}

// missing says what is known of a run that is missing.
func (l *lineageLoad) missing(run catalog.Fault) catalog.Fault {
	run.Key = catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, run.Seq)
	run.Err = Missing(run.Key)
	if run.Upto > run.Seq {
		run.Err = fmt.Errorf("%w, and so are the ones behind it to seq %d", run.Err, run.Upto)
	}
	if s := l.known[run.Seq]; s != nil {
		run.First = s.First
	}
	if s := l.known[run.Upto]; s != nil {
		run.Last = s.Last
	}
	return run
}

func (l *lineageLoad) lineageWith(faults []catalog.Fault) catalog.Lineage {
	lineage := catalog.Lineage{ID: l.folder.lineage, Pruned: l.folder.pruned, Segments: make([]catalog.Segment, 0, len(l.slots)), Faults: faults}
	for _, s := range l.slots {
		if s.segment != nil {
			lineage.Segments = append(lineage.Segments, *s.segment)
			continue
		}
		fault := catalog.Fault{Key: catalog.SegmentKey(l.log.store.Cluster, l.folder.lineage, s.seq), Seq: s.seq, Upto: s.seq, Err: s.err}
		if known := l.known[s.seq]; known != nil {
			fault.First, fault.Last = known.First, known.Last
		}
		lineage.Faults = append(lineage.Faults, fault)
	}
	return lineage
}

// inHistory sorts lineages, oldest first by when their first segment was written; clocks may differ, but none stands
// before the one that it comes after.
func inHistory(lineages []catalog.Lineage) []catalog.Lineage {
	slices.SortStableFunc(lineages, func(a, b catalog.Lineage) int {
		return cmp.Or(a.Begun().Compare(b.Begun()), cmp.Compare(a.ID, b.ID))
	})
	waiting := map[string]bool{}
	for _, l := range lineages {
		waiting[l.ID] = true
	}
	sorted := make([]catalog.Lineage, 0, len(lineages))
	for len(lineages) > 0 {
		next := max(0, slices.IndexFunc(lineages, func(l catalog.Lineage) bool { // in a circle, which nobody writes, any will do
			after := l.After()
			return after == nil || !waiting[after.Lineage]
		}))
		sorted = append(sorted, lineages[next])
		delete(waiting, lineages[next].ID)
		lineages = slices.Delete(lineages, next, next+1)
	}
	return sorted
}
