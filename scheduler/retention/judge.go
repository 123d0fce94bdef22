package retention

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	// clockAllowance is by how much the clocks of those who take backups and of those who prune may differ.
	clockAllowance = 5 * time.Minute
	// farSmaller: a database that has less than this part of the one before it.
	farSmaller = 2
)

// judge says of each candidate, which are newest first, why it is not good. What does not count is no measure for others.
func judge(candidates []*candidate, now time.Time) {
	var before *candidate
	for i := len(candidates) - 1; i >= 0; i-- {
		c := candidates[i]
		if c.doubt = doubtOf(c, before, now); c.doubt == "" {
			before = c
		}
	}
}

func doubtOf(c, before *candidate, now time.Time) string {
	if err := c.Usable(); err != nil {
		return err.Error()
	}
	if level, _ := c.Best(); level == "" {
		return "it failed a check, and has not passed it since"
	}
	if ofFuture(c.Backup, now) {
		return "it says that it was taken in the future"
	}
	if before != nil && c.Plain.Size < before.Plain.Size/farSmaller && !wasOpened(c.Backup) {
		return fmt.Sprintf("its database has %d bytes, that of the one before %d: verify it, and it counts", c.Plain.Size, before.Plain.Size)
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
