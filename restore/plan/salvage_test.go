package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// diskOf returns the disk of member n of three, whose history is that of an evenLog: its database is at the position database,
// its log ends at last, and it knows that entries up to commit are committed.
func diskOf(n int, database, last, commit uint64, changes ...func(*disk.Disk)) disk.Disk {
	dir := fmt.Sprintf("/disk%d", n)
	members := stored.ThreeMembers()
	d := disk.Disk{
		Dir: dir, Cluster: "cafe", Member: members[n-1].ID,
		Databases: []disk.Database{{
			File: dir + "/member/snap/db", Size: 1000, Index: database, Term: 2, Revision: int64(database) + 100, Version: "3.5.0", Members: members,
		}},
		Log: disk.Log{
			Readable: true, First: 1, Last: segment.End{Position: last, Term: 2, Digest: "last"}, Commit: commit, Whole: true,
			Terms: []disk.Place{{Position: 1, Term: 2}},
		},
	}
	for p := uint64(1); p <= last; p++ {
		d.Log.Requests = append(d.Log.Requests, p)
		if p%10 == 0 {
			d.Log.Ends = append(d.Log.Ends, segment.End{Position: p, Term: 2})
		}
	}
	for _, change := range changes {
		change(&d)
	}
	return d
}

// at returns a change that sets the revision of the disk's database.
func at(revision int64) func(*disk.Disk) {
	return func(d *disk.Disk) { d.Databases[0].Revision = revision }
}

func badDatabase(d *disk.Disk) { d.Databases[0].Damage = "a page is bad" }

func badLog(d *disk.Disk) { d.Log.Whole, d.Log.Damage = false, "offset 7" }

// unusableAt returns a change that makes requests of the log unusable.
func unusableAt(positions ...uint64) func(*disk.Disk) {
	return func(d *disk.Disk) {
		for _, p := range positions {
			d.Log.Unusable = append(d.Log.Unusable, disk.Unusable{Position: p, Reason: "it is odd"})
		}
	}
}

// begins returns a change that purges the older part of the log.
func begins(at uint64) func(*disk.Disk) {
	return func(d *disk.Disk) { d.Log.First = at }
}

// inTerm returns a change that continues the log in another term from a position on.
func inTerm(term, from uint64) func(*disk.Disk) {
	return func(d *disk.Disk) {
		d.Log.Terms = append(d.Log.Terms, disk.Place{Position: from, Term: term})
		d.Log.Last.Term = term
		d.Log.Ends = slices.DeleteFunc(d.Log.Ends, func(e segment.End) bool { return e.Position >= from })
	}
}

// salvageWay describes where a plan goes.
func salvageWay(p plan.Plan) string {
	var words []string
	s := p.Salvage
	if p.Backup != nil {
		words = append(words, way(p))
	}
	if s != nil && s.Database != nil {
		words = append(words, fmt.Sprintf("%s at %d", strings.TrimSuffix(s.Database.File, "/member/snap/db"), s.Database.Index))
	}
	if s != nil && s.Log != nil {
		l := s.Log
		words = append(words, fmt.Sprintf("log of %s from %d to %d: %d certain, %d probable, %d left",
			l.Dir, l.After.Position+1, l.UpTo, l.Certain.Requests, l.Probable.Requests, s.LeftOut.Requests))
		if l.Revision > 0 {
			words = append(words, fmt.Sprintf("revision %d", l.Revision))
		}
	}
	return strings.Join(words, ", ")
}

