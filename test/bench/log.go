package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/apiwrites"
)

// replayed is the cost of replaying a log onto a base.
type replayed struct {
	baseMB, requests int
	limit            float64 // of the wall time to the floor
	restore          []cost
	floor            []time.Duration // the same revisions directly into bbolt
}

// measureReplay restores a backup and a long log of writes after it. This program makes the log: a server would take minutes
// for it, and the restore sees no difference.
func measureReplay(ctx context.Context, o options, r replayed, writes func(revision int64) writer, dr, dir string) (replayed, error) {
	b := bench{ctx: ctx, options: o, dr: dr, dir: dir}
	err := b.prepare(measured{megabytes: r.baseMB})
	if err != nil {
		return r, err
	}
	defer b.stop()
	err = b.warm(&result{})
	if err != nil {
		return r, err
	}
	_, err = b.backup()
	if err != nil {
		return r, err
	}
	b.stop()
	fmt.Fprintf(os.Stderr, "bench: writing a log of %d requests\n", r.requests)
	err = b.writeLog(r.requests, writes)
	if err != nil {
		return r, err
	}
	for i := range o.pairs {
		fmt.Fprintf(os.Stderr, "bench: replay %d of %d\n", i+1, o.pairs)
		c, err := b.restoreOne()
		if err != nil {
			return r, err
		}
		r.restore = append(r.restore, c)
		floor, err := b.floor(r.requests)
		if err != nil {
			return r, err
		}
		r.floor = append(r.floor, floor)
	}
	return r, nil
}

// A writer makes requests that change a key space.
type writer interface {
	Next(value []byte) *pb.InternalRaftRequest
	Revision() int64 // of the key space after the requests that were made
}

// putter makes puts to 100,000 keys.
type putter struct {
	random   *rand.Rand
	made     uint64
	revision int64
}

func newPutter(revision int64) writer {
	return &putter{random: rand.New(rand.NewPCG(3, 4)), revision: revision}
}

func (p *putter) Revision() int64 { return p.revision }

func (p *putter) Next(value []byte) *pb.InternalRaftRequest {
	p.made++
	p.revision++
	return &pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: 0x6c2b000000000000 + p.made}, Put: &pb.PutRequest{Key: key(p.random), Value: value},
	}
}

func newAPIServer(revision int64) writer { return apiwrites.New(revision) }

// writeLog writes a log after the newest backup, as an agent would.
func (b *bench) writeLog(requests int, writes func(revision int64) writer) error {
	c, to, err := b.openRepository()
	if err != nil {
		return err
	}
	catalog, err := c.Load(b.ctx, backups.LoadOptions{})
	if err != nil {
		return err
	}
	base, err := catalog.Latest()
	if err != nil {
		return err
	}
	h := segment.Header{
		Cluster: base.Cluster, Lineage: strings.Repeat("0123456789abcdef", 2), Seq: 1, First: base.RaftIndex + 1,
		Source: segment.WAL, ClusterID: base.ClusterID, Member: base.Member.ID, ServerVersion: base.EtcdVersion,
		Writer: "bench", DRVersion: "bench", Reason: "the first of this cluster",
	}
	random, w := rand.New(rand.NewPCG(3, 3)), writes(base.RevisionMax)
	for done, next := 0, base.RaftIndexMax+1; done < requests; {
		var records []segment.Record
		for size := 0; size < 8<<20 && done < requests; done++ {
			data, err := proto.Marshal(w.Next(value(random)))
			if err != nil {
				return err
			}
			records = append(records, segment.Record{Kind: segment.Request, Position: next, Term: base.RaftTerm, Data: data})
			size += len(data)
			next++
		}
		last := records[len(records)-1]
		sum := sha256.Sum256(last.Data)
		h.Last, h.End = last.Position, segment.End{Position: last.Position, Term: last.Term, Digest: hex.EncodeToString(sum[:])}
		now := time.Now().UTC()
		h.Written = now
		h.Marks = []segment.Mark{{Position: h.Last, Revision: w.Revision(), Interval: segment.Interval{NotBefore: now, NotAfter: now}}}
		encoded, err := segment.Encode(h, records, to)
		if err != nil {
			return err
		}
		err = c.Log().StoreSegment(b.ctx, encoded)
		if err != nil {
			return err
		}
		h.Seq, h.First, h.Previous, h.Reason = h.Seq+1, h.Last+1, encoded.Digest, ""
	}
	return nil
}

func (b *bench) openRepository() (*repository.Cluster, seal.Recipients, error) {
	bucket, err := stores.Open(b.ctx, "file://"+b.path("repo"), stores.Options{})
	if err != nil {
		return nil, seal.Recipients{}, err
	}
	c, err := repository.Open(bucket, "bench")
	if err != nil {
		return nil, seal.Recipients{}, err
	}
	to, err := seal.ParseRecipients(strings.NewReader(b.recipient))
	return c, to, err
}

// key returns one of 100,000 keys: most writes of a cluster are to existing keys.
func key(random *rand.Rand) []byte {
	n := random.IntN(100_000)
	return fmt.Appendf(nil, "/registry/pods/namespace-%03d/object-%06d", n%100, n)
}

// value returns 256 hex digits; every other value is one of 100 that repeat.
func value(random *rand.Rand) []byte {
	source := random
	if random.IntN(2) == 0 {
		source = rand.New(rand.NewPCG(7, random.Uint64N(100)))
	}
	var raw [128]byte
	for i := 0; i < len(raw); i += 8 {
		binary.LittleEndian.PutUint64(raw[i:], source.Uint64())
	}
	return hex.AppendEncode(nil, raw[:])
}

