package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// holderKey is the key with the id of the restore that has claimed the StatefulSet. The other keys of the ConfigMap are ids of restores
// with their records: a restore that keeps old data after its end no longer has the claim, but still has a record.
const holderKey = "holder"

// mapName returns the name of the ConfigMap with the claim and the records.
func (m *Manager) mapName() string { return "etcd-dr-restore." + m.Name }

// Take claims the StatefulSet. While another restore has claimed it, Take waits. It refuses an Origin that the StatefulSet was restored by.
func (m *Manager) Take(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	err := m.checkOrigin(ctx, r)
	if err != nil {
		return handoff.Progress{}, err
	}
	held, found, err := m.readMap(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	holder := held.Data[holderKey]
	switch {
	case holder == m.ID:
		return handoff.Progress{Done: true}, nil
	case holder != "":
		return handoff.Progress{Waiting: m.claimed(holder, held.Data[holder])}, nil
	}
	held.Data[holderKey] = m.ID
	err = m.writeMap(ctx, held, found)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return handoff.Progress{Waiting: fmt.Sprintf("another restore claims %s at the same time", m)}, nil
	}
	return handoff.Progress{Done: err == nil}, apiError(err, "claim %s", m)
}

// claimed returns why Take waits for a restore, of which text is the record.
func (m *Manager) claimed(holder, text string) string {
	phase, begun := "unknown", "order it to go back"
	other, err := decodeRecord(text)
	if err == nil {
		phase = string(other.Phase)
	}
	found, err := decodeOrdered(other)
	if err == nil && found.Owner != nil {
		begun = fmt.Sprintf("set spec.rollback of EtcdRestore %s, or, if that no longer exists", found.Owner.Name)
	}
	return fmt.Sprintf("restore %s (phase %s) has claimed %s: wait for its end, or %s: dr restore --into statefulset/%s --namespace %s --undo %s",
		holder, phase, m, begun, m.Name, m.Namespace, holder)
}

// checkOrigin refuses an order that was carried out before. A restore that goes back after its success is not a new one.
func (m *Manager) checkOrigin(ctx context.Context, r handoff.Record) error {
	if m.Origin == "" || r.Step != handoff.Take {
		return nil
	}
	set, err := m.findSet(ctx)
	if err != nil {
		return err
	}
	o := objects{set: set}
	err = m.readService(ctx, &o)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(o.keepers(), m.remembers) {
		return nil
	}
	return fmt.Errorf("%w: %s was restored by %s already: to restore again, use another name", fault.Refused, m, m.Origin)
}

