package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// ledger records the backups that were stored of a cluster in one repository, as far as they may still have to exist.
type ledger struct {
	good   []entry // newest first, those of late
	spans  map[string][]entry
	pinned map[catalog.ID]time.Time // until when
	proven catalog.ID               // the newest that was
	future []catalog.ID             // with a start in the future
}

type entry struct {
	id       catalog.ID
	started  time.Time
	finished time.Time
	span     string
}

func newLedger() *ledger {
	return &ledger{spans: map[string][]entry{}, pinned: map[catalog.ID]time.Time{}}
}

// spansOf returns the hours, days and so on that the policy of the year counts, by the rule's name.
func spansOf(t time.Time) map[string]string {
	year, week := t.ISOWeek()
	_, offset := t.Zone()
	return map[string]string{
		"hourly": fmt.Sprint(t.Format("2006-01-02 15"), offset), "daily": t.Format(time.DateOnly),
		"weekly": fmt.Sprint(year, "-", week), "monthly": t.Format("2006-01"),
	}
}

func (s *subject) ledger(repository string) *recorder { return &recorder{s, s.ledgers[repository]} }

type recorder struct {
	of *subject
	*ledger
}

// record records a stored backup. Each list has the newest first, and at most as many as the policy counts.
func (r *recorder) record(b catalog.Backup, good bool) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if b.Started.After(time.Now().Add(time.Hour)) {
		r.future = append(r.future, b.ID)
	}
	if !good {
		return
	}
	e := entry{id: b.ID, started: b.Started, finished: b.Finished}
	r.good = insert(r.good, e, 12)
	for rule, span := range spansOf(b.Started.In(r.of.spec.Schedule.Zone())) {
		e.span = span
		r.spans[rule] = newestOfSpan(insert(r.spans[rule], e, 12))
	}
}

func insert(all []entry, e entry, most int) []entry {
	i := slices.IndexFunc(all, func(old entry) bool {
		return e.started.After(old.started) || e.started.Equal(old.started) && e.id > old.id
	})
	if i < 0 {
		i = len(all)
	}
	all = slices.Insert(all, i, e)
	return all[:min(most, len(all))]
}

// newestOfSpan leaves one of each span, the first.
func newestOfSpan(all []entry) []entry {
	return slices.CompactFunc(all, func(a, b entry) bool { return a.span == b.span })
}

// wantKept fails if the repository does not list a backup that must be kept.
func (s *subject) wantKept(in backup.Store, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, p := s.ledgers[in.Repository], s.spec.Retention
	listed := s.listed(in.Repository)
	want := func(why string, all ...entry) {
		for _, e := range all {
			if !listed[e.id] {
				s.f.errorf("%s in %s: %s is gone, which is to stay: %s\n%s", s.spec.Cluster, in.Repository, e.id, why, s.remains(in.Repository, e.id))
			}
		}
	}
	first := func(all []entry, n int) []entry { return all[:min(n, len(all))] }
	want("the newest good one", first(l.good, 1)...)
	want("min copies", first(l.good, p.MinCopies)...)
	want("last", first(l.good, p.Last)...)
	for rule, n := range map[string]int{"hourly": p.Hourly, "daily": p.Daily, "weekly": p.Weekly, "monthly": p.Monthly} {
		want(rule, first(l.spans[rule], n)...)
	}
	for _, e := range l.good {
		begins := l.good[0].finished
		if e.finished.After(begins.Add(-p.Window)) {
			want("the window", e)
		}
	}
	for id := range l.pinned {
		want("pinned", entry{id: id})
	}
	if l.proven != "" {
		want("the last proven", entry{id: l.proven})
	}
}

// wantFew fails if the repository had more backups than the policy keeps and one run may have added: each rule counts good and
// bad ones separately.
func (s *subject) wantFew(repository string, there int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, l := s.spec.Retention, s.ledgers[repository]
	most := 2*(p.Last+p.Hourly+p.Daily+p.Weekly+p.Monthly) + 10 + len(l.pinned) + s.partial
	if there > most {
		s.errorf("%d backups are in %s, at most %d are to stay", there, repository, most)
	}
	s.partial = 0
}

// listed returns the backups with a manifest and without a tombstone.
func (s *subject) listed(store string) map[catalog.ID]bool {
	listed := map[catalog.ID]bool{}
	for _, key := range s.f.stores[store].keys(s.spec.Cluster + "/backups/") {
		id, name, _ := strings.Cut(strings.TrimPrefix(key, s.spec.Cluster+"/backups/"), "/")
		switch {
		case name == "manifest.json":
			listed[catalog.ID(id)] = true
		case strings.HasPrefix(name, "tombstone-"): // it comes after the manifest
			delete(listed, catalog.ID(id))
		}
	}
	return listed
}

// remains returns the remaining objects of a backup, and the listed backups, in the store.
func (s *subject) remains(store string, id catalog.ID) string {
	var text strings.Builder
	bucket := s.f.stores[store].below
	for _, key := range s.f.stores[store].keys(s.spec.Cluster + "/backups/") {
		if !strings.HasSuffix(key, ".json") {
			continue
		}
		r, _, err := bucket.Open(context.Background(), key, storage.OpenOptions{})
		if err != nil {
			continue
		}
		content, err := io.ReadAll(r)
		_ = r.Close()
		if err == nil && (strings.Contains(key, string(id)) || strings.HasSuffix(key, "/manifest.json")) {
			fmt.Fprintf(&text, "%s: %s\n", key, content)
		}
	}
	return text.String()
}

// each calls do with the cluster's part of each store, past all that may be wrong with it.
func (s *subject) each(do func(c *repository.Cluster, l *ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.ledgers {
		c, err := repository.Open(s.f.stores[name].below, s.spec.Cluster)
		if err != nil {
			s.f.errorf("%v", err)
			return
		}
		do(c, l)
	}
}

// prove records a passed verify of the newest good backup. pin keeps that backup until a given time. tidy lifts the pins that
// have expired, and removes the backups that seem to be from the future.
func (s *subject) prove() {
	s.each(func(c *repository.Cluster, l *ledger) {
		if len(l.good) == 0 {
			return
		}
		p := catalog.Proof{Backup: l.good[0].id, Level: catalog.Opened, Verdict: catalog.Passed, Time: time.Now(), By: "test"}
		err := c.Append(context.Background(), p)
		if err != nil {
			s.f.errorf("%v", err)
		}
		l.proven = l.good[0].id
	})
}

func (s *subject) pin(until time.Time) {
	s.each(func(c *repository.Cluster, l *ledger) {
		if len(l.good) == 0 || len(l.pinned) > 1 {
			return
		}
		_, err := c.Pin(context.Background(), catalog.Pin{Backup: l.good[0].id, Time: time.Now()})
		if err != nil {
			s.f.errorf("%v", err)
		}
		l.pinned[l.good[0].id] = until
	})
}

func (s *subject) tidy() {
	s.each(func(c *repository.Cluster, l *ledger) {
		for _, id := range l.future {
			err := c.Delete(context.Background(), catalog.Tombstone{Backup: id, Reason: "a wrong clock", Time: time.Now()})
			if err != nil && !errors.Is(err, catalog.ErrNotFound) {
				s.f.errorf("%v", err)
			}
		}
		l.future = nil
		for id, until := range l.pinned {
			if time.Now().Before(until) {
				continue
			}
			delete(l.pinned, id)
			_, err := c.Unpin(context.Background(), catalog.Unpin{Backup: id, Time: time.Now()})
			if err != nil {
				s.f.errorf("%v", err)
			}
		}
	})
}
