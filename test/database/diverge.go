package database

import (
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// ChangeLast changes the value of the newest revision in the database of a stopped member, so that the member has
// diverged from the others.
func ChangeLast(path string) error {
	return Edit(path, func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		revision, stored := bucket.Cursor().Last()
		var kv mvccpb.KeyValue
		err := proto.Unmarshal(stored, &kv)
		if err != nil {
			return err
		}
		kv.Value = append(kv.Value, "another"...)
		changed, err := proto.Marshal(&kv)
		if err != nil {
			return err
		}
		return bucket.Put(slices.Clone(revision), changed)
	})
}
