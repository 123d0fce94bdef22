// Package suspension keeps whether the services may start anything for a cluster, in the repository:
//
//	<cluster>/suspension.json      rewritten; the newest one counts
//	<cluster>/unsuspend-<id>.json  that suspension has ended for good, so that no old copy of it counts again
package suspension

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Suspension is the last word on whether services may start anything for a cluster. Like a lease it is one object that is
// rewritten, so that a single read tells and a store that denies deletes takes the end of it too.
type Suspension struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the Marker's id
	ID         string    `json:"id"`         // 16 hex digits, random
	Cluster    string    `json:"cluster"`
	Suspended  bool      `json:"suspended"` // false: it has ended
	Time       time.Time `json:"time"`      // when that was said
	By         string    `json:"by"`        // who said so
	Reason     string    `json:"reason"`    // one plain sentence, "" if nobody gave one
}

// Unsuspend ends one suspension for good: whoever stored the Suspension again would else suspend again. Its fields are other
// ones than a Suspension's, so that nobody makes one of a signed suspension.
type Unsuspend struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the Marker's id
	Ends       string    `json:"ends"`       // the suspension's id
	Time       time.Time `json:"time"`
	By         string    `json:"by"`
}

// Suspensions are the stored suspensions, Unsuspends the documents that end them.
var (
	Kind       = document.Kind[Suspension]{Format: 1}
	Unsuspends = document.Kind[Unsuspend]{Format: 1}
)

// Switch reads and writes whether services are suspended for one cluster.
type Switch struct{ store *records.Store }

// NewSwitch returns the switch of the store's cluster.
func New(store *records.Store) *Switch { return &Switch{store} }

func (w *Switch) suspensionKey() string { return w.store.Cluster + "/suspension" + catalog.JSONSuffix }

// Suspension is the last word, the zero one if there is none. One that is damaged or not trusted counts for nothing, since
// it would keep backups from being taken: the error says so and matches ErrDamaged.
func (w *Switch) Read(ctx context.Context) (s Suspension, err error) {
	data, err := w.store.ReadSigned(ctx, w.suspensionKey())
	if records.IsAbsent(err) {
		return Suspension{}, nil
	}
	if err == nil {
		s, err = Kind.Decode(data)
	}
	if err == nil && s.Cluster != w.store.Cluster {
		err = fmt.Errorf("%w: it belongs to cluster %s and was moved here", catalog.ErrDamaged, s.Cluster)
	}
	if err == nil {
		err = w.store.CheckRepository(ctx, s.Repository)
	}
	if err != nil {
		return Suspension{}, fmt.Errorf("%s: %w", w.suspensionKey(), err)
	}
	if s.Suspended {
		ended, err := w.hasEnded(ctx, s.ID)
		if err != nil {
			return Suspension{}, err
		}
		s.Suspended = !ended
	}
	return s, nil
}

func (w *Switch) unsuspendKey(id string) string {
	return w.store.Cluster + "/unsuspend-" + id + catalog.JSONSuffix
}

// hasEnded reports whether an Unsuspend that counts ends the suspension.
func (w *Switch) hasEnded(ctx context.Context, id string) (bool, error) {
	data, err := w.store.ReadSigned(ctx, w.unsuspendKey(id))
	var u Unsuspend
	if err == nil {
		u, err = Unsuspends.Decode(data)
	}
	if err == nil {
		err = w.store.CheckRepository(ctx, u.Repository)
	}
	if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", w.unsuspendKey(id), err)
	}
	return u.Ends == id, nil
}

// end ends old for good.
func (w *Switch) end(ctx context.Context, old, by Suspension) error {
	u := Unsuspend{Format: Kind.Format, Repository: by.Repository, Ends: old.ID, Time: by.Time, By: by.By}
	data, err := Unsuspends.Encode(u)
	if err == nil {
		err = w.store.CreateSigned(ctx, w.unsuspendKey(old.ID), data)
	}
	if errors.Is(err, storage.ErrExist) {
		return nil
	}
	return err
}

// WriteSuspension makes s the last word, and returns it as it is stored: behind the one that it replaces, whatever clock that had.
func (w *Switch) Write(ctx context.Context, s Suspension) (Suspension, error) {
	err := w.store.RefuseUnsigned(ctx)
	if err != nil {
		return Suspension{}, err
	}
	old, err := w.Read(ctx)
	if err != nil && !errors.Is(err, catalog.ErrDamaged) {
		return Suspension{}, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	s.Format, s.ID, s.Cluster, s.Time = Kind.Format, hex.EncodeToString(id), w.store.Cluster, s.Time.UTC()
	if !s.Time.After(old.Time) {
		s.Time = old.Time.Add(time.Millisecond)
	}
	s.Repository, err = w.store.RepositoryID(ctx)
	if err == nil && old.Suspended {
		err = w.end(ctx, old, s)
	}
	if err != nil {
		return Suspension{}, err
	}
	data, err := Kind.Encode(s)
	if err == nil {
		data, err = document.Sign(data, w.store.Policy.Key)
	}
	if err == nil {
		_, err = w.store.Bucket.Put(ctx, w.suspensionKey(), bytes.NewReader(data), storage.PutOptions{})
	}
	if err != nil {
		return Suspension{}, fmt.Errorf("write %s: %w", w.suspensionKey(), err)
	}
	return s, nil
}
