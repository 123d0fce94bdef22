package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// compared is one object store: the cost of putting and getting an object with dr, and with its SDK.
type compared struct {
	name string
	size int64 // of the object, bytes
	ours struct{ put, get, ranges *side }
	// The SDK's ways to do it. The limit is relative to the one that uses the least CPU.
	puts, gets []*side
}

// side is one way to put or get an object.
type side struct {
	name  string
	do    func(context.Context) error
	costs []cost
}

// measureStores compares our stores with the SDKs that they use. Its limits apply as the others do.
func measureStores(ctx context.Context, o options, dir string) (page string, past error, err error) {
	err = os.MkdirAll(dir, 0o700)
	if err != nil {
		return "", nil, err
	}
	binaries, err := measureBinaries(ctx, o, filepath.Join(dir, "dr"))
	if err != nil {
		return "", nil, err
	}
	size := int64(256 << 20)
	if o.quick {
		size = 4 << 20
	}
	var all []*compared
	var growth *grown
	var long longLog
	var quiet *idle
	err = withServers(ctx, dir, func(t testing.TB) (err error) {
		quiet = newIdle(o, t)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return quiet.measure(ctx, o, filepath.Join(dir, "dr"), filepath.Join(dir, "idle")) })
		defer func() { err = errors.Join(err, group.Wait()) }() // it takes longer than the rest, and next to no time of a core
		all = []*compared{compareS3(t, size), compareAzure(t, size), compareGCS(t, size)}
		for _, c := range all {
			err := c.measure(ctx, o.pairs)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		growth, err = measureGrowth(ctx, o, t)
		if err != nil {
			return err
		}
		long, err = measureLongLog(ctx, o, t)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	past = errors.Join(renderStores(&b, all), growth.render(&b), long.render(&b), quiet.render(&b))
	if o.quick {
		past = nil
	}
	renderBinaries(&b, binaries)
	return b.String(), past, nil
}

// measure alternates between the sides. The first round opens connections and fills pools, and does not count.
func (c *compared) measure(ctx context.Context, pairs int) error {
	for round := range pairs + 1 {
		fmt.Fprintf(os.Stderr, "bench: %s, round %d of %d\n", c.name, round+1, pairs+1)
		for _, s := range c.sides() {
			spent, err := timedHere(ctx, s.do)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				s.costs = append(s.costs, spent)
			}
		}
	}
	return nil
}

// sides returns the sides in an order that writes each object before reading it.
func (c *compared) sides() []*side {
	return slices.Concat([]*side{c.ours.put}, c.puts, []*side{c.ours.get, c.ours.ranges}, c.gets)
}

// timedHere is timed for work in this process. The servers are other processes and do not count.
func timedHere(ctx context.Context, do func(context.Context) error) (cost, error) {
	runtime.GC() // the garbage of the step before must not count
	cpu, begin := usedHere(), time.Now()
	err := do(ctx)
	return cost{wall: time.Since(begin), cpu: usedHere() - cpu}, err
}

// usedHere returns the CPU time of all threads of this process.
func usedHere() time.Duration {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	if err != nil {
		panic(err) // it fails only with wrong arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ours puts and gets an object in one of our buckets, at the end of url: in one stream, as the SDKs do it, and in
// concurrent ranges, as dr restore does, which is faster over a network and uses more CPU.
func ours(t testing.TB, url string, size int64) (all struct{ put, get, ranges *side }) {
	one, several := openStore(t, url, 1), openStore(t, url, stores.DefaultParallel)
	all.put = &side{name: "dr", do: func(ctx context.Context) error {
		obj, err := several.Put(ctx, keyOurs, newNoise(size), storage.PutOptions{})
		if err == nil && obj.Size != size {
			err = fmt.Errorf("%d of %d bytes were stored", obj.Size, size)
		}
		return err
	}}
	all.get = &side{name: "dr", do: getting(one, size)}
	all.ranges = &side{name: "dr, four ranges at a time", do: getting(several, size)}
	return all
}

func getting(b storage.Bucket, size int64) func(context.Context) error {
	return func(ctx context.Context) error {
		r, _, err := b.Open(ctx, keyOurs, storage.OpenOptions{})
		if err != nil {
			return err
		}
		return errors.Join(drain(r, size), r.Close())
	}
}

// block has the random bytes of every object. It is smaller than they are, so that it does not raise the heap size at
// which the garbage of both sides is collected.
var block = func() []byte {
	p := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(p) // never fails
	return p
}()

// noise is a stream that costs one copy. Like a snapshot it can neither be rewound nor reports its size.
type noise struct {
	at   int
	left int64
}

func newNoise(size int64) *noise { return &noise{left: size} }

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	copied := copy(p[:min(int64(len(p)), n.left)], block[n.at:])
	n.at = (n.at + copied) % len(block)
	n.left -= int64(copied)
	return copied, nil
}

// drain reads like a consumer of the bytes: into one buffer, and without the shortcuts of io.Copy.
func drain(r io.Reader, size int64) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes came", n, size)
	}
	return err
}
