package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Decisions are the result of a policy for a catalog.
type Decisions struct {
	Backups []Decision // newest first
	Log     []Cut      // oldest lineage first, each at most once
	Kept    int64      // stored bytes of backups and log that are kept
	Removed int64      // stored bytes of backups and log that go
	MaxSize int64      // the policy's limit for Kept; 0: none
}

// Over returns the number of bytes by which kept exceeds d.MaxSize; 0 if it does not.
func (d Decisions) Over(kept int64) int64 {
	if d.MaxSize == 0 {
		return 0
	}
	return max(0, kept-d.MaxSize)
}

// Decision is the decision on one backup.
type Decision struct {
	catalog.Backup
	Keep    bool
	Reasons []string // why it is kept, or the one reason for which it goes
	Doubt   string   // why it is not good; "" for a good one
}

// Cut is the front part of a lineage that goes.
type Cut struct {
	Lineage  string
	Upto     uint64 // seq of the last segment that goes
	Segments int    // that go
	Bytes    int64  // of them, as stored
	Reason   string
}

// Plan returns the decisions of p at the time now. The catalog must contain proofs and log, and only trusted objects.
//
// Plan never removes the newest backup, the newest good one, the last one that was proven to each level, pinned ones, the bases
// of the log that is kept, and the first and newest backup of each history that is not the cluster's own. Without any good
// backup it removes none.
//
// A backup is good if it is usable, not from the future, of the cluster's own history, and not far smaller than the good one
// before it. A far smaller one is good if a check has opened its database, or if it is one of three in a row
// that no backup of the earlier size follows. Backups that are not good have slots of their own, so they displace no good one.
func Plan(catalog catalog.Catalog, p Policy, now time.Time) (Decisions, error) {
	err := p.Validate()
	if err != nil {
		return Decisions{}, err
	}
	k := newKeeping(catalog, p, now)
	k.applyRules()
	k.keepAlways()
	k.fit()
	return k.decisions(), nil
}

// Removal returns the tombstones of everything that goes. by names the host and the version of dr.
func (d Decisions) Removal(now time.Time, by string) (r repository.Removal) {
	for _, b := range d.Backups {
		if !b.Keep {
			r.Backups = append(r.Backups, catalog.Tombstone{Backup: b.ID, Reason: "pruned: " + b.Reasons[0], Time: now, By: by})
		}
	}
	for _, c := range d.Log {
		r.Log = append(r.Log, log.Tombstone{Lineage: c.Lineage, Upto: c.Upto, Reason: "pruned: " + c.Reason, Time: now, By: by})
	}
	return r
}

// keeping holds the state of one Plan.
type keeping struct {
	policy  Policy
	now     time.Time
	backups []*candidate // newest first
	good    []*candidate
	dubious []*candidate
	log     []*stretch // oldest first
	catalog catalog.Catalog

	histories []catalog.History
}

// candidate is a backup during a Plan.
type candidate struct {
	catalog.Backup
	doubt   string   // why it is not good; "" for a good one
	reasons []string // why it is kept
	firm    bool     // MaxSize does not remove it
	dropped bool     // removed because of MaxSize

	learning bool // it may be one of several whose size becomes the measure
	doubtful bool // its history is not the cluster's own
}

func (c *candidate) keep(reason string) { c.reasons = append(c.reasons, reason) }

func (c *candidate) keepFirmly(reason string) {
	c.keep(reason)
	c.firm = true
}

func (c *candidate) kept() bool { return len(c.reasons) > 0 && !c.dropped }

func newKeeping(catalog catalog.Catalog, p Policy, now time.Time) *keeping {
	k := &keeping{policy: p, now: now, catalog: catalog}
	for _, b := range catalog.Backups {
		k.backups = append(k.backups, &candidate{Backup: b})
	}
	slices.SortFunc(k.backups, func(a, b *candidate) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Revision, a.Revision), cmp.Compare(b.ID, a.ID))
	})
	k.readHistories()
	for _, c := range k.backups {
		if c.doubt == "" {
			k.good = append(k.good, c)
		} else {
			k.dubious = append(k.dubious, c)
		}
	}
	k.readLog()
	return k
}

// readHistories sets k.histories, and judges each backup.
func (k *keeping) readHistories() {
	past := slices.DeleteFunc(slices.Clone(k.catalog.Backups), func(b catalog.Backup) bool { return catalog.IsFuture(b.Started, k.now) })
	k.histories = catalog.Histories(k.catalog.Cluster, past)
	doubtful := map[catalog.ID]bool{}
	for _, h := range k.histories {
		for _, b := range h.Backups {
			doubtful[b.ID] = h.Doubtful
		}
	}
	judge(k.backups, doubtful, k.now)
	for _, c := range k.backups {
		c.doubtful = doubtful[c.ID]
	}
}

func (k *keeping) decisions() Decisions {
	d := Decisions{Backups: make([]Decision, 0, len(k.backups)), Log: k.cuts(), MaxSize: k.policy.MaxSize}
	for _, c := range k.backups {
		decided := Decision{Backup: c.Backup, Keep: c.kept(), Reasons: c.reasons, Doubt: c.doubt}
		switch {
		case c.dropped:
			decided.Reasons = []string{fmt.Sprintf("more than %d bytes in all", k.policy.MaxSize)}
		case !decided.Keep:
			decided.Reasons = []string{"no rule keeps it"}
		}
		if decided.Keep {
			d.Kept += c.Stored.Size
		} else {
			d.Removed += c.Stored.Size
		}
		d.Backups = append(d.Backups, decided)
	}
	kept, all := k.logBytes()
	d.Kept += kept
	d.Removed += all - kept
	return d
}