func TestSalvagePlanOf(t *testing.T) {
	none := catalog.Catalog{}
	changesTo := func(changes ...disk.Change) func(*disk.Disk) {
		return func(d *disk.Disk) { d.Log.Changes = changes }
	}
	// joined returns a catalog with two histories: own, and one of cluster id beef whose log reaches further, hours away.
	joined := func(own catalog.Catalog, hours time.Duration) catalog.Catalog {
		from := started.Add(hours * time.Hour)
		log, backup := evenLog(lineageNumber(1), from, 9), backupAt(from, 85)
		backup.ClusterID = "beef"
		for i := range log.Segments {
			log.Segments[i].ClusterID = "beef"
		}
		own.Backups, own.Lineages = append(own.Backups, backup), append(own.Lineages, log)
		slices.SortFunc(own.Backups, func(a, b catalog.Backup) int { return b.Started.Compare(a.Started) })
		slices.SortFunc(own.Lineages, func(a, b catalog.Lineage) int { return a.Segments[0].Written.Compare(b.Segments[0].Written) })
		return own
	}
	for name, c := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		disks   []disk.Disk
		want    string // of the way, or of the error
		err     error
		note    string
	}{
		"all three": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 60, 90, 75), diskOf(3, 40, 85, 85)},
			want:  "/disk2 at 60, log of /disk2 from 61 to 90: 25 certain, 5 probable, 0 left", note: "every acknowledged write",
		},
		"two of three": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(3, 40, 85, 60)},
			want:  "/disk1 at 50, log of /disk3 from 51 to 85: 20 certain, 15 probable, 0 left",
		},
		"one of three": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want:  "/disk1 at 50, log of /disk1 from 51 to 70: 20 certain, 0 probable, 10 left", note: "--salvage-tail all",
		},
		"a request that a replay refuses": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, unusableAt(66)), diskOf(2, 60, 90, 75, unusableAt(55, 66, 70))},
			want:  "/disk2 at 60, log of /disk2 from 61 to 90: 15 certain, 15 probable, 0 left", note: "the request at position 66 cannot be replayed (it is odd): ",
		},
		"one of three, with its tail": {
			target: plan.Target{Disks: &plan.Disks{Tail: plan.TailAll}}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "/disk1 at 50, log of /disk1 from 51 to 80: 20 certain, 10 probable, 0 left", note: "may contain writes that were never committed",
		},
		"a later term is ahead of a longer log": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, inTerm(3, 75)), diskOf(2, 50, 99, 60)},
			want:  "/disk1 at 50, log of /disk1 from 51 to 80: 20 certain, 10 probable, 0 left",
		},
		"two of three, one damaged": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 50, 90, 60, badLog)},
			want:  "/disk1 at 50, log of /disk2 from 51 to 70: 20 certain, 0 probable, 20 left", note: "offset 7",
		},
		"a damaged database beside a good one": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, badDatabase), diskOf(2, 40, 60, 60, badLog)},
			want:  "/disk2 at 40, log of /disk1 from 41 to 70: 30 certain, 0 probable, 10 left", note: "a page is bad",
		},
		"the log begins behind the only good database": {
			disks: []disk.Disk{diskOf(1, 50, 80, 52, badDatabase, begins(45)), diskOf(2, 40, 60, 55)},
			want:  "/disk2 at 40, log of /disk2 from 41 to 55: 15 certain, 0 probable, 5 left", note: "cannot be used",
		},
		"the database has all that is known to be committed": {
			disks: []disk.Disk{diskOf(1, 70, 80, 70)}, want: "/disk1 at 70", note: "the logs of a majority are not here",
		},
		"the database has all that is known to be committed, and there is more": {
			disks: []disk.Disk{diskOf(1, 70, 80, 70)}, want: "/disk1 at 70", note: "10 requests in 10 positions at the end of the log are left out",
		},
		"the database has all that is known to be committed, with its tail": {
			target: plan.Target{Disks: &plan.Disks{Tail: plan.TailAll}}, disks: []disk.Disk{diskOf(1, 70, 80, 70)},
			want: "/disk1 at 70, log of /disk1 from 71 to 80: 0 certain, 10 probable, 0 left",
		},
		"all that is there": {
			disks: []disk.Disk{diskOf(1, 80, 80, 80), diskOf(2, 80, 80, 80)}, want: "/disk1 at 80", note: "every acknowledged write",
		},
		"members disagree at one position": {
			disks: []disk.Disk{diskOf(1, 80, 80, 80), diskOf(2, 80, 80, 80, at(177)), diskOf(3, 80, 80, 80)}, want: "/disk1 at 80",
			note: "the members disagree, at the latest from revision 178 on: at position 80 /disk1 is at revision 180, at position 80 /disk2 is at revision 177",
		},
		"members disagree, and one is chosen": {
			target: plan.Target{Disks: &plan.Disks{Base: "/disk2"}}, want: "/disk2 at 60, log of /disk1 from 61 to 80: 20 certain, 0 probable, 0 left",
			disks: []disk.Disk{diskOf(1, 80, 80, 80), diskOf(2, 60, 80, 80, at(157))}, note: "the members disagree, at the latest from revision 158 on",
		},
		"members disagree with the archive": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 30, 80, 80, at(131))}, note: "at position 30 the repository is at revision 130",
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 80: 50 certain, 0 probable, 0 left",
		},
		"one is chosen in spite of the archive": {
			catalog: evenCatalog(3, 5), target: plan.Target{Disks: &plan.Disks{Base: "/disk1"}}, disks: []disk.Disk{diskOf(1, 50, 80, 80)},
			want: "/disk1 at 50, log of /disk1 from 51 to 80: 30 certain, 0 probable, 0 left",
		},
		"no log": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, func(d *disk.Disk) { d.Log = disk.Log{Damage: "gone"} })},
			want:  "/disk1 at 50", note: "gone",
		},
		"no database": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, badDatabase)}, want: "a page is bad", err: catalog.ErrDamaged,
		},
		"a voter was added": {
			disks: []disk.Disk{
				diskOf(1, 50, 80, 70, changesTo(disk.Change{Position: 60, Member: "d", Voter: true})), diskOf(2, 50, 79, 70),
			},
			want: "/disk1 at 50, log of /disk1 from 51 to 70: 20 certain, 0 probable, 10 left",
		},
		"one was removed before the database's place": {
			disks: []disk.Disk{
				diskOf(1, 50, 80, 70, changesTo(disk.Change{Position: 40, Member: "d", Voter: true}, disk.Change{Position: 45, Member: "d"})),
				diskOf(2, 50, 79, 70),
			},
			want: "/disk1 at 50, log of /disk1 from 51 to 80: 20 certain, 10 probable, 0 left",
		},
		"to a revision": {
			target: plan.Target{Revision: 155}, disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 60, 80, 70)},
			want: "/disk1 at 50, log of /disk1 from 51 to 80: 20 certain, 10 probable, 0 left, revision 155",
		},
		"to a database's revision": {
			target: plan.Target{Revision: 150}, disks: []disk.Disk{diskOf(1, 50, 80, 70)}, want: "/disk1 at 50",
		},
		"to a revision before all": {
			target: plan.Target{Revision: 120}, disks: []disk.Disk{diskOf(1, 50, 80, 70)}, want: "is past it", err: catalog.ErrNotFound,
		},
		"to a revision that cannot be": {
			target: plan.Target{Revision: 171}, disks: []disk.Disk{diskOf(1, 50, 80, 70)}, want: "170 at most", err: catalog.ErrNotFound,
		},
		"to the best there is": {
			target: plan.Target{Revision: 171, Best: true}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "/disk1 at 50, log of /disk1 from 51 to 70: 20 certain, 0 probable, 10 left", note: settled,
		},
		"to a time": {
			target: plan.Target{Time: second(20)}, disks: []disk.Disk{diskOf(1, 50, 80, 70)}, want: "times", err: plan.ErrLayout,
		},

		"behind the archive": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 50, 80, 70)},
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 80: 40 certain, 10 probable, 0 left",
		},
		"behind the archive, databases damaged": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 50, 80, 70, badDatabase)},
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left",
		},
		"behind the archive, to a revision": {
			catalog: evenCatalog(3, 5), target: plan.Target{Revision: 150}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left, revision 150",
		},
		"within the archive, to a revision": {
			catalog: evenCatalog(3, 5), target: plan.Target{Revision: 120}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 5, segments 1 to 2", note: "the disks are not needed",
		},
		"within the archive, to a time": {
			catalog: evenCatalog(3, 5), target: plan.Target{Time: second(20.5)}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 5, segments 1 to 2", note: "the disks are not needed",
		},
		"the archive is ahead": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 20, 28, 20)},
			want: "backup at 5, segments 1 to 3", note: "the disks are not needed",
		},
		"another history behind the archive": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 50, 80, 70, inTerm(3, 25))},
			want: "another history", err: catalog.ErrNotFound,
		},
		"purged behind the archive": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(1, 50, 80, 70, begins(40))},
			want: "do not continue the repository's log", err: catalog.ErrNotFound,
		},
		"purged behind the archive, the best there is": {
			catalog: evenCatalog(3, 5), target: plan.Target{Best: true}, disks: []disk.Disk{diskOf(1, 50, 80, 70, begins(40))},
			want: "/disk1 at 50, log of /disk1 from 51 to 70: 20 certain, 0 probable, 10 left", note: settled,
		},
		"a backup without a log": {
			catalog: catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backupAt(started, 30)}},
			disks:   []disk.Disk{diskOf(1, 50, 80, 70, badDatabase)},
			want:    "backup at 30, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left",
		},

		"a backup that is ahead of the disks": {
			catalog: catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backupAt(started, 90)}},
			disks:   []disk.Disk{diskOf(1, 50, 80, 70)}, want: "backup at 90", note: "they are not needed",
		},
		"a backup without a log, to a revision before the databases": {
			catalog: catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backupAt(started, 30)}},
			target:  plan.Target{Revision: 140}, disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 30, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left, revision 140",
		},

		"the same member twice": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(1, 40, 70, 70)}, want: "both of member a", err: fault.Refused,
		},
		"another cluster's": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 40, 70, 70, func(d *disk.Disk) { d.Cluster = "bad" })},
			want:  "bad", err: fault.Refused,
		},
		"another cluster's repository": {
			catalog: evenCatalog(3, 5), disks: []disk.Disk{diskOf(2, 40, 70, 70, func(d *disk.Disk) { d.Cluster = "bad" })},
			want: "the repository is of cafe", err: fault.Refused,
		},
		"behind the archive of a restored cluster": {
			catalog: joined(evenCatalog(3, 5), -9), disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left", note: "of cluster id beef are not used",
		},
		"from before a restore": {
			catalog: joined(evenCatalog(3, 5), 9), disks: []disk.Disk{diskOf(1, 50, 80, 70)},
			want: "backup at 5, segments 1 to 3, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left",
			note: "the newest, " + string(catalog.NewID(started.Add(9*time.Hour+85*time.Second+100*time.Millisecond), 185)),
		},
		"a restored cluster without a log": {
			catalog: joined(catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backupAt(started, 30)}}, -9),
			disks:   []disk.Disk{diskOf(1, 50, 80, 70, badDatabase)},
			want:    "backup at 30, log of /disk1 from 31 to 70: 40 certain, 0 probable, 10 left",
		},
		"a restored cluster's, and the repository of two others": {
			catalog: joined(evenCatalog(3, 5), -9), disks: []disk.Disk{diskOf(2, 40, 70, 70, func(d *disk.Disk) { d.Cluster = "bad" })},
			want: "the repository is of beef, cafe", err: fault.Refused,
		},
		"nobody knows whose": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 40, 70, 70, func(d *disk.Disk) {
				d.Cluster, d.Member, d.Databases[0].Members = "", "", nil
			})},
			want: "of one cluster", err: fault.Refused,
		},
		"another cluster's database": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, func(d *disk.Disk) { d.Member = "e" })}, want: "does not know it", err: fault.Refused,
		},
		"it runs": {
			disks: []disk.Disk{diskOf(1, 50, 80, 70, func(d *disk.Disk) { d.Running = true })}, want: "--old-is-dead", err: fault.Refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.catalog.Cluster == "" {
				c.catalog = none
			}
			disks := plan.Disks{}
			if c.target.Disks != nil {
				disks = *c.target.Disks
			}
			disks.Found, c.target.Disks = c.disks, &disks
			p, err := plan.New(c.catalog, c.target, plan.Layout{Token: "t"}, now)
			if c.err != nil {
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %v with %q", err, c.err, c.want)
				}
				return
			}
			if err != nil || salvageWay(p) != c.want || c.note != "" && !hasNote(p, c.note) {
				t.Fatalf("got %q, %v, want %q and %q in %q", salvageWay(p), err, c.want, c.note, p.Notes)
			}
			data, err := p.Encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := plan.Decode(data)
			if err != nil || again.ID != p.ID || salvageWay(again) != c.want {
				t.Errorf("the plan decodes to %q, %v", salvageWay(again), err)
			}
		})
	}
}