// floor writes as many revisions as the log has directly into a copy of the base: nothing that produces the same file
// can be faster.
func (b *bench) floor(requests int) (time.Duration, error) {
	path := b.path("floor.db")
	err := os.RemoveAll(path)
	if err != nil {
		return 0, err
	}
	err = command(b.ctx, "cp", b.path("saved.db"), path)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, Timeout: time.Second})
	if err != nil {
		return 0, err
	}
	random := rand.New(rand.NewPCG(3, 3))
	for done := 0; done < requests; {
		err := db.Update(func(tx *bolt.Tx) error {
			keys := tx.Bucket([]byte("key"))
			keys.FillPercent = 0.9
			for range min(10_000, requests-done) {
				done++
				kv, err := proto.Marshal(&mvccpb.KeyValue{
					Key: key(random), Value: value(random),
					CreateRevision: int64(done), ModRevision: int64(done), Version: 1,
				})
				if err != nil {
					return err
				}
				revision := binary.BigEndian.AppendUint64(nil, uint64(done)+1<<40)
				revision = binary.BigEndian.AppendUint64(append(revision, '_'), 0)
				err = keys.Put(revision, kv)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	err = errors.Join(db.Sync(), db.Close())
	return time.Since(begin), err
}

// Limits of the wall time to the floor, since seconds differ from machine to machine.
const (
	putsToFloor   = 3.1
	writesToFloor = 4.0
)

// replayMemory is the limit of a replay's memory in bytes: the mapped database has about 590 MiB.
const replayMemory = 672 << 20

// renderReplays writes what replaying puts and an API server's writes costs.
func renderReplays(b *bytes.Buffer, puts, writes replayed) (past error) {
	fmt.Fprintf(b, "\n## Replaying the log\n\n%d puts of 256 bytes to 100,000 keys, and as many writes of an API server of Kubernetes, each onto a base of %d MB,\nsealed and encrypted; `dr restore` of one member, everything included. Each write of the API server is a transaction that\ncompares one revision; one in ten makes an event with a lease, about one in ten deletes. The floor is writing as many revisions\nstraight into bbolt, with the time that it takes to make them. The ratio has a limit, since seconds differ from machine to machine.\n\n", puts.requests, puts.baseMB)
	b.WriteString("| | puts | limit | API server | limit |\n|---|---|---|---|---|\n")
	for _, row := range []struct {
		name  string
		value func(r replayed) string
		limit func(r replayed) string
	}{
		{name: "wall", value: func(r replayed) string { return inSeconds(r.wall()) }},
		{
			name:  "wall to floor",
			value: func(r replayed) string { return fmt.Sprintf("%.2f", over(r.wall(), r.least())) },
			limit: func(r replayed) string { return fmt.Sprintf("%.2f", r.limit) },
		},
		{name: "of it fetch, check and prove the base", value: func(r replayed) string { return inSeconds(r.phase("fetch", "check", "prove")) }},
		{name: "of it replay", value: func(r replayed) string { return inSeconds(r.phase("replay")) }},
		{name: "CPU", value: func(r replayed) string {
			return inSeconds(median(r.restore, func(c cost) time.Duration { return c.cpu }))
		}},
		{
			name:  "memory",
			value: func(r replayed) string { return fmt.Sprintf("%d MiB", r.memory()>>20) },
			limit: func(replayed) string { return fmt.Sprintf("%d MiB", replayMemory>>20) },
		},
		{name: "floor", value: func(r replayed) string { return inSeconds(r.least()) }},
		{name: "replay to floor", value: func(r replayed) string { return fmt.Sprintf("%.2f", over(r.phase("replay"), r.least())) }},
	} {
		fmt.Fprintf(b, "| %s |", row.name)
		for _, r := range []replayed{puts, writes} {
			limit := ""
			if row.limit != nil {
				limit = row.limit(r)
			}
			fmt.Fprintf(b, " %s | %s |", row.value(r), limit)
		}
		b.WriteString("\n")
	}
	return errors.Join(puts.past("puts"), writes.past("writes of an API server"))
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// past returns an error for each limit that r exceeds.
func (r replayed) past(what string) (past error) {
	ratio := over(r.wall(), r.least())
	if ratio > r.limit {
		past = fmt.Errorf("replay of %s: %.2f of the floor, the limit is %.2f", what, ratio, r.limit)
	}
	if r.memory() > replayMemory {
		past = errors.Join(past, fmt.Errorf("replay of %s: %d MiB of memory, the limit is %d MiB", what, r.memory()>>20, replayMemory>>20))
	}
	return past
}

func (r replayed) wall() time.Duration {
	return median(r.restore, func(c cost) time.Duration { return c.wall })
}

// least returns the median time of the floor.
func (r replayed) least() time.Duration { return slices.Sorted(slices.Values(r.floor))[len(r.floor)/2] }

// memory returns the most memory that a restore took, in bytes.
func (r replayed) memory() (most int64) {
	for _, c := range r.restore {
		most = max(most, c.peak)
	}
	return most
}

func (r replayed) phase(stages ...string) time.Duration {
	return median(r.restore, func(c cost) (sum time.Duration) {
		for _, stage := range stages {
			sum += c.phases[stage]
		}
		return sum
	})
}

func segmentFiles(repo, cluster string) ([]string, error) {
	return filepath.Glob(filepath.Join(repo, cluster, "log", "*", "*.seg"))
}