// Lift puts back the values that the restore has changed, but not the variable of bitnami's image. It removes the restore's annotations from
// the StatefulSet, and ends the claim. If the StatefulSet was deleted, Lift only ends the claim. The record stays: see Save. After a success
// it also deletes the Jobs. Else they stay for a day, for their logs, unless the ConfigMap goes before: it owns them.
func (m *Manager) Lift(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	all, err := m.readJobs(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	s := all.end("", time.Now())
	if s.waiting == "" && r.End == handoff.Succeeded && !r.Stays {
		s = all.remove()
	}
	p, err := m.carryOut(ctx, s)
	if err != nil || !p.Done {
		return p, err
	}
	h, err := m.changed(ctx, r)
	if err != nil {
		return handoff.Progress{}, err
	}
	if h.Saved != "" {
		p, err = m.step(ctx, h, func(o objects, was saved) step { return m.lift(o, was, r.End == handoff.Succeeded) })
		if err != nil || !p.Done {
			return p, err
		}
	}
	held, found, err := m.readMap(ctx)
	if err != nil || held.Data[holderKey] != m.ID {
		return handoff.Progress{Done: err == nil}, err
	}
	delete(held.Data, holderKey)
	err = m.writeMap(ctx, held, found)
	if apierrors.IsConflict(err) {
		return handoff.Progress{Waiting: "the claim was changed at the same time: it is read again"}, nil
	}
	return handoff.Progress{Done: err == nil}, apiError(err, "end the claim on %s", m)
}

// changed returns the handoff of r, with the values to put back. If r is a new record in place of one that was lost, they are in an annotation.
// It returns the zero Handoff if nothing was changed, or the StatefulSet does not exist.
func (m *Manager) changed(ctx context.Context, r handoff.Record) (handoff.Handoff, error) {
	set, err := m.readSet(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return handoff.Handoff{}, nil
	}
	if err != nil {
		return handoff.Handoff{}, err
	}
	found, ok := markOf(set)
	switch {
	case !r.Down.IsZero():
		return r.Handoff, nil
	case !ok || set.Annotations[restoreAnnotation] != m.ID || found.Stopped: // the way back of stopped members needs the annotation
		return handoff.Handoff{}, nil
	}
	r.Handoff.Saved = encode(found.saved)
	return r.Handoff, nil
}

// lift returns the next step towards the values and annotations as they are after a restore.
func (m *Manager) lift(o objects, was saved, succeeded bool) step {
	patches := valuesBack(o, was)
	if len(patches) > 0 {
		return step{patches: patches, waiting: "the Service and the StatefulSet are set back"}
	}
	for _, object := range o.keepers() {
		after := object.DeepCopyObject().(client.Object)
		if after.GetAnnotations()[restoreAnnotation] == m.ID {
			delete(after.GetAnnotations(), restoreAnnotation)
			delete(after.GetAnnotations(), markAnnotation)
		}
		if succeeded && m.Origin != "" && !m.remembers(after) {
			remember(after, m.Origin)
		}
		if !maps.Equal(after.GetAnnotations(), object.GetAnnotations()) {
			patches = append(patches, patch{object, after})
		}
	}
	if len(patches) > 0 {
		return step{patches: patches, waiting: "the annotations are removed"}
	}
	return done()
}

// maxOrigins is how many of the last restores are remembered.
const maxOrigins = 16

// originsOf returns the origins of the last restores that have succeeded as an object remembers them, the oldest first.
func originsOf(keeper client.Object) []string {
	return strings.Fields(keeper.GetAnnotations()[restoredAnnotation])
}

// remembers reports whether an object remembers the order for this restore.
func (m *Manager) remembers(keeper client.Object) bool {
	return slices.Contains(originsOf(keeper), m.Origin)
}

// remember adds an origin to those of an object. The oldest ones go.
func remember(keeper client.Object, origin string) {
	all := append(originsOf(keeper), origin)
	annotate(keeper, restoredAnnotation, strings.Join(all[max(0, len(all)-maxOrigins):], " "))
}

// Load returns the record of the restore with an id; with the id "", of the restore that has claimed the StatefulSet. The error matches
// fault.NotFound if there is none.
func (m *Manager) Load(ctx context.Context, id string) (handoff.Record, error) {
	held, _, err := m.readMap(ctx)
	if err != nil {
		return handoff.Record{}, err
	}
	if id == "" {
		id = held.Data[holderKey]
	}
	text, found := held.Data[id]
	if !found || id == "" {
		return handoff.Record{}, m.errNoRecord()
	}
	return decodeRecord(text)
}

func (m *Manager) errNoRecord() error {
	return fmt.Errorf("%w: no such restore of %s: see kubectl -n %s get configmap %s", fault.NotFound, m, m.Namespace, m.mapName())
}

// Save replaces the record before by after. The zero before means that there is none yet; an after with the step None removes the record.
// The error matches fault.Busy if the stored record is another one: another process continues the restore, and its record must be loaded.
func (m *Manager) Save(ctx context.Context, before, after handoff.Record) error {
	held, found, err := m.readMap(ctx)
	if err != nil {
		return err
	}
	if !isRecord(held.Data[m.ID], before) {
		return m.errContinued()
	}
	if before.ID == "" {
		err := m.makeRoom(held.Data)
		if err != nil {
			return err
		}
	}
	held.Data[m.ID] = encode(after)
	if after.Step == handoff.None {
		delete(held.Data, m.ID)
	}
	err = m.writeMap(ctx, held, found)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return m.errContinued()
	}
	return apiError(err, "store the record of restore %s", m.ID)
}