// A request that a replay refuses does not matter before the base and after the end of the part that is replayed.
func TestSalvagePlanIgnoresRequestsThatItDoesNotReplay(t *testing.T) {
	disks := &plan.Disks{Found: []disk.Disk{diskOf(1, 50, 80, 70, unusableAt(50, 71))}}
	p, err := plan.New(catalog.Catalog{}, plan.Target{Disks: disks}, plan.Layout{Token: "t"}, now)
	if err != nil || hasNote(p, "cannot be replayed") {
		t.Errorf("notes %q, %v", p.Notes, err)
	}
}

// TestReachOfTheDisks checks that a plan promises neither a revision after the end of a disk's log nor the time of a backup from before
// it.
func TestReachOfTheDisks(t *testing.T) {
	for name, c := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		disk    disk.Disk
		want    plan.Reach
	}{
		"a revision that cannot be, the best there is": {
			target: plan.Target{Revision: 171, Best: true}, disk: diskOf(1, 50, 80, 70), want: plan.Reach{Position: 70},
		},
		"a revision on the disk": {
			target: plan.Target{Revision: 155, Best: true}, disk: diskOf(1, 50, 80, 70), want: plan.Reach{Position: 70, Revision: 155},
		},
		"a backup without a log": {
			catalog: catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backupAt(started, 30)}},
			disk:    diskOf(1, 50, 80, 70, badDatabase), want: plan.Reach{Position: 70, NotBefore: backupAt(started, 30).Started},
		},
	} {
		c.target.Disks = &plan.Disks{Found: []disk.Disk{c.disk}}
		p, err := plan.New(c.catalog, c.target, plan.Layout{Token: "t"}, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		reach := *p.Reach
		reach.Newest = catalog.Point{}
		if reach != c.want {
			t.Errorf("%s: the plan reaches %+v, expected %+v", name, reach, c.want)
		}
	}
}

