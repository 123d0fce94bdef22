// Package suspension stores whether the services may start work for a cluster. The commands dr suspend and dr resume write
// it, and each service reads it before a job. Two kinds of documents in the repository hold it:
//
//	<cluster>/suspension.json      the latest Suspension; replaced each time
//	<cluster>/unsuspend-<id>.json  an Unsuspend: the suspension with that id has ended, and an old copy of it has no effect
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

// Suspension is the latest decision whether services may start work for a cluster. It is one object that is replaced, so that
// a single request reads it, and so that a suspension can end even in a store that denies deletes.
type Suspension struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the id of the repository in which it counts
	ID         string    `json:"id"`         // its own id: 16 hex digits, random
	Cluster    string    `json:"cluster"`
	Suspended  bool      `json:"suspended"` // true: services start nothing for the cluster
	Time       time.Time `json:"time"`      // of the decision
	By         string    `json:"by"`        // the person or program that decided
	Reason     string    `json:"reason"`    // one plain sentence, or ""
}

// Unsuspend ends one suspension permanently: an attacker who stores an old Suspension again cannot suspend the cluster again.
// Its fields differ from those of a Suspension, so that a signed Suspension cannot be presented as an Unsuspend.
type Unsuspend struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the repository's id
	Ends       string    `json:"ends"`       // the id of the suspension
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // the person or program that ended it
}

// Kind reads and writes stored suspensions. Unsuspends reads and writes the documents that end them.
var (
	Kind       = document.Kind[Suspension]{Format: 1}
	Unsuspends = document.Kind[Unsuspend]{Format: 1}
)

// Switch reads and writes the suspension of one cluster.
type Switch struct{ store *records.Store }

// New returns the Switch of the store's cluster.
func New(store *records.Store) *Switch { return &Switch{store} }

func (w *Switch) suspensionKey() string { return w.store.Cluster + "/suspension" + catalog.JSONSuffix }

// Read returns the latest suspension; the zero Suspension if there is none. The error matches catalog.ErrDamaged if the
// stored one is damaged or not trusted. The caller must then treat the cluster as not suspended, so that an attacker
// cannot stop its backups.
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

// hasEnded reports whether a valid Unsuspend ends the suspension called id.
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

// end stores the Unsuspend of old, with the repository, time and author of next, the suspension that replaces old.
func (w *Switch) end(ctx context.Context, old, next Suspension) error {
	u := Unsuspend{Format: Kind.Format, Repository: next.Repository, Ends: old.ID, Time: next.Time, By: next.By}
	data, err := Unsuspends.Encode(u)
	if err == nil {
		err = w.store.CreateSigned(ctx, w.unsuspendKey(old.ID), data)
	}
	if errors.Is(err, storage.ErrExist) {
		return nil
	}
	return err
}

// Write makes s the latest suspension and returns it as it is stored. It fills in Format, ID, Cluster and Repository. It
// moves s.Time after that of the suspension that it replaces, since clocks can differ. The error matches records.ErrUnsigned
// if the policy has no key and the newest backup is signed.
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
