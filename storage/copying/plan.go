package copying

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// plan is the work of a copy, in this order.
type plan struct {
	deletions []catalog.ID // backups to delete at the target
	backups   []backup     // newest first, as the newest is needed first; with BackupsOnly oldest first
	log       []lineage
	versions  []version // of assets, oldest first
	result    Result    // the counts and faults that are known before anything is copied
}

// object is an object of the source.
type object struct {
	key     string
	size    int64 // bytes
	present bool  // the target has an object with that name and size
}

// backup is the work on one backup.
type backup struct {
	backup   catalog.Backup
	data     object
	proofs   []object
	manifest object
}

// lineage is the work on one lineage.
type lineage struct {
	id       string
	segments []segmentCopy // ascending by seq
	indexes  []index       // ascending by first seq
}

// segmentCopy is a segment to copy.
type segmentCopy struct {
	object
	segment catalog.Segment
}

// version is a version of assets to copy.
type version struct {
	assets.Manifest
	archive, manifest object
}

// index is an index of the log to copy.
type index struct {
	object
	first uint64 // seq of the first segment that it lists
}

// planner compares two sides and collects the plan.
type planner struct {
	source, target side
	since          time.Time
	bases          map[catalog.ID]bool // backups that copied segments need
	plan           plan
}

// planCopy returns the plan that copies the objects which source has and target lacks. It is pure.
func planCopy(source, target side, o Options) plan {
	p := planner{source: source, target: target, since: o.Since, bases: map[catalog.ID]bool{}}
	p.plan.result.Faults = slices.Clone(source.ignored)
	for _, f := range target.ignored {
		p.fault(f.Key, f.Err)
	}
	for _, d := range slices.Concat(source.catalog.Damaged, source.catalog.Untrusted) {
		p.fault(catalog.ManifestKey(source.c.Records().Cluster, d.ID), d.Err)
	}
	if !o.BackupsOnly {
		for _, l := range source.catalog.Lineages { // before the backups, as lineage finds the bases to keep
			p.lineage(l)
		}
		for _, f := range slices.Backward(source.folders) {
			if source.deleted[f.ID] {
				p.deletion(f.ID, o.Deletions)
			}
		}
	}
	for _, v := range slices.Backward(source.assets) {
		p.version(v)
	}
	for _, b := range source.catalog.All() {
		p.backup(b)
	}
	if o.BackupsOnly {
		slices.Reverse(p.plan.backups)
	}
	return p.plan
}

func (p *planner) fault(key string, err error) {
	p.plan.result.Faults = append(p.plan.result.Faults, Fault{key, err})
}

// object returns the source's object under key. It adds a fault and is not ok if the target has one of another size there.
func (p *planner) object(key string) (o object, ok bool) {
	o = object{key: key, size: p.source.sizes[key]}
	var size int64
	size, o.present = p.target.sizes[key]
	if o.present && size != o.size {
		p.fault(key, differs(key, fmt.Sprintf("it has %d bytes, the source's %d", size, o.size)))
		return o, false
	}
	return o, true
}

func differs(key, how string) error { return fmt.Errorf("%s: %w: %s", key, ErrDiffers, how) }

// deletion plans to delete a backup at the target if the caller has asked for it, and the backup is there and not pinned.
func (p *planner) deletion(id catalog.ID, asked bool) {
	_, present := p.target.sizes[catalog.ManifestKey(p.target.c.Records().Cluster, id)]
	switch {
	case p.target.deleted[id]:
		p.plan.result.Present++
	case !asked || !present || p.target.pinned[id]:
		p.plan.result.LeftOut++
	default:
		p.plan.deletions = append(p.plan.deletions, id)
	}
}

// version plans to copy a version of assets. It adds a fault if the version cannot be used, or the target has another of its name.
func (p *planner) version(v assets.Version) {
	key := p.source.c.Assets().ManifestKey(v.Manifest)
	i := slices.IndexFunc(p.target.assets, func(t assets.Version) bool { return t.Node == v.Node && t.ID == v.ID && t.Err == nil })
	switch {
	case v.Err != nil:
		p.fault(key, v.Err)
	case i < 0:
		archive := object{key: p.source.c.Assets().ArchiveKey(v.Manifest), size: v.Stored.Size}
		p.plan.versions = append(p.plan.versions, version{v.Manifest, archive, object{key: key, size: v.Listed}})
	case p.target.assets[i].Stored != v.Stored:
		p.fault(key, differs(key, "it describes another archive"))
	default:
		p.plan.result.Present += 2
	}
}

