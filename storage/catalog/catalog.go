package catalog

import (
	"fmt"
	"slices"
)

// FoldOf returns the segment of a lineage that stands for the one called seq and for others; false if that one stands for itself,
// or is not there.
func (c Catalog) FoldOf(lineage string, seq uint64) (folded Segment, ok bool) {
	for _, l := range c.Lineages {
		if l.ID != lineage {
			continue
		}
		if i := l.holding(seq); i >= 0 {
			return l.Segments[i], l.Segments[i].Folded > 0
		}
	}
	return Segment{}, false
}

// Unfold returns c with the segments that folded stands for in its place.
func (c Catalog) Unfold(folded Segment, segments []Segment) Catalog {
	at := slices.IndexFunc(c.Lineages, func(l Lineage) bool { return l.ID == folded.Lineage })
	if at < 0 {
		return c
	}
	i := c.Lineages[at].holding(folded.Seq)
	if i < 0 {
		return c
	}
	c.Lineages = slices.Clone(c.Lineages)
	l := &c.Lineages[at]
	l.Segments = slices.Concat(l.Segments[:i], segments, l.Segments[i+1:])
	return c
}

// WindowFolds returns the folded segments with which windows begin. Until they are unfolded, these windows count some segments
// too many.
func (c Catalog) WindowFolds() (folds []Segment) {
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			bases := c.Bases(s)
			if len(bases) == 0 {
				continue
			}
			begin, _ := s.oldest(bases).Span(s.Source())
			i := min(s.Holding(begin+1), len(s.Segments)-1)
			if s.Segments[i].Folded > 0 {
				folds = append(folds, s.Segments[i])
			}
		}
	}
	return folds
}

// Catalog is what the repository holds of one cluster, as a value.
type Catalog struct {
	Cluster string
	Backups []Backup // newest first, by the times in their manifests
	Damaged []Damage // what looks like a backup and is none, newest first by name
	// Untrusted is what no trusted key has signed, newest first by name: it may be forged, and counts for nothing.
	Untrusted []Damage
	// Ignored are tombstones that are damaged or not trusted, and so delete nothing, pins and what lifts them likewise, and
	// proofs that cannot be read.
	Ignored []Damage

	Lineages []Lineage // of the log, oldest first by their headers; only if it was asked for

	Signed bool // a trusted key has signed the backups and the segments
}

// Damage is a backup that cannot be used, and why. Err matches ErrDamaged, and sign.ErrUntrusted where that is why, and
// names the object.
type Damage struct {
	ID  ID
	Err error
}

// Find returns the backup called id. An absent one gives ErrNotFound, a damaged one ErrDamaged.
func (c Catalog) Find(id ID) (Backup, error) {
	for _, b := range c.Backups {
		if b.ID == id {
			return b, nil
		}
	}
	for _, d := range slices.Concat(c.Damaged, c.Untrusted) {
		if d.ID == id {
			return Backup{}, d.Err
		}
	}
	return Backup{}, fmt.Errorf("backup %s of cluster %s is %w: dr list shows what is there", id, c.Cluster, ErrNotFound)
}

// Latest returns the newest backup. If a newer one is damaged it gives ErrDamaged: whether to go back further is for a
// person to say. What is not trusted is passed over, or whoever can write there could hide every backup behind a forged
// one. An empty catalog gives ErrNotFound.
func (c Catalog) Latest() (Backup, error) {
	if len(c.Backups) == 0 && len(c.Damaged) == 0 && len(c.Untrusted) > 0 {
		return Backup{}, fmt.Errorf("no backup of cluster %s is trusted: %w", c.Cluster, c.Untrusted[0].Err)
	}
	if len(c.Backups) == 0 && len(c.Damaged) == 0 {
		return Backup{}, fmt.Errorf("a backup of cluster %s is %w: check --repo and --cluster, or take one with dr backup",
			c.Cluster, ErrNotFound)
	}
	if len(c.Backups) == 0 {
		return Backup{}, fmt.Errorf("every backup of cluster %s is damaged: %w", c.Cluster, c.Damaged[0].Err)
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
