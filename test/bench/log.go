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
)

// replayed is the cost of replaying a log: puts of 256 bytes onto a base.
type replayed struct {
	baseMB, requests int
	restore          []cost
	floor            []time.Duration // the same revisions directly into bbolt
}

// measureReplay restores a backup and a long log after it. This program writes the log: a server would take minutes to
// make it, and the restore sees no difference.
func measureReplay(ctx context.Context, o options, baseMB, requests int, dr, dir string) (replayed, error) {
	r := replayed{baseMB: baseMB, requests: requests}
	b := bench{ctx: ctx, options: o, dr: dr, dir: dir}
	err := b.prepare(measured{megabytes: baseMB})
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
	fmt.Fprintf(os.Stderr, "bench: writing a log of %d requests\n", requests)
	err = b.writeLog(requests)
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
		floor, err := b.floor(requests)
		if err != nil {
			return r, err
		}
		r.floor = append(r.floor, floor)
	}
	return r, nil
}

// writeLog writes a log after the newest backup, as an agent would.
func (b *bench) writeLog(requests int) error {
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
	random := rand.New(rand.NewPCG(3, 3))
	revision, next := base.RevisionMax, base.RaftIndexMax+1
	for done := 0; done < requests; {
		var records []segment.Record
		for size := 0; size < 8<<20 && done < requests; done++ {
			data, err := putRequest(random, done)
			if err != nil {
				return err
			}
			records = append(records, segment.Record{Kind: segment.Request, Position: next, Term: base.RaftTerm, Data: data})
			size += len(data)
			next++
		}
		revision += int64(len(records))
		last := records[len(records)-1]
		sum := sha256.Sum256(last.Data)
		h.Last, h.End = last.Position, segment.End{Position: last.Position, Term: last.Term, Digest: hex.EncodeToString(sum[:])}
		now := time.Now().UTC()
		h.Written = now
		h.Marks = []segment.Mark{{Position: h.Last, Revision: revision, Interval: segment.Interval{NotBefore: now, NotAfter: now}}}
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

func putRequest(random *rand.Rand, i int) ([]byte, error) {
	return proto.Marshal(&pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: 0x6c2b000000000000 + uint64(i)},
		Put:    &pb.PutRequest{Key: key(random), Value: value(random)},
	})
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

// wallToFloor is the limit of 9 s on the machine where it was set: seconds differ from machine to machine.
const wallToFloor = 9 / 2.1

// replayMemory is the limit of a replay's memory in bytes: the mapped database has about 590 MiB.
const replayMemory = 640 << 20

func (r replayed) render(b *bytes.Buffer) (past error) {
	wall := median(r.restore, func(c cost) time.Duration { return c.wall })
	floor := slices.Sorted(slices.Values(r.floor))[len(r.floor)/2]
	var memory int64
	for _, c := range r.restore {
		memory = max(memory, c.peak)
	}
	fmt.Fprintf(b, "\n## Replaying the log\n\n%d puts of 256 bytes to 100,000 keys, onto a base of %d MB, sealed and encrypted; `dr restore` of one member, everything\nincluded. The floor is writing as many revisions straight into bbolt, with the time that it takes to make them. Where the limit\nof 9 s was set the floor took 2.1 s at most, so it is the ratio that has a limit here.\n\n", r.requests, r.baseMB)
	b.WriteString("| | measured | limit |\n|---|---|---|\n")
	fmt.Fprintf(b, "| wall | %.2f s | |\n| wall to floor | %.2f | %.2f |\n", wall.Seconds(), over(wall, floor), wallToFloor)
	fmt.Fprintf(b, "| of it fetch, check and prove the base | %.2f s | |\n", r.phase("fetch", "check", "prove").Seconds())
	fmt.Fprintf(b, "| of it replay | %.2f s | |\n", r.phase("replay").Seconds())
	fmt.Fprintf(b, "| CPU | %.2f s | |\n", median(r.restore, func(c cost) time.Duration { return c.cpu }).Seconds())
	fmt.Fprintf(b, "| memory | %d MiB | %d MiB |\n", memory>>20, replayMemory>>20)
	fmt.Fprintf(b, "| floor | %.2f s | |\n| replay to floor | %.2f | |\n", floor.Seconds(), over(r.phase("replay"), floor))
	if over(wall, floor) > wallToFloor {
		past = fmt.Errorf("replay: %.2f of the floor, the limit is %.2f", over(wall, floor), wallToFloor)
	}
	if memory > replayMemory {
		past = errors.Join(past, fmt.Errorf("replay: %d MiB of memory, the limit is %d MiB", memory>>20, replayMemory>>20))
	}
	return past
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
