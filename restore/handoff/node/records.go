package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Records stores the records of this host's restores in a directory.
type Records struct{ Dir string }

// DefaultDir is the usual directory of Records.
const DefaultDir = "/var/lib/etcd-dr"

// lockTime is how long Lock waits: a process that was killed may leave a child that holds the lock for the moment until its exec.
const lockTime = 10 * time.Second

// Lock locks the directory, which it makes if it is missing, until the returned function is called or the process ends. The error matches
// fault.Busy if another process holds the lock for 10 s.
func (r Records) Lock(ctx context.Context) (unlock func(), err error) {
	err = os.MkdirAll(r.Dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("%w: make the directory for the progress of the restore: %w: name another one with --state-dir", fault.Usage, err)
	}
	dir, err := os.Open(r.Dir)
	if err != nil {
		return nil, err
	}
	err = filesystem.TryLock(lockTime, unix.EWOULDBLOCK, func() error {
		return cmp.Or(ctx.Err(), unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	})
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("%w: another command restores on this host (lock of %s: %w): wait for its end", fault.Busy, r.Dir, err)
	}
	return func() { _ = dir.Close() }, nil
}

func (r Records) path(id string) string { return filepath.Join(r.Dir, "restore-"+id+".json") }

// Load implements inplace.Target.
func (r Records) Load(_ context.Context, id string) (record handoff.Record, err error) {
	text, err := os.ReadFile(r.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return record, fmt.Errorf("%w: there is no restore %s in %s: see the id that its command printed", fault.NotFound, id, r.Dir)
	}
	if err != nil {
		return record, err
	}
	err = json.Unmarshal(text, &record)
	if err != nil {
		return record, fmt.Errorf("%w: %s: %w: restore the file from a copy, or go back by hand with dr restore --undo", fault.Damaged, r.path(id), err)
	}
	return record, nil
}

// Save implements inplace.Target. A record with nothing left to do is removed. The caller holds the lock.
func (r Records) Save(ctx context.Context, before, after handoff.Record) error {
	stored, err := r.Load(ctx, after.ID)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if !bytes.Equal(encode(stored), encode(before)) {
		return fmt.Errorf("%w: another process has changed the record of restore %s: wait for its end", fault.Busy, after.ID)
	}
	if after.Step != handoff.None {
		return filesystem.WriteFile(r.path(after.ID), encode(after), 0o600)
	}
	err = os.Remove(r.path(after.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func encode(r handoff.Record) []byte {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		panic(err) // only texts, numbers and times
	}
	return append(text, '\n')
}
