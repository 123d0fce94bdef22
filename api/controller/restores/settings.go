package restores

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Settings are where a restore finds the backups, and how it connects to the members. They name Secrets, and contain none. The record
// of the restore contains them: a change or the deletion of the EtcdBackup does not disturb a restore that runs.
type Settings struct {
	Cluster    string              `json:"cluster"` // name in the repository
	Repository v1alpha1.Repository `json:"repository"`
	Trust      []string            `json:"trust,omitempty"` // public keys: only what one of them has signed is used; none: everything is
	Access     v1alpha1.Access     `json:"access,omitzero"` // unless the EtcdRestore has its own
}

// accessTo returns the access to the members of e.
func (s Settings) accessTo(e *v1alpha1.EtcdRestore) v1alpha1.Access {
	if e.Spec.Access != nil {
		return *e.Spec.Access
	}
	return s.Access
}

// idOf returns the id of a restore that e begins.
func idOf(e *v1alpha1.EtcdRestore) string {
	sum := sha256.Sum256([]byte(e.UID))
	return hex.EncodeToString(sum[:8])
}

// ownerOf returns e as the record of its restore has it.
func (r *Reconciler) ownerOf(e *v1alpha1.EtcdRestore) statefulset.Owner {
	return statefulset.Owner{Group: r.Group, Name: e.Name, UID: e.UID, Origin: originOf(e)}
}

// originOf returns the name of e with a digest of its spec, without the fields that can change. A StatefulSet remembers it: the same
// EtcdRestore, applied again after its deletion, has another UID and the same origin.
func originOf(e *v1alpha1.EtcdRestore) string {
	spec := e.Spec.DeepCopy()
	spec.Suspend, spec.Rollback, spec.Access = false, false, nil
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // only texts, numbers and quantities
	}
	sum := sha256.Sum256(text)
	return e.Name + "@" + hex.EncodeToString(sum[:6])
}

// ordersOf returns the orders that e gives now to a restore in this phase. Its deletion orders it to go back, until the restored members
// were found to run. The error names the field.
func ordersOf(e *v1alpha1.EtcdRestore, p handoff.Phase) (handoff.Orders, error) {
	w := handoff.Orders{DryRun: e.Spec.DryRun, Pause: e.Spec.Suspend, Limit: inplace.DefaultLimit, Expires: inplace.DefaultExpires, Keep: inplace.DefaultKeep}
	w.Back = e.Spec.Rollback || e.DeletionTimestamp != nil && p != handoff.Verifying && !p.HasEnded()
	for field, set := range map[string]struct {
		text v1alpha1.Duration
		to   *time.Duration
	}{"spec.timeLimit": {e.Spec.TimeLimit, &w.Limit}, "spec.keepOld": {e.Spec.KeepOld, &w.Keep}} {
		if set.text == "" {
			continue
		}
		parsed, err := when.ParseSpan(string(set.text))
		if err != nil {
			return handoff.Orders{}, fmt.Errorf("%s: %w", field, err)
		}
		*set.to = parsed
	}
	return w, nil
}

// targetOf returns the target of e. The error names the field.
func targetOf(s v1alpha1.EtcdRestoreSpec, now time.Time) (t plan.Target, err error) {
	t = plan.Target{Lineage: s.Target.Lineage, Revision: s.Target.Revision, Best: s.Best}
	if s.IdentitySecret != nil && !s.AllowPlain {
		t.Plain = plan.PlainRefused
	}
	switch {
	case s.Target.BeforeRevision > 0:
		t.Revision = s.Target.BeforeRevision - 1
	case s.Target.Backup != "":
		t.Backup, err = catalog.ParseID(s.Target.Backup)
		if err != nil {
			return t, fmt.Errorf("spec.target.backup: %w", err)
		}
	case s.Target.Time != "":
		t.Time, err = when.Parse(s.Target.Time, now)
		if err != nil {
			return t, fmt.Errorf("spec.target.time: %w", err)
		}
	}
	return t, nil
}

// layoutOf returns the layout of the cluster that a restore with an id restores, without its members.
func layoutOf(e *v1alpha1.EtcdRestore, id string) plan.Layout {
	return plan.Layout{
		Bump:      cmp.Or(e.Spec.BumpRevision, "auto"),
		Salt:      id,   // one plan serves all members, and a forgotten member of another restore cannot join
		OldIsDead: true, // the old members are stopped after the data is built, and the Manager proves that
	}
}
