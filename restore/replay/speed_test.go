package replay_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/apiwrites"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// makeBase writes a database of about size bytes at position 1 of the log, and returns its path.
func makeBase(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	err := database.Generate(path, size)
	if err != nil {
		t.Fatal(err)
	}
	update(t, path, func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		err := meta.Put(schema.MetaTermKeyName, binary.BigEndian.AppendUint64(nil, 1))
		if err != nil {
			return err
		}
		return meta.Put(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, 1))
	})
	return path
}

func update(t testing.TB, path string, do func(*bolt.Tx) error) {
	t.Helper()
	err := database.Edit(path, do)
	if err != nil {
		t.Fatal(err)
	}
}

// puts yields count requests with values of 256 bytes, from position 2 on, to a quarter as many keys.
func puts(t testing.TB, count int) iter.Seq2[segment.Record, error] {
	t.Helper()
	value := make([]byte, 256)
	for i := range value {
		value[i] = byte(i * 7)
	}
	return func(yield func(segment.Record, error) bool) {
		random := rand.New(rand.NewPCG(1, 1))
		var data []byte
		request := &pb.InternalRaftRequest{Header: &pb.RequestHeader{}, Put: &pb.PutRequest{Value: value}}
		for i := range count {
			request.Header.ID = uint64(i) + 1<<50
			request.Put.Key = fmt.Appendf(request.Put.Key[:0], "/registry/pods/namespace-%03d/%09d", i%100, random.IntN(count/4+1))
			var err error
			data, err = (proto.MarshalOptions{}).MarshalAppend(data[:0], request)
			if err != nil {
				t.Error(err)
				return
			}
			if !yield(segment.Record{Kind: segment.Request, Position: uint64(i) + 2, Term: 1, Data: data}, nil) {
				return
			}
		}
	}
}

// apiServer yields count requests of an API server, from position 2 on. revision is the database's.
func apiServer(t testing.TB, revision int64, count int) iter.Seq2[segment.Record, error] {
	t.Helper()
	return func(yield func(segment.Record, error) bool) {
		source, value := apiwrites.New(revision), make([]byte, 256)
		for i := range count {
			data, err := proto.Marshal(source.Next(value))
			if err != nil {
				t.Error(err)
				return
			}
			if !yield(segment.Record{Kind: segment.Request, Position: uint64(i) + 2, Term: 1, Data: data}, nil) {
				return
			}
		}
	}
}

func sizes() (base int64, count int) {
	if testing.Short() {
		return 10 << 20, 20_000
	}
	return 200 << 20, 1_000_000
}

// BenchmarkPuts replays 1,000,000 puts onto a base of 200 MB; BenchmarkFloor is its lower bound.
func BenchmarkPuts(b *testing.B) {
	benchmark(b, func(_ int64, count int) replay.Log { return fromWAL(puts(b, count)) })
}

// BenchmarkKubernetes replays requests of an API server of Kubernetes, as many as BenchmarkPuts.
func BenchmarkKubernetes(b *testing.B) {
	benchmark(b, func(revision int64, count int) replay.Log { return fromWAL(apiServer(b, revision, count)) })
}

// BenchmarkChanges replays the same puts as changes from a watch.
func BenchmarkChanges(b *testing.B) {
	benchmark(b, func(revision int64, count int) replay.Log {
		return replay.Log{Source: segment.Watch, Records: func(yield func(segment.Record, error) bool) {
			for record, err := range puts(b, count) {
				revision++
				record.Kind, record.Position, record.Term = segment.Change, uint64(revision), 0
				if !yield(record, err) {
					return
				}
			}
		}}
	})
}

func benchmark(b *testing.B, log func(revision int64, count int) replay.Log) {
	b.Helper()
	size, count := sizes()
	base := makeBase(b, size)
	begin := behind(b, base)
	cpu := &processor{}
	cpu.used(b)
	for b.Loop() {
		b.StopTimer()
		db := copyOf(b, base)
		b.StartTimer()
		at, err := replay.Apply(context.Background(), db, log(begin.revision, count), replay.Options{})
		if err != nil || at.Requests != count {
			b.Fatal(at, err)
		}
	}
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(cpu.used(b)/float64(count)/float64(b.N), "cpu-us/request")
}

// processor measures the processor time of this process, independent of the machine's load.
type processor struct{ microseconds float64 }

func (p *processor) used(b *testing.B) float64 {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	if err != nil {
		b.Fatal(err)
	}
	before := p.microseconds
	p.microseconds = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1000
	return p.microseconds - before
}

// BenchmarkFloor writes the changes of BenchmarkPuts directly to bbolt.
func BenchmarkFloor(b *testing.B) {
	size, count := sizes()
	base := makeBase(b, size)
	cpu := &processor{}
	cpu.used(b)
	for b.Loop() {
		b.StopTimer()
		db := copyOf(b, base)
		b.StartTimer()
		err := straight(db, puts(b, count))
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(cpu.used(b)/float64(count)/float64(b.N), "cpu-us/request")
}

func straight(path string, records iter.Seq2[segment.Record, error]) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 10 << 30,
	})
	if err != nil {
		return err
	}
	defer db.Close()
	const batch = 10_000
	var tx *bolt.Tx
	n := int64(0)
	for record := range records {
		if n%batch == 0 {
			if tx != nil {
				err := tx.Commit()
				if err != nil {
					return err
				}
			}
			tx, err = db.Begin(true)
			if err != nil {
				return err
			}
		}
		n++
		value, err := proto.Marshal(&mvccpb.KeyValue{Key: record.Data[:44], Value: record.Data[44:300], CreateRevision: n, ModRevision: n, Version: 1})
		if err != nil {
			return err
		}
		bucket := tx.Bucket(schema.Key.Name())
		bucket.FillPercent = 0.9
		err = bucket.Put(mvcc.RevToBytes(mvcc.Revision{Main: n + 1<<30}, mvcc.NewRevBytes()), value)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
