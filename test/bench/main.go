// Command bench measures dr against etcdctl and etcdutl in one run, alternating, and writes docs/benchmarks.md. It
// exits with 1 if a median exceeds its limit. Absolute times depend on the machine; the ratios are the result.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
)

func main() {
	var o options
	flag.IntVar(&o.pairs, "pairs", 5, "alternating pairs of each measurement")
	flag.StringVar(&o.out, "out", "docs/benchmarks.md", "the page to write, empty for none")
	flag.StringVar(&o.dir, "dir", "", "where the data goes (default: a temporary directory)")
	flag.BoolVar(&o.logOnly, "log", false, "only archiving and replaying, no page")
	flag.BoolVar(&o.fleetOnly, "fleet", false, "only a service with many clusters, no page")
	flag.BoolVar(&o.storesOnly, "stores", false, "only the object stores, no page")
	flag.BoolVar(&o.quick, "quick", false, "a 16 MiB database, one pair, no limits: to see that it works")
	flag.Parse()
	o.tools = os.Getenv("ETCD_DR_TOOLS")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	pairs int
	out   string
	dir   string
	tools string
	quick bool

	profiling string // the dr whose processes write CPU profiles

	logOnly    bool
	storesOnly bool
	fleetOnly  bool
}

func (o options) tool(name string) string { return filepath.Join(o.tools, "etcd-3.7", name) }

// sizes returns the databases to measure, in MB, and whether the limits apply to them.
func (o options) sizes() []measured {
	if o.logOnly {
		return nil
	}
	if o.quick {
		return []measured{{megabytes: 16}, {smallKeys: 20_000}}
	}
	return []measured{{megabytes: 200}, {megabytes: 1000, limits: true}, {smallKeys: 4_000_000, limits: true}}
}

// measured is a database to measure: of a size in MB, or of a number of small keys.
type measured struct {
	megabytes, smallKeys int
	limits               bool
}

func (m measured) String() string {
	if m.smallKeys > 0 {
		return fmt.Sprintf("%d small keys", m.smallKeys)
	}
	return fmt.Sprintf("%d MB", m.megabytes)
}

// generate writes the database.
func (m measured) generate(path string) error {
	if m.smallKeys > 0 {
		return database.GenerateSmall(path, m.smallKeys)
	}
	return database.Generate(path, int64(m.megabytes)*1_000_000)
}

// measureLog measures archiving and replaying; its limits apply as the others do.
func measureLog(ctx context.Context, o options, dr, dir string) (page string, past error, err error) {
	lasts, baseMB, requests := 20*time.Second, 200, 1_000_000
	if o.quick {
		lasts, baseMB, requests = 2*time.Second, 2, 5000
	}
	var b bytes.Buffer
	for _, source := range []segment.Source{segment.WAL, segment.Watch} {
		archived, err := measureArchive(ctx, o, source, lasts, dr, filepath.Join(dir, string(source)))
		if err != nil {
			return "", nil, err
		}
		archived.shares, err = shares(ctx, dir, func() error {
			_, err := measureArchive(ctx, o, source, lasts/2, o.profiling, filepath.Join(dir, "profiled-"+string(source)))
			return err
		})
		if err != nil {
			return "", nil, err
		}
		past = errors.Join(past, archived.render(&b))
	}
	puts, err := measureReplay(ctx, o, replayed{baseMB: baseMB, requests: requests, limit: putsToFloor}, newPutter, dr, filepath.Join(dir, "puts"))
	if err != nil {
		return "", nil, err
	}
	writes, err := measureReplay(ctx, o, replayed{baseMB: baseMB, requests: requests, limit: writesToFloor}, newAPIServer, dr, filepath.Join(dir, "writes"))
	if err != nil {
		return "", nil, err
	}
	past = errors.Join(past, renderReplays(&b, puts, writes))
	return b.String(), past, nil
}

func run(ctx context.Context, o options) error {
	if o.fleetOnly {
		page, past, err := measureFleet(ctx, o)
		fmt.Print(page)
		return errors.Join(past, err)
	}
	if o.tools == "" {
		return errors.New("ETCD_DR_TOOLS names no directory: run make bench")
	}
	if o.quick {
		o.pairs = 1
	}
	dir, err := os.MkdirTemp(o.dir, "dr-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.storesOnly {
		page, past, err := measureStores(ctx, o, filepath.Join(dir, "stores"))
		if err == nil {
			fmt.Println(page)
		}
		return errors.Join(past, err)
	}
	dr := filepath.Join(dir, "dr")
	err = command(ctx, "go", "build", "-o", dr, "./cmd/dr")
	if err == nil {
		o.profiling = filepath.Join(dir, "dr-profiling")
		err = buildProfiling(ctx, o.profiling)
	}
	if err != nil {
		return err
	}
	var results []result
	for i, db := range o.sizes() {
		r, err := measure(ctx, o, db, dr, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	page, past := render(results, o.pairs)
	about, pastLog, err := measureLog(ctx, o, dr, dir)
	if err != nil {
		return err
	}
	page += about
	if !o.quick {
		past = errors.Join(past, pastLog)
	}
	if !o.logOnly {
		about, pastStores, err := measureStores(ctx, o, filepath.Join(dir, "stores"))
		if err != nil {
			return err
		}
		page, past = page+about, errors.Join(past, pastStores)
		about, pastStores, err = measureFleet(ctx, o)
		if err != nil {
			return err
		}
		page, past = page+about, errors.Join(past, pastStores)
	}
	fmt.Println(page)
	if o.out != "" && !o.quick && !o.logOnly {
		err := os.WriteFile(o.out, []byte(page), 0o644)
		if err != nil {
			return err
		}
	}
	return past
}
