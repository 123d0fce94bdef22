package keyspace

import (
	"encoding/binary"
	"fmt"
	"math"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/encoding/protowire"
)

// Entry is a parsed entry of the key bucket, without the value that a client put. Of a tombstone only Key is set.
type Entry struct {
	BucketKey
	Key     []byte // a part of the entry that was parsed
	Created int64  // the revision that created the key
	Version int64  // how often the key was put since then
	Lease   int64  // 0: none
}

// BucketKey is a parsed key of the key bucket.
type BucketKey struct {
	mvcc.Revision
	Tombstone bool
}

// Parse parses an entry of the key bucket. It returns an error for one that a server does not load, or that is malformed.
func Parse(k, v []byte) (Entry, error) {
	at, err := parseBucketKey(k)
	if err != nil {
		return Entry{}, err
	}
	if !at.isLoaded() {
		return Entry{}, fmt.Errorf("%x is not a revision that a server loads", k)
	}
	e := Entry{BucketKey: at}
	err = e.parse(v)
	if err != nil {
		return Entry{}, fmt.Errorf("revision %d: %w", at.Main, err)
	}
	return e, nil
}

// bucketKeySize is the length of the key of an entry that is no tombstone: two numbers of eight bytes, with a '_' between them.
const bucketKeySize = 17

func parseBucketKey(key []byte) (BucketKey, error) {
	marked := len(key) == bucketKeySize+1
	if len(key) != bucketKeySize && !marked || marked && key[bucketKeySize] != 't' || key[8] != '_' || key[0] > math.MaxInt8 || key[9] > math.MaxInt8 {
		return BucketKey{}, fmt.Errorf("%x is not a revision", key)
	}
	return BucketKey{mvcc.BytesToRev(key), mvcc.IsTombstone(key)}, nil
}

// isLoaded reports whether a server loads such a revision.
func (p BucketKey) isLoaded() bool { return p.Main > 0 && p.Main < math.MaxInt64 }

// Fields of mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldKey      = protowire.Number(1)
	fieldCreated  = protowire.Number(2)
	fieldModified = protowire.Number(3)
	fieldVersion  = protowire.Number(4)
	fieldValue    = protowire.Number(5)
	fieldLease    = protowire.Number(6)
)

// parse parses the whole value, although it stores only a part.
func (e *Entry) parse(value []byte) error {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return fmt.Errorf("its value is malformed: %w", protowire.ParseError(n))
		}
		if !field.IsValid() {
			return fmt.Errorf("its value is malformed: there is no field %d", field)
		}
		value = value[n:]
		number := e.number(field)
		switch {
		case field == fieldKey && kind == protowire.BytesType:
			e.Key, n = protowire.ConsumeBytes(value)
		case number != nil && kind == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(value)
			*number = int64(v)
		default:
			n = protowire.ConsumeFieldValue(field, kind, value)
		}
		if n < 0 {
			return fmt.Errorf("its value is malformed: %w", protowire.ParseError(n))
		}
		value = value[n:]
	}
	return nil
}

// number returns the place for a field with a number; nil: the field is not stored.
func (e *Entry) number(field protowire.Number) *int64 {
	switch field {
	case fieldCreated:
		return &e.Created
	case fieldVersion:
		return &e.Version
	case fieldLease:
		return &e.Lease
	}
	return nil
}

// AppendKey appends the key of the entry at p to b, as mvcc.BucketKeyToBytes does.
func (p BucketKey) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.Main))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(p.Sub))
	if p.Tombstone {
		b = append(b, 't')
	}
	return b
}

// AppendValue appends the value of the entry to b: an mvccpb.KeyValue with the value that a client has put, in the encoding of
// proto.Marshal. Of a tombstone it contains the key alone.
func (e Entry) AppendValue(b, value []byte) []byte {
	b = appendBytes(b, fieldKey, e.Key)
	if e.Tombstone {
		return b
	}
	b = appendNumber(b, fieldCreated, e.Created)
	b = appendNumber(b, fieldModified, e.Main)
	b = appendNumber(b, fieldVersion, e.Version)
	b = appendBytes(b, fieldValue, value)
	return appendNumber(b, fieldLease, e.Lease)
}

// appendBytes and appendNumber append a field unless it is empty.
func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendNumber(b []byte, field protowire.Number, value int64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(value))
}
