package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/longlog"
)

// The limits of reading a long log after it was packed.
const (
	longWall     = 2 * time.Second
	longMemory   = 200 << 20
	longRequests = 100
)

// longLog is the log of a month, as an agent writes it by default.
type longLog struct {
	segments            int
	before, after, plan reading
}

// reading is the cost of reading a log.
type reading struct {
	costs    []cost
	requests int
	memory   int64 // bytes
}

// measureLongLog measures a list and a plan of a long log before and after prunes have packed it. The store is in memory.
func measureLongLog(ctx context.Context, o options, t testing.TB) (m longLog, err error) {
	m.segments = 30*24*3600/2 + 300
	if o.quick {
		m.segments = 40*longlog.Index + 300
	}
	fmt.Fprintf(os.Stderr, "bench: making a log of %d segments\n", m.segments)
	l := longlog.New(t, m.segments)
	m.before, err = m.measure(ctx, l, 1, m.list)
	if err != nil {
		return m, err
	}
	l.Pack(t, 3*3600/2) // an hour old at least, packed by an hourly prune, and removed by one that is another hour later
	m.after, err = m.measure(ctx, l, o.pairs, m.list)
	if err == nil {
		m.plan, err = m.measure(ctx, l, o.pairs, m.planNewest)
	}
	return m, err
}

// measure measures do some times, and then its memory.
func (m longLog) measure(ctx context.Context, l *longlog.Log, times int, do func(context.Context, *longlog.Log) error) (r reading, err error) {
	for range times {
		before := l.Requests()
		spent, err := timedHere(ctx, func(ctx context.Context) error { return do(ctx, l) })
		if err != nil {
			return r, err
		}
		r.costs, r.requests = append(r.costs, spent), l.Requests()-before
	}
	r.memory = l.Measure(func() any {
		err = do(ctx, l)
		return nil
	}).Peak
	return r, err
}

func (m longLog) list(ctx context.Context, l *longlog.Log) error {
	_, err := m.load(ctx, l)
	return err
}

// load loads the catalog as dr list does.
func (m longLog) load(ctx context.Context, l *longlog.Log) (plan.Request, error) {
	c, err := repository.Open(l, longlog.Cluster)
	if err != nil {
		return plan.Request{}, err
	}
	cat, err := c.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Log: true, Copies: records.AnyCopies})
	if err != nil {
		return plan.Request{}, err
	}
	windows := cat.Windows()
	if len(windows) != 1 || len(cat.Gaps()) > 0 || windows[0].Segments != m.segments {
		return plan.Request{}, fmt.Errorf("the windows are %+v", windows)
	}
	request := plan.Request{Catalog: cat}
	request.Catalog, err = restore.Detail(ctx, request, c.Log().Unfold)
	return request, err
}

// planNewest plans a restore of the newest state.
func (m longLog) planNewest(ctx context.Context, l *longlog.Log) error {
	request, err := m.load(ctx, l)
	if err != nil {
		return err
	}
	_, err = plan.New(request.Catalog, plan.Target{}, plan.Layout{Token: "t"}, longlog.Begin.AddDate(1, 0, 0))
	return err
}

const aboutLongLog = `
A list of the log of 30 days at --flush 2s, the default: %d segments, before and after prunes have packed those that are older than three
hours and stored a summary. A plan makes the same requests if a trusted key has signed the summary. The store is in memory; with S3
each request takes 10 to 50 ms. The headers of the newest segments, which no index has yet, are read 32 at a time.

| | wall | limit | CPU | memory | limit | requests | limit |
|---|---|---|---|---|---|---|---|
`

// render returns an error if a list or a plan takes too long, or too much memory.
func (m longLog) render(b *strings.Builder) (err error) {
	fmt.Fprintf(b, aboutLongLog, m.segments)
	for _, r := range []struct {
		name string
		reading
	}{{"list before", m.before}, {"list after", m.after}, {"plan of the newest state after", m.plan}} {
		wall, cpu := median(r.costs, func(c cost) time.Duration { return c.wall }), median(r.costs, func(c cost) time.Duration { return c.cpu })
		limits := [3]string{}
		if r.name != "list before" {
			limits = [3]string{fmt.Sprintf("%.0f s", longWall.Seconds()), fmt.Sprintf("%d MiB", longMemory>>20), fmt.Sprint(longRequests)}
			if wall > longWall || r.memory > longMemory || r.requests > longRequests {
				err = fmt.Errorf("%s: a log of %d segments takes %.2f s, %d MiB and %d requests", r.name, m.segments, wall.Seconds(), r.memory>>20, r.requests)
			}
		}
		fmt.Fprintf(b, "| %s | %.2f s | %s | %.2f s | %d MiB | %s | %d | %s |\n",
			r.name, wall.Seconds(), limits[0], cpu.Seconds(), r.memory>>20, limits[1], r.requests, limits[2])
	}
	return err
}
