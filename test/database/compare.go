package database

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// shownAtMost keeps a comparison's result short: a difference in one place comes with many others.
const shownAtMost = 20

// membership has the buckets that belong to a cluster and not to its data.
var membership = map[string]bool{"members": true, "members_removed": true, "cluster": true}

// bookkeeping has the keys of meta that describe the log and the file, not the data.
var bookkeeping = map[string]bool{"consistent_index": true, "term": true, "confState": true, "storageVersion": true}

// Exempt selects differences to ignore between a member's database and the same history replayed.
type Exempt struct {
	// Passwords: members of 3.4 hash each password with their own salt when they apply it.
	Passwords bool
}

// Differences compares two databases, bucket by bucket and key by key, except the membership and the bookkeeping of the
// log. It returns at most 20 differences.
func Differences(a, b string, exempt Exempt) ([]string, error) {
	inA, err := read(a, exempt)
	if err != nil {
		return nil, err
	}
	inB, err := read(b, exempt)
	if err != nil {
		return nil, err
	}
	var found []string
	for key, value := range inA {
		other, ok := inB[key]
		if !ok {
			found = append(found, fmt.Sprintf("only in the first: %s", key))
		} else if !bytes.Equal(value, other) {
			found = append(found, fmt.Sprintf("%s: first %.200q, second %.200q", key, value, other))
		}
	}
	for key := range inB {
		_, ok := inA[key]
		if !ok {
			found = append(found, fmt.Sprintf("only in the second: %s", key))
		}
	}
	return found[:min(len(found), shownAtMost)], nil
}

// read returns every key, prefixed with its bucket's name.
func read(path string, exempt Exempt) (map[string][]byte, error) {
	all := map[string][]byte{}
	return all, view(path, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			if membership[string(name)] {
				return nil
			}
			return bucket.ForEach(func(k, v []byte) error {
				if string(name) == "meta" && bookkeeping[string(k)] {
					return nil
				}
				value, err := comparable(string(name), v, exempt)
				all[fmt.Sprintf("%s %q", name, k)] = value
				return err
			})
		})
	})
}

func comparable(bucket string, value []byte, exempt Exempt) ([]byte, error) {
	if bucket != "authUsers" || !exempt.Passwords {
		return bytes.Clone(value), nil
	}
	var user authpb.User
	err := proto.Unmarshal(value, &user)
	if err != nil {
		return nil, err
	}
	user.Password = nil
	return proto.MarshalOptions{Deterministic: true}.Marshal(&user)
}

func view(path string, do func(*bolt.Tx) error) error {
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(do)
}

// Place returns the position up to which the log has been applied to the database; the term is 0 in one of etcd 3.4.
func Place(path string) (position, term uint64, err error) {
	err = view(path, func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		position = number(meta.Get(schema.MetaConsistentIndexKeyName))
		term = number(meta.Get(schema.MetaTermKeyName))
		return nil
	})
	return position, term, err
}

func number(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// Image is a key space directly after a revision: its keys in order.
type Image struct {
	Revision int64
	KVs      []*mvccpb.KeyValue
}

// Differences compares two images, and returns at most 20 differences.
func (i Image) Differences(other Image) []string {
	var found []string
	if i.Revision != other.Revision || len(i.KVs) != len(other.KVs) {
		found = append(found, fmt.Sprintf("first revision %d, %d keys; second revision %d, %d keys",
			i.Revision, len(i.KVs), other.Revision, len(other.KVs)))
	}
	for n := range min(len(i.KVs), len(other.KVs)) {
		if len(found) < shownAtMost && !proto.Equal(i.KVs[n], other.KVs[n]) {
			found = append(found, fmt.Sprintf("first %.300v, second %.300v", i.KVs[n], other.KVs[n]))
		}
	}
	return found
}

// Newest reads the key space of a database as a server would, and returns it with its hash.
func Newest(path string) (Image, mvcc.KeyValueHash, error) {
	be := backend.New(backend.BackendConfig{
		Path: path, UnsafeNoFsync: true, BatchLimit: 1000, BatchInterval: time.Hour, Logger: zap.NewNop(), Timeout: time.Second,
	})
	defer be.Close()
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer store.Close()
	result, err := store.Range(context.Background(), []byte{0}, []byte{}, mvcc.RangeOptions{})
	if err != nil {
		return Image{}, mvcc.KeyValueHash{}, err
	}
	hash, _, err := store.HashStorage().HashByRev(result.Rev)
	return Image{Revision: result.Rev, KVs: result.KVs}, hash, err
}
