package statefulset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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
}

// OrderID returns the id of the restore that o orders. It is the same each time, until the StatefulSet is created again.
func (m *Manager) OrderID(ctx context.Context, o Order) (string, error) {
	set, err := m.readSet(ctx)
	if err != nil {
		return "", err
	}
	o.Point.Time, o.Point.Backup, o.Layout.Salt = time.Time{}, "", "" // they differ each time
	sum := sha256.Sum256([]byte(strings.Join([]string{set.Namespace, set.Name, string(set.UID), encode(o)}, "\n")))
	return hex.EncodeToString(sum[:8]), nil
}

// ordered is the handoff.Record.Settings of a restore that an Order has begun.
type ordered struct {
	Order *Order `json:"order"`
}

// Encode returns o as a handoff.Record.Settings.
func (o Order) Encode() string { return encode(ordered{&o}) }

// OrderOf returns the order with which a restore has begun. The error matches fault.Refused if it was not begun by an Order.
func OrderOf(r handoff.Record) (Order, error) {
	var found ordered
	err := json.Unmarshal([]byte(r.Settings), &found)
	if err != nil || found.Order == nil {
		return Order{}, fmt.Errorf("%w: restore %s was not begun by this command: use the EtcdRestore that has begun it", fault.Refused, r.ID)
	}
	return *found.Order, nil
}
