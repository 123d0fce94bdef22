package replay

import (
	"context"
	"fmt"
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// decoded is a record with its decoded data. Unlike the record's Data, it remains valid after the next record is read.
type decoded struct {
	segment.Record                         // without Data
	request        *pb.InternalRaftRequest // nil for a mark, and up to the database's position
	version        string                  // of a ServerVersion
	err            error                   // why the data cannot be decoded; reading ends with this record
}

// Batches keep the cost of the channel low and bound the memory. A batch is full when it reaches batchRecords or batchBytes.
const (
	batchRecords = 512
	batchBytes   = 1 << 20
	batchesAhead = 4 // full batches that wait for the replay
)

type batch struct {
	records []decoded
	bytes   int   // of the data of records
	err     error // the error of the log after records; nil: none
}

// ahead yields the records in decoded batches. It reads and decodes them on a goroutine of its own, which has ended when the
// iteration has. Requests up to the position base are yielded undecoded.
func ahead(ctx context.Context, records iter.Seq2[segment.Record, error], base uint64) iter.Seq2[[]decoded, error] {
	return func(yield func([]decoded, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		batches := make(chan batch, batchesAhead)
		go func() {
			defer close(batches)
			decodeAll(ctx, records, base, batches)
		}()
		defer func() {
			cancel()
			for range batches { // the goroutine closes it when it ends
			}
		}()
		for b := range batches {
			if !yield(b.records, b.err) {
				return
			}
		}
	}
}

// decodeAll sends the records in batches until they end, one cannot be read or decoded, or ctx ends.
func decodeAll(ctx context.Context, records iter.Seq2[segment.Record, error], base uint64, to chan<- batch) {
	send := func(b batch) bool {
		select {
		case to <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}
	var b batch
	for record, err := range records {
		if err != nil {
			b.err = err
			break
		}
		if !b.add(record, base) {
			break
		}
		if len(b.records) < batchRecords && b.bytes < batchBytes {
			continue
		}
		if !send(b) {
			return
		}
		b = batch{records: make([]decoded, 0, batchRecords)}
	}
	send(b)
}

// add appends a decoded record and reports whether decoding succeeded.
func (b *batch) add(record segment.Record, base uint64) bool {
	d := decoded{Record: record}
	d.Data = nil
	if record.Kind == segment.ServerVersion {
		d.version = string(record.Data)
	} else if record.Position > base {
		d.request, d.err = decodeRecord(record)
	}
	b.records = append(b.records, d)
	b.bytes += len(record.Data)
	return d.err == nil
}

// decodeRecord returns the request of a record, or nil for a mark.
func decodeRecord(record segment.Record) (*pb.InternalRaftRequest, error) {
	switch record.Kind {
	case segment.Request:
		request, err := decode(record.Data)
		if err != nil {
			return nil, fmt.Errorf("the request at position %d: %w", record.Position, err)
		}
		return request, nil
	case segment.Change:
		change, err := decodeChange(record.Data)
		if err != nil {
			return nil, fmt.Errorf("the change at revision %d: %w", record.Position, err)
		}
		return change, nil
	}
	return nil, nil
}
