package find

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// database reads a prepared database, whose pages have been checked. It never writes.
type database struct{ db *bolt.DB }

func openDatabase(path string) (*database, error) {
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &database{db}, nil
}

func (d *database) close() error { return d.db.Close() }

// view calls do with the bucket of the key space. The bucket exists: the database has been checked.
func (d *database) view(do func(keys *bolt.Bucket) error) error {
	return d.db.View(func(tx *bolt.Tx) error { return do(tx.Bucket(schema.Key.Name())) })
}

// keyState locates the newest state of a key in the database.
type keyState struct {
	key string
	at  []byte // the state's revision in the database's encoding
}

// newest returns the newest state of each selected key that exists, in key order. Its memory grows with the number of different keys.
func newest(bucket *bolt.Bucket, keys Keys) ([]keyState, error) {
	var existing []keyState
	known := map[string]bool{}
	c := bucket.Cursor()
	for at, value := c.Last(); at != nil; at, value = c.Prev() {
		key, err := keyOf(value)
		if err != nil {
			return nil, err
		}
		if len(key) == 0 || !keys.Has(key) || known[string(key)] { // a bump of the revision leaves a revision without a key
			continue
		}
		known[string(key)] = true
		if !mvcc.IsTombstone(at) {
			existing = append(existing, keyState{key: string(key), at: bytes.Clone(at)})
		}
	}
	slices.SortFunc(existing, func(a, b keyState) int { return strings.Compare(a.key, b.key) })
	return existing, nil
}

// values calls yield with each selected key that exists and its newest value, in key order.
func values(bucket *bolt.Bucket, keys Keys, yield func(kv *mvccpb.KeyValue) error) error {
	existing, err := newest(bucket, keys)
	if err != nil {
		return err
	}
	for _, state := range existing {
		kv, err := decodeKV(bucket.Get(state.at))
		if err != nil {
			return err
		}
		err = yield(kv)
		if err != nil {
			return err
		}
	}
	return nil
}

// since calls yield for the changes of watched keys after revision that the database still contains, in order.
func since(bucket *bolt.Bucket, keys Keys, revision int64, yield func(replay.Change) error) error {
	c := bucket.Cursor()
	from := mvcc.RevToBytes(mvcc.Revision{Main: revision + 1}, mvcc.NewRevBytes())
	for at, value := c.Seek(from); at != nil; at, value = c.Next() {
		key, err := keyOf(value)
		if err != nil {
			return err
		}
		if len(key) == 0 || !keys.watches(key) {
			continue
		}
		kv, err := decodeKV(value)
		if err != nil {
			return err
		}
		err = yield(replay.Change{Revision: mvcc.BytesToRev(at), Deleted: mvcc.IsTombstone(at), KV: kv})
		if err != nil {
			return err
		}
	}
	return nil
}

// compacted returns the revision up to which overwritten and deleted values are gone; 0 if the database was never compacted.
func (d *database) compacted() (revision int64, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		for _, name := range [][]byte{schema.ScheduledCompactKeyName, schema.FinishedCompactKeyName} {
			at := meta.Get(name)
			if len(at) >= 8 {
				revision = max(revision, int64(binary.BigEndian.Uint64(at)))
			}
		}
		return nil
	})
	return revision, err
}

var errValue = errors.New("a value in it is no key and value")

// keyField is the number of KeyValue's first field (mvccpb).
const keyField = 1

// keyOf returns the key of an encoded KeyValue without copying its value.
func keyOf(value []byte) ([]byte, error) {
	if len(value) == 0 {
		return nil, nil
	}
	number, kind, n := protowire.ConsumeTag(value)
	if n < 0 || number != keyField || kind != protowire.BytesType {
		return nil, fmt.Errorf("the database is %w: %w", catalog.ErrDamaged, errValue)
	}
	key, n := protowire.ConsumeBytes(value[n:])
	if n < 0 {
		return nil, fmt.Errorf("the database is %w: %w", catalog.ErrDamaged, errValue)
	}
	return key, nil
}

func decodeKV(value []byte) (*mvccpb.KeyValue, error) {
	kv := &mvccpb.KeyValue{}
	err := proto.Unmarshal(value, kv)
	if err != nil {
		return nil, fmt.Errorf("the database is %w: %w: %w", catalog.ErrDamaged, errValue, err)
	}
	return kv, nil
}
