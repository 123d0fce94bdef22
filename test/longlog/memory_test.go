package longlog_test

import (
	"math"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/longlog"
)

const (
	days  = 60 * 24 * 3600 / 2 // segments of 60 days at --flush 2s
	limit = 150 << 20          // bytes, with that log
)

// TestMemoryOfALongLog checks that the readers in an agent, a service and a restore need bounded memory for a log of 60
// days. It measures two shorter logs, because 60 days take minutes to unpack. Only the listing grows with the log.
func TestMemoryOfALongLog(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes several times the memory")
	}
	short, long := longlog.New(t, 3*longlog.Index+300), longlog.New(t, 20*longlog.Index+300)
	for what, do := range readings() {
		t.Run(what, func(t *testing.T) {
			measure := func(l *longlog.Log) longlog.Memory {
				c, err := repository.Open(l, longlog.Cluster)
				if err != nil {
					t.Fatal(err)
				}
				return l.Measure(func() any { return do(t, c) })
			}
			measure(short) // memory that is allocated once, such as tables
			a, b := measure(short), measure(long)
			each := float64(b.Listed-a.Listed+b.Held-a.Held) / float64(long.Segments-short.Segments)
			all := b.Peak + int64(each*float64(days-long.Segments))
			t.Logf("%+v and %+v: %.1f bytes a segment, %d MiB for 60 days", a, b, each, all>>20)
			if all > limit {
				t.Errorf("it would take %d MiB with a log of 60 days, want at most %d", all>>20, limit>>20)
			}
		})
	}
}

// readings are all ways to read a log, by the name of the reader.
func readings() map[string]func(t *testing.T, c *repository.Cluster) any {
	load := func(t *testing.T, c *repository.Cluster, o backups.LoadOptions) catalog.Catalog {
		catalog, err := c.Load(t.Context(), o)
		if err != nil || len(catalog.Windows()) != 1 || len(catalog.Gaps()) != 0 {
			t.Fatalf("windows %+v, gaps %+v, error %v", catalog.Windows(), catalog.Gaps(), err)
		}
		return catalog
	}
	all := backups.LoadOptions{Proofs: true, Log: true}
	return map[string]func(t *testing.T, c *repository.Cluster) any{
		"an agent's start and takeover": func(t *testing.T, c *repository.Cluster) any {
			tail, err := c.Log().Tail(t.Context())
			if err != nil || tail.Broken != nil {
				t.Fatal(tail.Broken, err)
			}
			return tail
		},
		"an agent's search for a base, a service's survey": func(t *testing.T, c *repository.Cluster) any {
			s, err := c.Survey(t.Context(), repository.SurveyOptions{Newest: 6})
			if err != nil || len(s.Windows()) != 1 {
				t.Fatalf("windows %+v, error %v", s.Windows(), err)
			}
			return s
		},
		"a trigger": func(t *testing.T, c *repository.Cluster) any {
			return load(t, c, backups.LoadOptions{Newest: 1, Log: true})
		},
		"dr list, the API's catalog": func(t *testing.T, c *repository.Cluster) any {
			catalog := load(t, c, all)
			list := document.NewList()
			list.Add(catalog)
			return []any{catalog, list}
		},
		"a prune": func(t *testing.T, c *repository.Cluster) any {
			catalog := load(t, c, all)
			decisions, err := retention.Plan(catalog, retention.Policy{Window: 5 * time.Minute}, catalog.Windows()[0].To.Time)
			if err != nil || len(decisions.Log) != 1 {
				t.Fatalf("%+v, error %v", decisions.Log, err)
			}
			return []any{catalog, decisions}
		},
		"a plan": func(t *testing.T, c *repository.Cluster) any {
			catalog := load(t, c, all)
			w := catalog.Windows()[0]
			target := plan.Target{Time: w.From.Time.Add(w.To.Time.Sub(w.From.Time) / 2)}
			catalog, err := restore.Detail(t.Context(), plan.Request{Catalog: catalog, Target: target}, c.Log().Unfold)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := plan.New(catalog, target, plan.Layout{Token: "t"}, w.To.Time)
			if err != nil {
				t.Fatal(err)
			}
			return []any{catalog, plan}
		},
		"a restore": func(t *testing.T, c *repository.Cluster) any {
			l, err := c.Log().LoadRange(t.Context(), longlog.Lineage, 1, math.MaxInt64)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range c.Log().Unfolded(t.Context(), l.Segments, 1, l.Segments[len(l.Segments)-1].Seq) {
				if err != nil {
					t.Fatal(err)
				}
			}
			return l
		},
	}
}

// TestRequestsOfAPackedLog checks that a list, and the range of a restore, take few requests, however much of the log is packed: one for each
// segment that not even the recent index contains, and few more.
func TestRequestsOfAPackedLog(t *testing.T) {
	l := longlog.New(t, 40*longlog.Index+300)
	l.Pack(t, 2*longlog.Index)
	c, err := repository.Open(l, longlog.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	before := l.Requests()
	cat, err := c.Load(t.Context(), backups.LoadOptions{Log: true, Copies: records.AnyCopies})
	if err != nil || len(cat.Windows()) != 1 || cat.Windows()[0].Segments != l.Segments || len(cat.Gaps()) > 0 {
		t.Fatalf("%v, %+v", err, cat.Windows())
	}
	listed := l.Requests() - before
	_, err = c.Log().LoadRange(t.Context(), longlog.Lineage, uint64(l.Segments-10), uint64(l.Segments))
	if err != nil {
		t.Fatal(err)
	}
	ranged := l.Requests() - before - listed
	t.Logf("%d and %d requests", listed, ranged)
	if listed > longlog.Recent+20 || ranged > 11+20 {
		t.Errorf("a list takes %d requests, the range of a restore of 11 segments %d", listed, ranged)
	}
}
