package retention

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	// clockAllowance is by how much the clocks of those who take backups and of those who prune may differ.
	clockAllowance = 5 * time.Minute
	// learned is how many far smaller backups in a row, all of a similar size, make that size the measure: a defragmentation,
	// or a forged size before them. The condition BackupShrunk ends about then too.
	learned = 3
)

// judge finds why each candidate, newest first, is not good; doubtful are backups of a history that is not the cluster's own.
// A backup that is not good is no measure for others.
func judge(candidates []*candidate, doubtful map[repository.ID]bool, now time.Time) {
	var before *candidate
	var small []*candidate // in a row, of similar sizes
	for _, c := range slices.Backward(candidates) {
		c.doubt = doubtOf(c, doubtful, now)
		switch {
		case c.doubt != "":
		case before == nil || !c.FarSmaller(before.Backup) || wasOpened(c.Backup):
			before, small = c, nil
		default:
			c.doubt = fmt.Sprintf("its database has %d bytes, that of the one before %d: verify it, and it counts", c.Plain.Size, before.Plain.Size)
			small = append(similarTo(c, small), c)
			if len(small) == learned {
				for _, s := range small {
					s.doubt = ""
				}
				before, small = c, nil
			}
		}
	}
	for _, s := range small {
		s.learning = true
	}
}

// similarTo returns small if c is of a similar size as all of them, else none.
func similarTo(c *candidate, small []*candidate) []*candidate {
	other := func(s *candidate) bool { return s.FarSmaller(c.Backup) || c.FarSmaller(s.Backup) }
	if slices.ContainsFunc(small, other) {
		return nil
	}
	return small
}

func doubtOf(c *candidate, doubtful map[repository.ID]bool, now time.Time) string {
	if err := c.Usable(); err != nil {
		return err.Error()
	}
	if level, _ := c.Best(); level == "" {
		return "it failed a check, and has not passed it since"
	}
	if ofFuture(c.Backup, now) {
		return "it says that it was taken in the future"
	}
	if doubtful[c.ID] {
		return fmt.Sprintf("it is of cluster id %s, and no restore by dr began that history: dr pin ID --confirm, and it counts", c.ClusterID)
	}
	return ""
}

func ofFuture(b repository.Backup, now time.Time) bool {
	return b.Started.After(now.Add(clockAllowance))
}

// wasOpened: somebody has looked, and it is whole.
func wasOpened(b repository.Backup) bool {
	level, _ := b.Best()
	return level.Rank() >= repository.Opened.Rank()
}
