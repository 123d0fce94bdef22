package retention_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// begun is when everything begins. Position p of any history is of p minutes later.
var begun = time.Date(2026, 3, 27, 5, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return begun.Add(time.Duration(n) * time.Minute) }

// taken returns a good backup of the nth minute.
func taken(n int) catalog.Backup {
	var b catalog.Backup
	b.Started, b.Finished = minute(n), minute(n).Add(30*time.Second)
	b.Revision, b.RaftIndex, b.RaftTerm = int64(n), uint64(n), 2
	b.ID = catalog.NewID(b.Started, b.Revision)
	b.Cluster, b.ClusterID = "c", "cdf818194e3a8c32"
	b.Plain.Size, b.Stored.Size = 1000, 100
	return b
}

func catalogOf(backups ...catalog.Backup) catalog.Catalog {
	slices.SortFunc(backups, func(a, b catalog.Backup) int { return b.Started.Compare(a.Started) })
	return catalog.Catalog{Cluster: "c", Backups: backups}
}

func proof(level catalog.Level, verdict catalog.Verdict, at time.Time) catalog.Proof {
	return catalog.Proof{Level: level, Verdict: verdict, Time: at}
}

// lineageOf returns a history of segments of some minutes each, from a minute on. Those whose index is in lost are missing.
func lineageOf(n, from, each, segments int, lost ...int) catalog.Lineage {
	l := catalog.Lineage{ID: fmt.Sprintf("%032x", n)}
	for i := range segments {
		var s catalog.Segment
		s.Cluster, s.ClusterID, s.Lineage, s.Seq = "c", "cdf818194e3a8c32", l.ID, uint64(i+1)
		s.First, s.Last = uint64(from+i*each+1), uint64(from+(i+1)*each)
		s.Digest, s.Size = fmt.Sprintf("%032x%032x", n, i+1), 10
		if i > 0 {
			s.Previous = fmt.Sprintf("%032x%032x", n, i)
		}
		s.End = segment.End{Position: s.Last, Term: 2}
		s.Written = minute(int(s.Last))
		for _, p := range []uint64{s.First - 1, s.Last} {
			s.Marks = append(s.Marks, segment.Mark{Position: p, Revision: int64(p) + 1, Interval: segment.Interval{
				NotBefore: minute(int(p)), NotAfter: minute(int(p)).Add(time.Second),
			}})
		}
		if !slices.Contains(lost, i) {
			l.Segments = append(l.Segments, s)
		}
	}
	return l
}

// world is a cluster's past, and the time of a pruning.
type world struct {
	catalog catalog.Catalog
	now     time.Time
}

const minutes = 20 * 24 * 60 // of a world

// drawWorld makes up to three histories, and backups of any kind in them and elsewhere.
func drawWorld(rt *rapid.T) world {
	var w world
	end := 0
	for n := range rapid.IntRange(0, 3).Draw(rt, "lineages") {
		from := end + rapid.IntRange(0, 2000).Draw(rt, "from")
		each, segments := rapid.SampledFrom([]int{1, 7, 60, 600}).Draw(rt, "each"), rapid.IntRange(1, 30).Draw(rt, "segments")
		lost := rapid.SliceOfN(rapid.IntRange(0, segments), 0, 2).Draw(rt, "lost")
		end = from + each*segments
		source := rapid.SampledFrom([]segment.Source{segment.WAL, segment.Watch}).Draw(rt, "source")
		l := lineageOf(n+1, from, each, segments, lost...)
		sparse := rapid.Bool().Draw(rt, "sparse")
		for i := range l.Segments {
			l.Segments[i].Source = source
			if sparse {
				l.Segments[i].Marks = l.Segments[i].Marks[1:]
			}
		}
		if len(l.Segments) > 0 {
			w.catalog.Lineages = append(w.catalog.Lineages, l)
		}
	}
	end = max(end, rapid.IntRange(1, minutes).Draw(rt, "minutes"))
	var backups []catalog.Backup
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, end), 0, 30, rapid.ID[int]).Draw(rt, "backups") {
		backups = append(backups, drawBackup(rt, n))
	}
	lineages := w.catalog.Lineages
	w.catalog = catalogOf(backups...)
	w.catalog.Lineages = lineages
	w.now = minute(end + rapid.IntRange(-10, 3000).Draw(rt, "now"))
	return w
}