// backup plans to copy b, unless it is deleted on either side or from before since.
func (p *planner) backup(b catalog.Backup) {
	if p.source.deleted[b.ID] { // after the catalog was read
		return
	}
	began := b.Started
	if b.Origin != nil {
		began = b.Origin.Imported
	}
	if p.target.deleted[b.ID] || began.Before(p.since) && !p.bases[b.ID] {
		p.plan.result.LeftOut++
		return
	}
	manifest, ok := p.object(catalog.ManifestKey(p.source.c.Records().Cluster, b.ID))
	if !ok {
		return
	}
	data, ok := p.object(catalog.BackupKey(p.source.c.Records().Cluster, b.ID, b.Stored.Name))
	if !ok {
		return
	}
	p.plan.backups = append(p.plan.backups, backup{backup: b, data: data, manifest: manifest, proofs: p.proofs(b.ID)})
}

// proofs returns the source's proofs of a backup.
func (p *planner) proofs(id catalog.ID) (proofs []object) {
	i, found := slices.BinarySearchFunc(p.source.folders, id, func(f backups.Folder, id catalog.ID) int { return cmp.Compare(f.ID, id) })
	if !found {
		return nil
	}
	for _, listed := range p.source.folders[i].Objects {
		if !strings.HasPrefix(path.Base(listed.Key), catalog.ProofPrefix) {
			continue
		}
		o, ok := p.object(listed.Key)
		if ok {
			proofs = append(proofs, o)
		}
	}
	return proofs
}

// lineage plans to copy the segments of l that leftOut keeps, and its indexes. With since it reports only the faults from the
// first copied segment on.
func (p *planner) lineage(l catalog.Lineage) {
	stretches := l.Stretches() // the segments that are in none of them are among the faults
	work := lineage{id: l.ID}
	var lowest uint64 // the first seq to copy; 0: none
	for _, s := range stretches {
		from := p.leftOut(s)
		p.plan.result.LeftOut += from
		for _, segment := range s.Segments[from:] {
			if segment.Seq <= p.target.pruned[l.ID] {
				p.plan.result.LeftOut++
				continue
			}
			if lowest == 0 {
				lowest = segment.Seq
			}
			o, ok := p.segment(segment)
			if ok {
				work.segments = append(work.segments, segmentCopy{o, segment})
			}
		}
	}
	for _, f := range l.Faults {
		if p.since.IsZero() || lowest != 0 && f.Upto >= lowest {
			p.fault(f.Key, f.Err)
		}
	}
	for _, first := range p.source.indexes[l.ID] {
		key := catalog.IndexKey(p.source.c.Records().Cluster, l.ID, first)
		if p.since.IsZero() && slices.ContainsFunc(l.Faults, func(f catalog.Fault) bool { return f.Key == key }) {
			continue // reported above
		}
		o, ok := p.object(key)
		if ok {
			work.indexes = append(work.indexes, index{o, first})
		}
	}
	p.plan.log = append(p.plan.log, work)
}

// segment is like object, and also compares the digests of the headers if the target has the segment.
func (p *planner) segment(s catalog.Segment) (object, bool) {
	o, ok := p.object(catalog.SegmentKey(p.source.c.Records().Cluster, s.Lineage, s.Seq))
	if ok && o.present && p.target.headers[o.key] != s.Digest {
		p.fault(o.key, differs(o.key, "its header is not the source's"))
		return o, false
	}
	return o, ok
}

// leftOut returns how many segments at the beginning of s to leave out. It keeps those that began at or after since, the newest
// base before them, and the segments between. It records that base in p.bases.
func (p *planner) leftOut(s catalog.Stretch) int {
	if p.since.IsZero() {
		return 0
	}
	kept := slices.IndexFunc(s.Segments, func(s catalog.Segment) bool { return !s.Began().Before(p.since) })
	if kept < 0 {
		return len(s.Segments)
	}
	for _, b := range p.source.catalog.Bases(s) { // newest first
		begin, end := b.Span(s.Source())
		if end < s.Segments[kept].First {
			p.bases[b.ID] = true
			return min(kept, s.SegmentIndex(begin+1))
		}
	}
	return kept
}

// bytes returns the total size of the objects to copy.
func (p plan) bytes() (total int64) {
	add := func(o object) {
		if !o.present {
			total += o.size
		}
	}
	for _, b := range p.backups {
		for _, o := range slices.Concat([]object{b.data, b.manifest}, b.proofs) {
			add(o)
		}
	}
	for _, l := range p.log {
		for _, s := range l.segments {
			add(s.object)
		}
		for _, x := range l.indexes {
			add(x.object)
		}
	}
	for _, v := range p.versions {
		add(v.archive)
		add(v.manifest)
	}
	return total
}