// If a database turns out to be damaged when it is read completely, another disk's replaces it.
func TestSalvageGoesAroundADatabase(t *testing.T) {
	target := plan.Target{Disks: &plan.Disks{Found: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 40, 80, 70)}}}
	var ways []string
	run := func(base string) (plan.Plan, error) {
		ways = nil
		return pursue(catalog.Catalog{}, target, func(p plan.Plan) *plan.Obstacle {
			ways = append(ways, salvageWay(p))
			if strings.HasPrefix(p.Salvage.Database.File, base) {
				return &plan.Obstacle{Base: true}
			}
			return nil
		})
	}
	p, err := run("/disk1")
	if err != nil || len(ways) != 2 || !strings.HasPrefix(ways[1], "/disk2 at 40, log of /disk1 from 41 to 80") || !hasNote(p, "another way") {
		t.Errorf("got %q, %v, notes %q", ways, err, p.Notes)
	}
	_, err = run("/")
	if !errors.Is(err, catalog.ErrDamaged) || len(ways) != 2 {
		t.Errorf("with all damaged: %q, %v", ways, err)
	}
	if target.Disks.Found[0].Databases[0].Damage != "" {
		t.Error("what was given was changed")
	}
}

// A disk's log with a request that this version does not know leads to the revision before it.
func TestSalvageBeforeAnUnknownRequest(t *testing.T) {
	var ways []string
	run := func(best bool) (plan.Plan, error) {
		ways = nil
		target := plan.Target{Best: best, Disks: &plan.Disks{Found: []disk.Disk{diskOf(1, 50, 80, 70), diskOf(2, 40, 80, 70)}}}
		return pursue(catalog.Catalog{}, target, func(p plan.Plan) *plan.Obstacle {
			ways = append(ways, salvageWay(p))
			if p.Salvage.Log.Revision == 0 {
				return &plan.Obstacle{Marked: 65, Reached: 163}
			}
			return nil
		})
	}
	_, err := run(false)
	if !errors.Is(err, catalog.ErrNotFound) || len(ways) != 1 || !strings.Contains(err.Error(), "nearest restorable point is revision 163") {
		t.Errorf("got %q, %v", ways, err)
	}
	p, err := run(true)
	if err != nil || len(ways) != 2 || !strings.HasSuffix(ways[1], "revision 163") || !hasNote(p, "not the requested point") {
		t.Errorf("the best: %q, %v, notes %q", ways, err, p.Notes)
	}
}

