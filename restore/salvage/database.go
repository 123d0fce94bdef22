package salvage

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// databases returns the databases of a data dir, the one with the highest index first. Next to member/snap/db there may be
// databases that the leader sent, and that the member had not yet moved there (server/storage/backend.go,
// RecoverSnapshotBackend).
func databases(dir string) (found []disk.Database, err error) {
	snap := filepath.Join(dir, "member", "snap")
	files, err := filepath.Glob(filepath.Join(snap, "*.snap.db"))
	if err != nil {
		return nil, err
	}
	for _, file := range append(files, filepath.Join(snap, "db")) {
		d, err := look(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			d.Damage = err.Error()
		}
		found = append(found, d)
	}
	slices.SortStableFunc(found, func(a, b disk.Database) int { return cmp.Compare(b.Index, a.Index) })
	return found, nil
}

// IsUnused reports whether the database of a data dir is undamaged and has no key space. Every member creates its key space before it serves. A
// member that has lost its data while the others still know it exits earlier, before it creates its log ("has already been bootstrapped").
func IsUnused(dir string) (bool, error) {
	f, err := storage.OpenRegular(filepath.Join(dir, "member", "snap", "db"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	t, err := openTree(f, info.Size())
	if err != nil {
		return false, nil // damaged
	}
	_, used, err := t.bucket(schema.Key.Name())
	return err == nil && !used, nil
}

// look reads the facts that a plan needs from a database, without a lock and without bbolt.
func look(file string) (d disk.Database, err error) {
	d.File = file
	f, err := storage.OpenRegular(file)
	if err != nil {
		return d, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return d, err
	}
	d.Size = info.Size()
	t, err := openTree(f, d.Size)
	if err != nil {
		return d, err
	}
	for _, read := range []func(*disk.Database, *tree) error{readPlace, readRevision, readMembers, readVersion} {
		err := read(&d, t)
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// readPlace reads the index and the term of the last entry of the log that the database contains.
func readPlace(d *disk.Database, t *tree) error {
	meta, ok, err := t.bucket(schema.Meta.Name())
	if err != nil || !ok {
		return errors.Join(err, missing(!ok, "the meta bucket"))
	}
	for _, field := range []struct {
		key []byte
		to  *uint64
	}{{schema.MetaConsistentIndexKeyName, &d.Index}, {schema.MetaTermKeyName, &d.Term}} {
		e, ok, err := meta.get(field.key)
		if err != nil {
			return err
		}
		if ok && len(e.value) == 8 {
			*field.to = binary.BigEndian.Uint64(e.value)
		}
	}
	return missing(d.Index == 0, "its place in the log")
}

// missing returns the error for a missing part of a database; nil if isMissing is false.
func missing(isMissing bool, part string) error {
	if !isMissing {
		return nil
	}
	return fmt.Errorf("%s is missing", part)
}

func readRevision(d *disk.Database, t *tree) error {
	keys, ok, err := t.bucket(schema.Key.Name())
	if err != nil || !ok {
		return errors.Join(err, missing(!ok, "the key bucket"))
	}
	last, err := keys.last()
	if err != nil || last == nil {
		return err
	}
	d.Revision, err = revisionIn(last)
	return err
}

// revisionIn returns the revision in a key of the key bucket: 8 bytes, an underscore, 8 bytes and, of a deletion, one more. mvcc.BytesToRev
// would panic at a damaged one.
func revisionIn(key []byte) (int64, error) {
	const separator, length = 8, 17
	if len(key) < length || key[separator] != '_' || key[0] > math.MaxInt8 { // a negative one
		return 0, errors.New("its last key is no revision")
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}

func readMembers(d *disk.Database, t *tree) error {
	members, ok, err := t.bucket(schema.Members.Name())
	if err != nil || !ok {
		return err
	}
	err = members.each(func(_, value []byte) error {
		var m membership.Member
		err := json.Unmarshal(value, &m)
		if err != nil {
			return fmt.Errorf("a member cannot be read: %w", err)
		}
		d.Members = append(d.Members, catalog.Member{
			ID: m.ID.String(), Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner,
		})
		return nil
	})
	if err != nil {
		return err
	}
	removed, ok, err := t.bucket(schema.MembersRemoved.Name())
	if err != nil || !ok {
		return err
	}
	return removed.each(func(key, _ []byte) error {
		d.Removed = append(d.Removed, string(key))
		return nil
	})
}

func readVersion(d *disk.Database, t *tree) error {
	cluster, ok, err := t.bucket(schema.Cluster.Name())
	if err != nil || !ok {
		return err
	}
	e, ok, err := cluster.get(schema.ClusterClusterVersionKeyName)
	if ok {
		d.Version = string(e.value)
	}
	return err
}