// A ConfigMap has at most 1 MiB, and a record a few KiB. The record of a restore under way must always fit.
const (
	maxEnded   = 16 // records of restores that have ended and keep old data
	maxWaiting = 64 // records of other restores
)

// makeRoom removes the records of the restores that ended first, so that there is room for a new one: their old data stays on the disks
// until a person removes it. It removes no other record, and returns an error if there are too many.
func (m *Manager) makeRoom(stored map[string]string) error {
	var ended []handoff.Record
	others := 0
	for key, text := range stored {
		r, err := decodeRecord(text)
		switch {
		case key == holderKey:
		case err == nil && r.Phase.HasEnded() && key != stored[holderKey]:
			ended = append(ended, r)
		default:
			others++
		}
	}
	if others >= maxWaiting {
		return fmt.Errorf("%d restores of %s wait already: delete those that are not needed", others, m)
	}
	slices.SortFunc(ended, func(a, b handoff.Record) int { return a.Since.Compare(b.Since) })
	for _, r := range ended[:max(0, len(ended)-maxEnded)] {
		delete(stored, r.ID)
	}
	return nil
}

// isRecord reports whether text is r as any version of dr has encoded it; "" if r is zero.
func isRecord(text string, r handoff.Record) bool {
	if r.ID == "" || text == "" {
		return r.ID == "" && text == ""
	}
	stored, err := decodeRecord(text)
	return err == nil && encode(stored) == encode(r)
}

func (m *Manager) errContinued() error {
	return fmt.Errorf("%w: another process continues restore %s of %s: its record must be read again", fault.Busy, m.ID, m)
}

// readMap reads the ConfigMap with the claim and the records. If there is none, it returns an empty one.
func (m *Manager) readMap(ctx context.Context) (held *corev1.ConfigMap, found bool, err error) {
	held = &corev1.ConfigMap{}
	err = m.client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.mapName()}, held)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, false, apiError(err, "read the claim on %s", m)
	}
	found = err == nil
	held.Namespace, held.Name = m.Namespace, m.mapName()
	if held.Data == nil {
		held.Data = map[string]string{}
	}
	return held, found, nil
}

// writeMap creates or replaces the ConfigMap, unless it was changed since it was read. It deletes an empty one.
func (m *Manager) writeMap(ctx context.Context, held *corev1.ConfigMap, found bool) error {
	metav1.SetMetaDataLabel(&held.ObjectMeta, nameLabel, jobName)
	switch {
	case !found && len(held.Data) == 0:
		return nil
	case !found:
		return m.client.Create(ctx, held)
	case len(held.Data) == 0:
		return m.client.Delete(ctx, held, client.Preconditions{UID: &held.UID, ResourceVersion: &held.ResourceVersion})
	}
	return m.client.Update(ctx, held)
}

// owner returns the owner of Jobs and plans. The ConfigMap of the claim goes with the last record, and they go with it.
func (m *Manager) owner(ctx context.Context) (metav1.OwnerReference, error) {
	if m.Jobs.Owner != nil {
		return *m.Jobs.Owner, nil
	}
	held, found, err := m.readMap(ctx)
	if err == nil && !found {
		err = fmt.Errorf("%w: no restore has claimed %s: take the claim first", fault.Refused, m)
	}
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: held.Name, UID: held.UID}, nil
}

func decodeRecord(text string) (r handoff.Record, err error) {
	err = json.Unmarshal([]byte(text), &r)
	if err != nil {
		err = fmt.Errorf("%w: the record of the restore cannot be read: %w", fault.Damaged, err)
	}
	return r, err
}
