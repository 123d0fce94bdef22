package keyspace

import (
	"fmt"
	"math"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/encoding/protowire"
)

// Entry is a parsed entry of the key bucket, without the value that a client put. Of a tombstone only Key is set.
type Entry struct {
	Position
	Key     []byte // a part of the entry that was parsed
	Created int64  // the revision that created the key
	Version int64  // how often the key was put since then
	Lease   int64  // 0: none
}

// Position is a parsed key of the key bucket.
type Position struct {
	mvcc.Revision
	Tombstone bool
}

// Parse parses an entry of the key bucket. It returns an error for one that a server does not load, or that is malformed.
func Parse(k, v []byte) (Entry, error) {
	at, err := parsePosition(k)
	if err != nil {
		return Entry{}, err
	}
	if !at.isLoaded() {
		return Entry{}, fmt.Errorf("%x is not a revision that a server loads", k)
	}
	e := Entry{Position: at}
	err = e.parse(v)
	if err != nil {
		return Entry{}, fmt.Errorf("revision %d: %w", at.Main, err)
	}
	return e, nil
}

// plainPosition is the length of the key of an entry that is no tombstone: two numbers of eight bytes, with a '_' between them.
const plainPosition = 17

func parsePosition(key []byte) (Position, error) {
	marked := len(key) == plainPosition+1
	if len(key) != plainPosition && !marked || marked && key[plainPosition] != 't' || key[8] != '_' || key[0] > math.MaxInt8 || key[9] > math.MaxInt8 {
		return Position{}, fmt.Errorf("%x is not a revision", key)
	}
	return Position{mvcc.BytesToRev(key), mvcc.IsTombstone(key)}, nil
}

// isLoaded reports whether a server loads such a revision.
func (p Position) isLoaded() bool { return p.Main > 0 && p.Main < math.MaxInt64 }

// Fields of mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldKey     = 1
	fieldCreated = 2
	fieldVersion = 4
	fieldLease   = 6
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
