package replay

import (
	"context"
	"fmt"
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// decoded is a record whose data has been read: it is good for longer than the record.
type decoded struct {
	segment.Record // without Data
	request        *pb.InternalRaftRequest
	version        string
	err            error // why the data cannot be read; nothing is read behind it
}

// A batch ends with either, so that handing it over costs little and few are held.
const (
	batchRecords = 512
	batchBytes   = 1 << 20
	batchesAhead = 4
)

type batch struct {
	records []decoded
	bytes   int
	err     error
}

// ahead reads and decodes records on a goroutine of its own, which has ended when the loop over it has. Requests up to
// the position skip are not decoded.
func ahead(ctx context.Context, records iter.Seq2[segment.Record, error], skip uint64) iter.Seq2[[]decoded, error] {
	return func(yield func([]decoded, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		batches := make(chan batch, batchesAhead)
		go func() {
			defer close(batches)
			decodeAll(ctx, records, skip, batches)
		}()
		defer func() {
			cancel()
			for range batches { // it is closed when the goroutine ends
			}
		}()
		for b := range batches {
			if !yield(b.records, b.err) {
				return
			}
		}
	}
}

func decodeAll(ctx context.Context, records iter.Seq2[segment.Record, error], skip uint64, to chan<- batch) {
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
		if !b.add(record, skip) {
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

// add decodes a record and reports whether it could.
func (b *batch) add(record segment.Record, skip uint64) bool {
	d := decoded{Record: record}
	d.Data = nil
	if record.Kind == segment.ServerVersion {
		d.version = string(record.Data)
	} else if record.Position > skip {
		d.request, d.err = decodeRecord(record)
	}
	b.records = append(b.records, d)
	b.bytes += len(record.Data)
	return d.err == nil
}

// decodeRecord returns the request of a record; nil if it is a mark.
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
