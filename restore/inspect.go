package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Inspection describes a plain snapshot file, in the terms of etcdutl snapshot status.
type Inspection struct {
	File     string `json:"file"`
	Hash     string `json:"hash"`              // CRC-32C of all buckets, in hex
	Revision int64  `json:"revision"`          // of the key space
	Keys     int    `json:"keys"`              // without deleted ones
	Size     int64  `json:"size"`              // bytes of the database
	Index    uint64 `json:"index"`             // raft index of the last entry in it
	Version  string `json:"version,omitempty"` // storage version, since etcd 3.6
	Digest   bool   `json:"digest"`            // the file ends with its SHA-256; false: without one
}

// InspectVerb is the verb of the child process that runs ServeInspect.
const InspectVerb = "inspect"

// Inspect checks a plain snapshot file in a child process. It does not change the file. The error for a damaged file matches
// catalog.ErrDamaged, the error for a missing file fs.ErrNotExist.
func Inspect(ctx context.Context, file string, report storage.Report) (i Inspection, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return i, err
	}
	if !info.Mode().IsRegular() {
		return i, fmt.Errorf("%w: %s is not a regular file: name a snapshot, such as one of etcdctl snapshot save or a copy of member/snap/db",
			plan.ErrLayout, file)
	}
	err = child.Call{Verb: InspectVerb, Job: file, Result: &i, Report: report}.Run(ctx)
	return i, child.Died(err)
}

// ServeInspect runs the job of Inspect in the child.
func ServeInspect(_ context.Context, input []byte, report storage.Report) (any, error) {
	var i Inspection
	err := json.Unmarshal(input, &i.File)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	report.Say(storage.Event{Stage: "check", Message: "checking the digest and every page", Object: i.File})
	err = errors.Join(i.readDigest(), i.readDatabase())
	if err != nil {
		return nil, err
	}
	return i, nil
}

// readDigest compares the file with the digest at its end, if it has one.
func (i *Inspection) readDigest() error {
	f, err := os.Open(i.File)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size()%512 != sha256.Size {
		return err
	}
	err = CheckDigest(f, info.Size(), i.File)
	i.Digest = err == nil
	return err
}

func (i *Inspection) readDatabase() error {
	db, err := bolt.Open(i.File, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %s is in use by a running etcd: inspect a copy, or take a backup", fault.Refused, i.File)
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return fmt.Errorf("%s is %w: %w", i.File, catalog.ErrDamaged, err)
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		err := checkPages(tx)
		if err != nil {
			return err
		}
		facts, err := readFacts(tx)
		if err == nil {
			err = i.readBuckets(tx)
		}
		if err != nil {
			return fmt.Errorf("%s is %w: %w", i.File, catalog.ErrDamaged, err)
		}
		i.Size, i.Index, i.Revision = tx.Size(), facts.index, facts.latest.Main
		v := schema.ReadStorageVersionFromSnapshot(tx)
		if v != nil {
			i.Version = v.String()
		}
		return nil
	})
}

// readBuckets hashes all buckets and counts the keys, as etcdutl does (etcdutl/snapshot, Status).
func (i *Inspection) readBuckets(tx *bolt.Tx) error {
	sum, live := crc32.New(crc32.MakeTable(crc32.Castagnoli)), map[string]struct{}{}
	err := tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		_, _ = sum.Write(name) // never fails
		isKeys := bytes.Equal(name, schema.Key.Name())
		return bucket.ForEach(func(k, v []byte) error {
			_, _ = sum.Write(k)
			_, _ = sum.Write(v)
			if !isKeys {
				return nil
			}
			var kv mvccpb.KeyValue
			err := proto.Unmarshal(v, &kv)
			if err != nil {
				return fmt.Errorf("a value of the key space is malformed: %w", err)
			}
			if mvcc.IsTombstone(k) {
				delete(live, string(kv.Key))
			} else {
				live[string(kv.Key)] = struct{}{}
			}
			return nil
		})
	})
	i.Hash, i.Keys = fmt.Sprintf("%08x", sum.Sum32()), len(live)
	return err
}
