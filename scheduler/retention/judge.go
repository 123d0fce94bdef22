package retention

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// learnAfter is the number of far smaller backups in a row, of similar sizes, after which their size becomes the measure: the
// cluster was defragmented, or the size before was forged. The condition BackupShrunk ends at about the same time.
const learnAfter = 3

// judge sets the doubt of each candidate that is not good. Candidates are sorted newest first. doubtful is true for backups of
// histories that are not the cluster's own. The size of a backup that is not good is no measure for others.
func judge(candidates []*candidate, doubtful map[catalog.ID]bool, now time.Time) {
	var s sizes
	for _, c := range slices.Backward(candidates) {
		c.doubt = doubtOf(c, doubtful, now)
		if c.doubt == "" {
			s.judge(c)
		}
	}
	for _, c := range s.small {
		c.learning = true
	}
}

// sizes compares the sizes of the backups' databases, oldest first.
type sizes struct {
	measure *candidate   // the newest good backup
	small   []*candidate // backups after measure, far smaller than it, and of similar sizes

	// A learned size is valid until a backup has the earlier size again. Such a backup shows that the learned size was wrong:
	// pruning can leave small backups in a row that were taken far apart.
	before *candidate   // the measure that the learned size replaced; nil if none is learned
	since  []*candidate // good backups of the learned size
}

// judge compares c with the measure, and sets its doubt or makes it the measure.
func (s *sizes) judge(c *candidate) {
	switch {
	case s.returned(c):
		for _, small := range s.since {
			small.doubt = smallerThan(s.before, small)
		}
		*s = sizes{measure: c}
	case s.measure != nil && wasOpened(c.Backup): // its size is right, large or small
		*s = sizes{measure: c}
	case s.measure == nil || !c.FarSmaller(s.measure.Backup):
		s.measure, s.small = c, nil
		if s.before != nil {
			s.since = append(s.since, c)
		}
	default:
		c.doubt = smallerThan(s.measure, c)
		s.small = append(similarTo(c, s.small), c)
		if len(s.small) == learnAfter {
			s.learn(c)
		}
	}
}

// learn makes c's size the measure.
func (s *sizes) learn(c *candidate) {
	for _, small := range s.small {
		small.doubt = ""
	}
	s.since = append(s.since, s.small...)
	if s.before == nil {
		s.before = s.measure
	}
	s.measure, s.small = c, nil
}

// returned reports whether c is far larger than the learned size, and not far smaller than the size before.
func (s *sizes) returned(c *candidate) bool {
	return s.before != nil && s.measure.FarSmaller(c.Backup) && !c.FarSmaller(s.before.Backup)
}

func smallerThan(measure, c *candidate) string {
	return fmt.Sprintf("its database has %d bytes, the last good one had %d: verify it to make it count", c.Plain.Size, measure.Plain.Size)
}

// similarTo returns small if the size of c is similar to the sizes of all in small, otherwise nil.
func similarTo(c *candidate, small []*candidate) []*candidate {
	other := func(s *candidate) bool { return s.FarSmaller(c.Backup) || c.FarSmaller(s.Backup) }
	if slices.ContainsFunc(small, other) {
		return nil
	}
	return small
}

func doubtOf(c *candidate, doubtful map[catalog.ID]bool, now time.Time) string {
	err := c.CheckUsable()
	if err != nil {
		return err.Error()
	}
	level, _ := c.Best()
	if level == "" {
		return "it failed a check, and has not passed it since"
	}
	if catalog.IsFuture(c.Started, now) {
		return "it has a time in the future"
	}
	if doubtful[c.ID] {
		return fmt.Sprintf("it is of cluster id %s, and no restore by dr explains that history: dr pin ID --confirm makes it count", c.ClusterID)
	}
	return ""
}

// wasOpened reports whether a check has opened b's database, which makes its size credible.
func wasOpened(b catalog.Backup) bool {
	level, _ := b.Best()
	return level.Rank() >= catalog.Opened.Rank()
}
