package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// render returns the page, and an error for every exceeded limit.
func render(results []result, pairs int) (page string, past error) {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Written by `+"`make bench`"+` on %s: %d cores, Go %s, etcd 3.7. Medians of %d alternating pairs in one run.
The machine also runs other work: compare the ratios, not the times. Memory is the peak of the process or of
its largest child, without the pages of the program itself.

"work" is the wall time without the phases check (every page, and meanwhile the key space) and prove (its hash compared with the
member's). The other tools have no such phases, so these have their own columns.
`, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), pairs)
	for _, r := range results {
		fmt.Fprintf(&b, "\n## %s (snapshot of %d MiB)\n\n", r.measured, r.size>>20)
		b.WriteString("| command | wall | work | check | prove | CPU | memory |\n|---|---|---|---|---|---|---|\n")
		row(&b, "etcdctl snapshot save", r.save)
		row(&b, "dr backup, sealed and encrypted", r.backup)
		row(&b, "zstd -d, etcdutl snapshot restore, one member", r.theirRestore)
		row(&b, "dr restore, one member", r.restoreOne)
		row(&b, "dr restore, three members", r.restoreAll)
		row(&b, "two synced copies of the database: the least that two more members can cost", r.copies)
		fmt.Fprintf(&b, "\nA client that writes all the time waits for at most %.2f s while etcdctl saves, and %.2f s during dr backup (medians).\n",
			median(r.saveStalls, func(c cost) time.Duration { return c.wall }).Seconds(),
			median(r.backupStalls, func(c cost) time.Duration { return c.wall }).Seconds())
		fmt.Fprintf(&b, "\nThe CPU of dr, by package: in the backup %s; in the restore of one member %s.\n", r.backupShares, r.restoreShares)
		b.WriteString("\n| ratio | measured | limit |\n|---|---|---|\n")
		for _, l := range r.ratios() {
			fmt.Fprintf(&b, "| %s | %.2f | %.2f |\n", l.what, l.is, l.limit)
			if r.limits && l.is > l.limit {
				past = errors.Join(past, fmt.Errorf("%s: %s is %.2f, the limit is %.2f", r.measured, l.what, l.is, l.limit))
			}
		}
	}
	return b.String(), past
}

type ratio struct {
	what      string
	is, limit float64
}

func (r result) ratios() []ratio {
	wall := func(c cost) time.Duration { return c.wall }
	cpu := func(c cost) time.Duration { return c.cpu }
	backupWall, backupCPU := 1.3, 2.0
	if r.smallKeys > 0 { // a byte of them costs more CPU to compress
		backupWall, backupCPU = 1.75, 2.2
	}
	return []ratio{
		{"backup to etcdctl, wall", over(median(r.backup, wall), median(r.save, wall)), backupWall},
		{"backup to etcdctl, CPU", over(median(r.backup, cpu), median(r.save, cpu)), backupCPU},
		{"the member's longest write meanwhile to etcdctl's", over(median(r.backupStalls, wall), median(r.saveStalls, wall)), 1.25},
		{"restore of one member to etcdutl's, work", over(median(r.restoreOne, cost.work), median(r.theirRestore, wall)), 1},
		{"restore of three members to etcdutl's one, work", over(median(r.restoreAll, cost.work), median(r.theirRestore, wall)), 1.5},
		{"cost of two more members to that of two copies", over(median(r.restoreAll, wall)-median(r.restoreOne, wall), median(r.copies, wall)), 1.5},
	}
}

func over(a, b time.Duration) float64 { return float64(a) / float64(b) }

func row(b *strings.Builder, name string, costs []cost) {
	phase := func(stage string) string {
		d := median(costs, func(c cost) time.Duration { return c.phases[stage] })
		if d == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	var memory int64
	for _, c := range costs {
		memory = max(memory, c.peak)
	}
	fmt.Fprintf(b, "| %s | %.2f s | %.2f s | %s | %s | %.2f s | %d MiB |\n", name,
		median(costs, func(c cost) time.Duration { return c.wall }).Seconds(), median(costs, cost.work).Seconds(),
		phase("check"), phase("prove"), median(costs, func(c cost) time.Duration { return c.cpu }).Seconds(), memory>>20)
}

func median(costs []cost, of func(cost) time.Duration) time.Duration {
	var all []time.Duration
	for _, c := range costs {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
