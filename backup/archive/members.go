package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
)

// membersEvery is how often the members' revisions are compared. Each comparison costs a login to each member.
const membersEvery = 5 * time.Minute

// members holds the result of comparing the cluster's members, over all turns. Only the comparing goroutine of a turn writes. The
// description of a difference stays as first found, so that segments and logs do not change with each comparison.
type members struct {
	cluster    uint64    // id of the cluster; 0: not known yet
	compared   time.Time // when the members were last compared; zero: never
	hashed     time.Time // when their hashes were last compared; zero: never
	uncompared string    // why the last comparison was not complete; "" if it was

	mu                       sync.Mutex
	alarm, revisions, hashes string // the difference that each of them shows, in words; "": none; guarded by mu
}

// difference describes how the members differ; "" if no difference is known.
func (m *members) difference() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.revisions, m.hashes, m.alarm)
}

// resetIfChanged clears all differences if c is another cluster than before, or has only one member.
func (m *members) resetIfChanged(c *cluster.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ID != m.cluster || len(c.Members) == 1 {
		m.cluster, m.alarm, m.revisions, m.hashes = c.ID, "", "", ""
	}
}

// seeRevisions keeps a difference until all members have been equal.
func (m *members) seeRevisions(a cluster.Agreement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revisions = nextDifference(m.revisions, a)
}

// seeHashes also ends a difference of revisions: equal hashes imply equal revisions.
func (m *members) seeHashes(a cluster.Agreement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hashes = nextDifference(m.hashes, a)
	if a.Equal {
		m.revisions = ""
	}
}

func (m *members) seeAlarm(corrupt bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alarm = ""
	if corrupt {
		m.alarm = "the alarm CORRUPT is raised"
	}
}

// nextDifference returns the difference that is known after the comparison a, if before was known until then.
func nextDifference(before string, a cluster.Agreement) string {
	if a.Equal {
		return ""
	}
	return cmp.Or(before, a.Difference)
}

// compareMembers compares the cluster's members next to the archiving until ctx ends.
func (a *archiver) compareMembers(ctx context.Context) *sync.WaitGroup {
	var comparing sync.WaitGroup
	a.board.set(func(s *Status) { s.Diverged = a.members.difference() })
	comparing.Go(func() {
		for storage.Sleep(ctx, time.Until(a.members.compared.Add(membersEvery))) == nil {
			a.members.compared = time.Now()
			err := a.compareOnce(ctx)
			if ctx.Err() == nil {
				a.reportMembers(err)
			}
		}
	})
	return &comparing
}

// compareOnce compares revisions and, if due, hashes. It returns why not all members could be compared.
func (a *archiver) compareOnce(ctx context.Context) error {
	c, err := cluster.Connect(ctx, a.config.Etcd)
	if err != nil {
		return err
	}
	defer c.Close()
	a.members.resetIfChanged(c)
	alarms, err := c.Alarms(ctx)
	if err == nil {
		a.members.seeAlarm(slices.Contains(alarms, "CORRUPT"))
	}
	a.members.seeRevisions(c.CompareRevisions(ctx))
	if len(c.Servers) > 1 && a.mustCompareHashes() {
		a.members.hashed = time.Now()
		agreement, hashErr := c.CompareHashes(ctx, a.hashLimit(ctx, fmt.Sprintf("%x", c.ID)))
		a.members.seeHashes(agreement)
		err = errors.Join(err, hashErr)
	}
	for _, s := range c.Silent {
		err = errors.Join(err, fmt.Errorf("%s: %w", s.Endpoint, s.Err))
	}
	return err
}

// mustCompareHashes reports whether a comparison of hashes is due: every Config.HashEvery, and each time while members differ, so
// that the end of the difference is noticed.
func (a *archiver) mustCompareHashes() bool {
	every := a.config.HashEvery
	return every > 0 && (time.Since(a.members.hashed) >= every || a.members.difference() != "")
}

// reportMembers logs a difference that appeared or ended. err is why not all members were compared, nil if all were. It is logged
// when it changes.
func (a *archiver) reportMembers(err error) {
	difference, before := a.members.difference(), ""
	a.board.set(func(s *Status) { before, s.Diverged = s.Diverged, difference })
	switch {
	case difference != "" && before == "":
		a.warn("the members hold different data: %s: see MembersDiverged in the runbooks", difference)
	case difference == "" && before != "":
		a.note("the members hold the same data again")
	}
	problem := ""
	if err != nil {
		problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if problem != "" && problem != a.members.uncompared {
		a.note("not all members were compared: %s", problem)
	}
	a.members.uncompared = problem
}
