package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// plain is a backup that may be stored as a plain snapshot too.
type plain struct {
	spec v1alpha1.EtcdBackupSpec // translated
	id   catalog.ID
	key  string // of their operator: a backup that is taken once is stored under it; else it is the beginning of the name

	of     *repository.Cluster
	backup catalog.Backup
}

// publish returns the version of etcd in the backup of p. If plain snapshots are asked for, it stores p as one first. It returns "" if the
// repository has no Secret.
func (b *backupReconciler) publish(ctx context.Context, theirs *coreos.EtcdBackup, p plain) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	from := p.spec.Repositories[0]
	if from.CredentialsSecret == nil {
		if b.PlainSnapshots {
			return "", errors.New("plain snapshots need a Secret with the store's credentials: name one in the spec")
		}
		return "", nil
	}
	p.of, err = b.openCluster(ctx, theirs.Namespace, from, p.spec.Cluster)
	if err != nil {
		return "", err
	}
	cat, err := p.of.Load(ctx, backups.LoadOptions{Only: p.id})
	if err != nil {
		return "", err
	}
	if len(cat.Backups) == 0 {
		return "", fmt.Errorf("backup %s is no longer in the repository: create the EtcdBackup again, or wait for its next backup", p.id)
	}
	p.backup = cat.Backups[0]
	if b.PlainSnapshots {
		err = b.storePlain(ctx, theirs, p)
	}
	return p.backup.EtcdVersion, err
}

// publishTime bounds publish: a slow store keeps a worker for so long.
const publishTime = time.Hour

// name returns the key of the snapshot, in the form of their operator.
func (p plain) name() string {
	if isOnce(p.spec) {
		return p.key
	}
	return foreign.PeriodicName(p.key, p.id)
}

// storePlain stores p, and then deletes the oldest of the snapshots that it has stored here for an interval, beyond maxBackups. With maxBackups a
// snapshot is in the record before it is in the store, so none is forgotten; and only snapshots in the record are deleted.
func (b *backupReconciler) storePlain(ctx context.Context, theirs *coreos.EtcdBackup, p plain) error {
	root, err := b.openRoot(ctx, theirs.Namespace, p)
	if err != nil {
		return err
	}
	most := 0
	if theirs.Spec.BackupPolicy != nil && !isOnce(p.spec) {
		most = theirs.Spec.BackupPolicy.MaxBackups
	}
	if most == 0 {
		return put(ctx, root, p)
	}
	r, err := recordOf(theirs, p)
	if err != nil {
		return err
	}
	if !r.isStored(p.id) {
		err = b.writeRecord(ctx, theirs, r.with(snapshot{Backup: p.id}))
		if err == nil {
			err = put(ctx, root, p)
		}
		if err != nil {
			return err
		}
		r = r.with(snapshot{Backup: p.id, Stored: true})
		err = b.writeRecord(ctx, theirs, r)
		if err != nil {
			return err
		}
	}
	kept, excess := r.split(most)
	for _, s := range excess {
		name := foreign.PeriodicName(p.key, s.Backup)
		err = root.Delete(ctx, name, storage.DeleteOptions{})
		if err != nil {
			return fmt.Errorf("cannot delete snapshot %s: %w", name, err)
		}
	}
	return b.writeRecord(ctx, theirs, kept)
}

// openRoot opens the whole bucket that contains the repository of p.
func (b *backupReconciler) openRoot(ctx context.Context, namespace string, p plain) (storage.Bucket, error) {
	from := p.spec.Repositories[0]
	place, err := address.Parse(from.URL)
	if err != nil {
		return nil, err
	}
	place.Prefix = ""
	from.URL = place.String()
	return b.Open(ctx, namespace, from, p.spec.Cluster)
}

// put stores the snapshot of p.
func put(ctx context.Context, root storage.Bucket, p plain) error {
	content, err := p.of.Fetch(ctx, p.backup, seal.Keys{})
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = root.Put(ctx, p.name(), content, storage.PutOptions{SizeHint: p.backup.Plain.Size})
	if err != nil {
		return fmt.Errorf("cannot store backup %s as snapshot %s: %w", p.backup.ID, p.name(), err)
	}
	return nil
}

// record lists the plain snapshots that were stored for an interval, at one place. It has no keys: they follow from the ids of the backups, so
// that an edited record leads to no other object.
type record struct {
	URL       string     `json:"url"` // of the repository
	Snapshots []snapshot `json:"snapshots"`
}

// snapshot is a plain snapshot.
type snapshot struct {
	Backup catalog.ID `json:"backup"`
	Stored bool       `json:"stored,omitempty"` // else its upload has begun
}

// snapshotRecord is the annotation of their EtcdBackup with its record.
const snapshotRecord = "etcd-dr.io/plain-snapshots"

// recordOf returns the record of theirs. A record of another place is dropped: the snapshots there stay.
func recordOf(theirs *coreos.EtcdBackup, p plain) (r record, err error) {
	text := theirs.Annotations[snapshotRecord]
	if strings.TrimSpace(text) != "" {
		err = json.Unmarshal([]byte(text), &r)
	}
	for _, s := range r.Snapshots {
		_, invalid := catalog.ParseID(string(s.Backup))
		err = errors.Join(err, invalid)
	}
	if err != nil {
		return record{}, fmt.Errorf("annotation %s cannot be read: remove it; its snapshots are then never deleted: %w", snapshotRecord, err)
	}
	url := p.spec.Repositories[0].URL
	if r.URL != url {
		r = record{URL: url}
	}
	return r, nil
}

// isStored reports whether the snapshot of a backup is stored.
func (r record) isStored(id catalog.ID) bool { return slices.Contains(r.Snapshots, snapshot{id, true}) }

// with returns r with s in place of the snapshot of the same backup.
func (r record) with(s snapshot) record {
	r.Snapshots = slices.DeleteFunc(slices.Clone(r.Snapshots), func(o snapshot) bool { return o.Backup == s.Backup })
	r.Snapshots = append(r.Snapshots, s)
	return r
}

// split returns r with the newest snapshots, by the times of their backups, of which most are stored; and the others. It is pure.
func (r record) split(most int) (kept record, excess []snapshot) {
	kept.URL = r.URL
	stored := 0
	for _, s := range slices.SortedFunc(slices.Values(r.Snapshots), func(a, b snapshot) int { return strings.Compare(string(b.Backup), string(a.Backup)) }) {
		if stored == most {
			excess = append(excess, s)
			continue
		}
		kept.Snapshots = append(kept.Snapshots, s)
		if s.Stored {
			stored++
		}
	}
	return kept, excess
}

// writeRecord writes the record of theirs into its annotation. It fails if another operator has changed theirs meanwhile.
func (b *backupReconciler) writeRecord(ctx context.Context, theirs *coreos.EtcdBackup, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if theirs.Annotations[snapshotRecord] == string(text) {
		return nil
	}
	changed := theirs.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, snapshotRecord, string(text))
	err = b.Client.Patch(ctx, changed, client.MergeFromWithOptions(theirs, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("cannot record the snapshots of EtcdBackup %s: %w", client.ObjectKeyFromObject(theirs), err)
	}
	theirs.ObjectMeta = changed.ObjectMeta
	return nil
}
