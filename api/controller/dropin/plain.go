package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/coreos"
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
	from := p.spec.Repositories[0]
	if from.CredentialsSecret == nil {
		if b.Snapshots {
			return "", errors.New("no plain snapshot is stored without a Secret with the store's credentials: name one in the spec")
		}
		return "", nil
	}
	bucket, err := b.Open(ctx, theirs.Namespace, from, p.spec.Cluster)
	if err != nil {
		return "", err
	}
	p.of, err = repository.Open(bucket, p.spec.Cluster)
	if err != nil {
		return "", err
	}
	cat, err := p.of.Load(ctx, backups.LoadOptions{Only: p.id})
	if err != nil {
		return "", err
	}
	if len(cat.Backups) == 0 {
		return "", fmt.Errorf("backup %s is not in the repository any more: the next one replaces it", p.id)
	}
	p.backup = cat.Backups[0]
	if b.Snapshots {
		err = b.storePlain(ctx, theirs, p)
	}
	return p.backup.EtcdVersion, err
}

// name returns the key of the snapshot, in the form of their operator (backup_manager.go).
func (p plain) name() string {
	if isOnce(p.spec) {
		return p.key
	}
	return fmt.Sprintf("%s_v%d_%s", p.key, p.backup.Revision, p.backup.Started.UTC().Format("2006-01-02-15:04:05"))
}

// storePlain stores p, and then deletes the oldest of the snapshots that it has stored for an interval, beyond maxBackups. A snapshot is in the
// record before it is in the store, so none is forgotten; and only snapshots in the record are deleted.
func (b *backupReconciler) storePlain(ctx context.Context, theirs *coreos.EtcdBackup, p plain) error {
	root, err := b.openRoot(ctx, theirs.Namespace, p)
	if err != nil {
		return err
	}
	stored, err := recordOf(theirs)
	if err != nil {
		return err
	}
	most := 0
	if theirs.Spec.BackupPolicy != nil && !isOnce(p.spec) {
		most = theirs.Spec.BackupPolicy.MaxBackups
	}
	if most > 0 && !slices.ContainsFunc(stored, func(s snapshot) bool { return s.Key == p.name() }) {
		stored = append(stored, snapshot{Backup: p.backup.ID, Key: p.name()})
		err = b.writeRecord(ctx, theirs, stored)
	}
	if err == nil {
		err = put(ctx, root, p)
	}
	if err != nil || most == 0 {
		return err
	}
	kept, excess := split(stored, most)
	for _, s := range excess {
		err = root.Delete(ctx, s.Key, storage.DeleteOptions{})
		if err != nil {
			return fmt.Errorf("delete the snapshot %s: %w", s.Key, err)
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
		return fmt.Errorf("store backup %s as the snapshot %s: %w", p.backup.ID, p.name(), err)
	}
	return nil
}

// snapshot is a plain snapshot that was stored for an interval.
type snapshot struct {
	Backup catalog.ID `json:"backup"`
	Key    string     `json:"key"`
}

// snapshotRecord is the annotation of their EtcdBackup that lists the snapshots stored for it.
const snapshotRecord = "etcd-dr.io/plain-snapshots"

// recordOf returns the snapshots stored for theirs.
func recordOf(theirs *coreos.EtcdBackup) (all []snapshot, err error) {
	text := theirs.Annotations[snapshotRecord]
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &all)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s cannot be read: remove it; then the snapshots that it lists stay: %w", snapshotRecord, err)
	}
	return all, nil
}

// writeRecord writes the snapshots stored for theirs into its annotation.
func (b *backupReconciler) writeRecord(ctx context.Context, theirs *coreos.EtcdBackup, all []snapshot) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if theirs.Annotations[snapshotRecord] == string(text) {
		return nil
	}
	changed := theirs.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, snapshotRecord, string(text))
	err = b.Client.Patch(ctx, changed, client.MergeFrom(theirs))
	if err != nil {
		return fmt.Errorf("cannot record the snapshots of EtcdBackup %s: %w", client.ObjectKeyFromObject(theirs), err)
	}
	theirs.ObjectMeta = changed.ObjectMeta
	return nil
}

// split returns the newest of all, at most most, and the others, by the times of their backups. It is pure.
func split(all []snapshot, most int) (kept, excess []snapshot) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b snapshot) int { return strings.Compare(string(b.Backup), string(a.Backup)) })
	n := min(most, len(sorted))
	return sorted[:n], sorted[n:]
}
