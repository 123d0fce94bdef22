package catalog

import (
	"fmt"
	"slices"
)

// FoldOf returns the folded segment that includes segment seq of the lineage. It is not ok if seq is missing or not folded.
func (c Catalog) FoldOf(lineage string, seq uint64) (folded Segment, ok bool) {
	for _, l := range c.Lineages {
		if l.ID != lineage {
			continue
		}
		i := l.indexOf(seq)
		if i >= 0 {
			return l.Segments[i], l.Segments[i].Folded > 0
		}
	}
	return Segment{}, false
}

// Unfold returns c with folded replaced by segments, which must be those that it was folded from. It returns c itself if
// folded is not in it.
func (c Catalog) Unfold(folded Segment, segments []Segment) Catalog {
	at := slices.IndexFunc(c.Lineages, func(l Lineage) bool { return l.ID == folded.Lineage })
	if at < 0 {
		return c
	}
	i := c.Lineages[at].indexOf(folded.Seq)
	if i < 0 {
		return c
	}
	c.Lineages = slices.Clone(c.Lineages)
	l := &c.Lineages[at]
	l.Segments = slices.Concat(l.Segments[:i], segments, l.Segments[i+1:])
	return c
}

// WindowFolds returns the folded segments that contain the beginning of a window. Until they are unfolded, Window.Segments
// and Window.Bytes of these windows can be too high.
func (c Catalog) WindowFolds() (folds []Segment) {
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			bases := c.Bases(s)
			if len(bases) == 0 {
				continue
			}
			begin, _ := s.oldest(bases).Span(s.Source())
			i := min(s.SegmentIndex(begin+1), len(s.Segments)-1)
			if s.Segments[i].Folded > 0 {
				folds = append(folds, s.Segments[i])
			}
		}
	}
	return folds
}

// Catalog describes the contents of a repository for one cluster, as they were when it was loaded.
type Catalog struct {
	Cluster string
	Backups []Backup // of the live cluster, newest first, by the times in their manifests
	// Imported are the backups with an Origin, newest first. They belong to no history: only All and Find return them.
	Imported []Backup
	Damaged  []Damage // newest first by name
	// Untrusted are backups without the signature of a trusted key, newest first by name. They may be forged and are never
	// used.
	Untrusted []Damage
	// Ignored are tombstones, pins and unpins that are damaged or not trusted, and so have no effect, and proofs that cannot
	// be read.
	Ignored []Damage

	Lineages []Lineage // of the log, oldest first by their headers; nil unless the log was loaded

	Signed bool // a trusted key has signed all Backups and Segments
}

// Damage is an object that cannot be used. Err names the object and the cause. It matches ErrDamaged, and sign.ErrUntrusted
// if the object is not trusted.
type Damage struct {
	ID  ID
	Err error
}

// All returns Backups, followed by Imported.
func (c Catalog) All() []Backup { return slices.Concat(c.Backups, c.Imported) }

// Find returns the backup called id. The error matches ErrNotFound if it is missing. If it cannot be used, the error is the
// Err of its Damage.
func (c Catalog) Find(id ID) (Backup, error) {
	for _, b := range c.All() {
		if b.ID == id {
			return b, nil
		}
	}
	for _, d := range slices.Concat(c.Damaged, c.Untrusted) {
		if d.ID == id {
			return Backup{}, d.Err
		}
	}
	return Backup{}, fmt.Errorf("backup %s of cluster %s is %w: dr list shows the backups", id, c.Cluster, ErrNotFound)
}

// DamagedLive returns the damaged backups of the live cluster, which Backups would contain if they were readable.
func (c Catalog) DamagedLive() []Damage {
	return slices.DeleteFunc(slices.Clone(c.Damaged), func(d Damage) bool { return d.ID.IsImport() })
}

// Latest returns the newest backup of the live cluster. The error matches ErrNotFound if there is no backup. It matches
// ErrDamaged if a newer backup than the newest good one is damaged, since only the operator can decide to use an older one.
// Untrusted backups are skipped: otherwise an attacker could block every restore by adding a forged one.
func (c Catalog) Latest() (Backup, error) {
	c.Damaged = c.DamagedLive()
	if len(c.Backups) == 0 && len(c.Damaged) == 0 && len(c.Untrusted) == 0 && len(c.Imported) > 0 {
		return Backup{}, fmt.Errorf("a backup of the live cluster %s is %w, only imported ones: name one by its ID, which dr list shows",
			c.Cluster, ErrNotFound)
	}
	if len(c.Backups) == 0 && len(c.Damaged) == 0 && len(c.Untrusted) > 0 {
		return Backup{}, fmt.Errorf("no backup of cluster %s is trusted: %w", c.Cluster, c.Untrusted[0].Err)
	}
	if len(c.Backups) == 0 && len(c.Damaged) == 0 {
		return Backup{}, fmt.Errorf("a backup of cluster %s is %w: check --repo and --cluster, name an imported one by its ID (dr list), or take one with dr backup",
			c.Cluster, ErrNotFound)
	}
	if len(c.Backups) == 0 {
		return Backup{}, fmt.Errorf("no backup of cluster %s can be used: %w", c.Cluster, c.Damaged[0].Err)
	}
	newest := c.Backups[0]
	for _, d := range c.Damaged {
		if d.ID > newest.ID {
			return Backup{}, fmt.Errorf("the newest backup of cluster %s cannot be used: %w; the newest whole one is %s, ask for it by name",
				c.Cluster, d.Err, newest.ID)
		}
	}
	return newest, nil
}