func drawBackup(rt *rapid.T, n int) catalog.Backup {
	b := taken(n)
	b.Stored.Size = rapid.Int64Range(1, 200).Draw(rt, "stored")
	if rapid.Bool().Draw(rt, "upper bound") {
		b.RaftIndexMax, b.RevisionMax = b.RaftIndex+1, b.Revision+1
	}
	switch rapid.IntRange(0, 9).Draw(rt, "kind") {
	case 0:
		spoil(rt, &b)
	case 1:
		b.Plain.Size = 400
	case 2, 3:
		level := rapid.SampledFrom(catalog.Levels).Draw(rt, "level")
		b.Proofs = []catalog.Proof{proof(level, catalog.Passed, b.Finished)}
	case 4:
		b.Pins = []catalog.Pin{{Backup: b.ID, ID: "0123456789abcdef", Reason: "a test"}}
	}
	return b
}

// spoil makes a backup unusable for the rules in one of several ways.
func spoil(rt *rapid.T, b *catalog.Backup) {
	switch rapid.IntRange(0, 3).Draw(rt, "spoilt") {
	case 0:
		b.Alarms = []string{"CORRUPT"}
	case 1:
		b.Diverged = "m3 has another hash"
	case 2:
		b.Proofs = append(b.Proofs, proof(catalog.Hashed, catalog.Failed, b.Finished))
	case 3:
		b.Started, b.Finished = minute(10*minutes), minute(10*minutes)
	}
}

func drawPolicy(rt *rapid.T, zones bool) retention.Policy {
	count := func(name string) int { return max(0, rapid.IntRange(-3, 6).Draw(rt, name)) }
	p := retention.Policy{
		Last: count("last"), Hourly: count("hourly"), Daily: count("daily"), Weekly: count("weekly"), Monthly: count("monthly"),
		Yearly: count("yearly"), MinCopies: count("min copies"), MaxSize: int64(max(0, rapid.IntRange(-2000, 3000).Draw(rt, "max size"))),
		Within: time.Duration(count("within")) * 17 * time.Hour, Window: time.Duration(count("window")) * 29 * time.Hour,
	}
	if zones {
		p.Zone = rapid.SampledFrom([]*time.Location{nil, time.UTC, berlin, time.FixedZone("", 5*3600+1800)}).Draw(rt, "zone")
	}
	if p.Validate() != nil {
		p.Last = 1
	}
	return p
}

var berlin = mustZone("Europe/Berlin")

func mustZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return zone
}

func plan(tb rapid.TB, c catalog.Catalog, p retention.Policy, now time.Time) retention.Decisions {
	tb.Helper()
	d, err := retention.Plan(c, p, now)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// kept returns the backups that stay.
func kept(d retention.Decisions) map[catalog.ID]bool {
	all := map[catalog.ID]bool{}
	for _, b := range d.Backups {
		if b.Keep {
			all[b.ID] = true
		}
	}
	return all
}

// upto returns the last seq that is removed from each lineage.
func upto(d retention.Decisions) map[string]uint64 {
	all := map[string]uint64{}
	for _, c := range d.Log {
		all[c.Lineage] = c.Upto
	}
	return all
}

// after returns the catalog after the decisions are carried out.
func after(c catalog.Catalog, d retention.Decisions) catalog.Catalog {
	stays, gone := kept(d), upto(d)
	left := catalog.Catalog{Cluster: c.Cluster}
	for _, b := range c.Backups {
		if stays[b.ID] {
			left.Backups = append(left.Backups, b)
		}
	}
	for _, l := range c.Lineages {
		l.Pruned = gone[l.ID]
		l.Segments = slices.DeleteFunc(slices.Clone(l.Segments), func(s catalog.Segment) bool { return s.Seq <= l.Pruned })
		left.Lineages = append(left.Lineages, l)
	}
	return left
}
