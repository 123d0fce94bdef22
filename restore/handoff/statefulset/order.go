package statefulset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Order is a restore as the command line orders it. The record of the restore contains it, so that another process continues the same
// restore. It contains no secret.
type Order struct {
	Target     string             `json:"target"` // as it was given, such as "2h ago"
	Point      plan.Target        `json:"point"`  // what Target meant when the restore began
	Layout     plan.Layout        `json:"layout"`
	Into       Into               `json:"into"`
	URL        string             `json:"url"`        // of the repository, for the command
	Repository kubejob.Repository `json:"repository"` // for the Jobs
	Image      string             `json:"image"`      // of the Jobs
	Memory     int64              `json:"memory,omitempty"`
	Clone      bool               `json:"clone,omitempty"`
	By         string             `json:"by,omitempty"` // author of the pin and the suspension; "": the command
}

// Owner is the EtcdRestore that has begun a restore. The record of the restore contains it, next to an Order with which the command line
// can end the restore without it.
type Owner struct {
	Group  string    `json:"group"` // of its kind
	Name   string    `json:"name"`
	UID    types.UID `json:"uid"`
	Origin string    `json:"origin"` // Options.Origin
}

// OrderID returns the id of the restore that o orders. It is the same each time, until the StatefulSet is created again.
func (m *Manager) OrderID(ctx context.Context, o Order) (string, error) {
	set, err := m.findSet(ctx)
	if err != nil {
		return "", err
	}
	o.Point.Time, o.Point.Backup, o.Layout.Salt = time.Time{}, "", "" // they differ each time
	sum := sha256.Sum256([]byte(strings.Join([]string{set.Namespace, set.Name, string(set.UID), encode(o)}, "\n")))
	return hex.EncodeToString(sum[:8]), nil
}

// ordered is what this package reads of a handoff.Record.Settings.
type ordered struct {
	Order *Order `json:"order"`
	Owner *Owner `json:"etcdRestore,omitempty"` // nil: a command has begun the restore
}

// Encode returns o as a handoff.Record.Settings.
func (o Order) Encode() string { return encode(ordered{Order: &o}) }

// decodeOrdered returns the order of a restore, and its owner. The error matches fault.Refused if its record has no order.
func decodeOrdered(r handoff.Record) (found ordered, err error) {
	err = json.Unmarshal([]byte(r.Settings), &found)
	if err != nil || found.Order == nil {
		return ordered{}, fmt.Errorf("%w: restore %s was not begun by this command: use the EtcdRestore that has begun it", fault.Refused, r.ID)
	}
	return found, nil
}

// OrderOf returns the order with which a command has begun a restore. The error matches fault.Refused if an EtcdRestore has begun it.
func OrderOf(r handoff.Record) (Order, error) {
	found, err := decodeOrdered(r)
	if err == nil && found.Owner != nil {
		err = fmt.Errorf("%w: restore %s was begun by EtcdRestore %s: use that", fault.Refused, r.ID, found.Owner.Name)
	}
	if err != nil {
		return Order{}, err
	}
	return *found.Order, nil
}

// OrderToEnd returns the order of a restore that a command may end: a command has begun it, or its EtcdRestore no longer exists. The error
// matches fault.Refused if the EtcdRestore exists, or cannot be read.
func (m *Manager) OrderToEnd(ctx context.Context, r handoff.Record) (Order, error) {
	found, err := decodeOrdered(r)
	if err == nil && found.Owner != nil {
		err = m.checkGone(ctx, r.ID, *found.Owner)
	}
	if err != nil {
		return Order{}, err
	}
	return *found.Order, nil
}

// kind returns the kind of an Owner.
func (o Owner) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: o.Group, Version: "v1alpha1", Kind: "EtcdRestore"}
}

// checkGone returns an error unless the owner of a restore no longer exists. Another EtcdRestore may have its name.
func (m *Manager) checkGone(ctx context.Context, id string, o Owner) error {
	e := &metav1.PartialObjectMetadata{}
	e.SetGroupVersionKind(o.kind())
	err := m.client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: o.Name}, e)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), err == nil && e.UID != o.UID:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: restore %s was begun by EtcdRestore %s/%s: use that, or an account that may read EtcdRestores, if it no longer exists: %w",
			fault.Refused, id, m.Namespace, o.Name, err)
	case err != nil:
		return apiError(err, "read EtcdRestore %s/%s", m.Namespace, o.Name)
	}
	return fmt.Errorf("%w: restore %s was begun by EtcdRestore %s/%s: use that: set its spec.rollback, or delete it", fault.Refused, id, m.Namespace, o.Name)
}

// Find returns the record of the restore that o has begun; else that of one which has not ended, and was begun by an EtcdRestore of the same
// origin: so that one no longer exists. The error matches fault.NotFound if there is none.
func (m *Manager) Find(ctx context.Context, o Owner) (handoff.Record, error) {
	held, _, err := m.readMap(ctx)
	if err != nil {
		return handoff.Record{}, err
	}
	err = m.errNoRecord()
	var again handoff.Record
	for _, text := range held.Data {
		r, _ := decodeRecord(text) // the holder is no record
		found, _ := decodeOrdered(r)
		switch {
		case found.Owner == nil:
		case found.Owner.UID == o.UID:
			return r, nil
		case found.Owner.Origin == o.Origin && !r.Phase.HasEnded():
			again, err = r, nil
		}
	}
	return again, err
}