// Members that have not got as far are not in disagreement, however few of the entries change the key space.
func TestSalvageOfMembersInStep(t *testing.T) {
	quiet := func(d *disk.Disk) { d.Log.Requests = d.Log.Requests[:60] }
	old := func(d *disk.Disk) { d.Databases[0].Version = "3.4.0" }
	for name, disks := range map[string][]disk.Disk{
		"one is ahead":                    {diskOf(1, 50, 80, 80), diskOf(2, 80, 80, 80)},
		"entries that change nothing":     {diskOf(1, 50, 80, 80, quiet), diskOf(2, 80, 80, 80, quiet, at(155))},
		"3.4 counts one entry too many":   {diskOf(1, 80, 80, 80, old), diskOf(2, 80, 80, 80, old, at(179))},
		"the log between is gone":         {diskOf(1, 20, 80, 80, begins(70)), diskOf(2, 80, 80, 80, begins(70))},
		"a damaged database says nothing": {diskOf(1, 80, 80, 80), diskOf(2, 80, 80, 80, at(7), badDatabase)},
	} {
		p, err := plan.New(catalog.Catalog{}, plan.Target{Disks: &plan.Disks{Found: disks}}, plan.Layout{Token: "t"}, now)
		if err != nil || p.Salvage.Disagreement != "" {
			t.Errorf("%s: %v, %q", name, err, p.Salvage.Disagreement)
		}
	}
	apart := []disk.Disk{diskOf(1, 50, 80, 80, quiet), diskOf(2, 80, 80, 80, quiet, at(161))}
	p, err := plan.New(catalog.Catalog{}, plan.Target{Disks: &plan.Disks{Found: apart}}, plan.Layout{Token: "t"}, now)
	if err != nil || p.Salvage.Disagreement == "" {
		t.Errorf("more revisions than requests: %v, %q", err, p.Salvage.Disagreement)
	}
}
