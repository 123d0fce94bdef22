// Package statefulset restores an etcd cluster in the place where a StatefulSet of Kubernetes runs it.
//
// Each method of the Manager reads live objects, decides without any I/O on the next step, and carries that step out. No method waits:
// the caller calls it again. The Manager has no memory: each decision follows from the objects and the handoff.Record.
//
// During a restore the StatefulSet has two annotations: the restore's id, and the values that the restore changes, as they were. They are
// written together with the first change, and removed by Lift. A ConfigMap next to the StatefulSet names the restore that has claimed it,
// and holds the records of all its restores: see Take.
//
// Tasks on the disks run as Jobs, one a member and task, on the member's own claims. Nothing of the pod template changes but one variable
// of bitnami's image, and one of the script of cnych's operator, while no pod exists.
//
// If an EtcdCluster of cnych's operator owns the StatefulSet, the Manager changes its size instead of spec.replicas. It takes control
// of the StatefulSet away from one of etcd-io's operator, and gives it back once members run.
package statefulset

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Options describe one restore of a StatefulSet.
type Options struct {
	Client    client.Client // must not cache
	Namespace string
	Name      string // of the StatefulSet
	ID        string // of the restore: that of its handoff.Record

	// Origin identifies the order for this restore, such as "nightly@1f3a9c" of a custom resource with this name and digest, without a
	// space. The StatefulSet remembers those of the last 16 restores that succeeded: the same order, applied again, is refused. "": a
	// person, who may repeat the restore.
	Origin string
	Into   Into
	Backup []plan.Member // members of the backup: the source of names and peer URLs that the StatefulSet does not show
	Jobs   Jobs
}

// Into holds facts about the members that the StatefulSet does not show, or shows wrong.
type Into struct {
	Members   []plan.Member // each has the name of its pod, or a peer URL whose host begins with it; none: see Inspect
	DataDir   string        // as the etcd container sees it
	WALDir    string        // likewise; "": that of etcd's flags
	Container string        // that runs etcd; "": the one that looks like it
}

// Manager is the handoff.Manager of one StatefulSet, and has the methods Take and Lift of a handoff.Claim.
type Manager struct {
	Options
	client client.Client
}

// fieldOwner names dr in the managedFields of objects that it changes.
const fieldOwner = "etcd-dr"

// New returns the Manager for a restore.
func New(o Options) *Manager {
	return &Manager{Options: o, client: client.WithFieldOwner(o.Client, fieldOwner)}
}

var _ handoff.Manager = (*Manager)(nil)

// String returns the kind, the namespace and the name.
func (m *Manager) String() string { return fmt.Sprintf("StatefulSet %s/%s", m.Namespace, m.Name) }

func (m *Manager) key() types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
}

// Exists reports whether the StatefulSet exists.
func (m *Manager) Exists(ctx context.Context) (bool, error) {
	_, err := m.readSet(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Inspect describes the StatefulSet and its members. The number of members is spec.replicas; if that is 0, the value before an earlier
// restore that has not ended; without one, the number of Into.Members or of the backup's. Their names and peer URLs are those of Into.Members, else of the
// flags and the environment of the etcd container, else of the backup's members. Of scripts it knows only that of cnych's operator.
func (m *Manager) Inspect(ctx context.Context) (handoff.Handoff, error) {
	set, err := m.findSet(ctx)
	if err != nil {
		return handoff.Handoff{}, err
	}
	o, err := m.readObjects(ctx, set, m.count(set))
	if err != nil {
		return handoff.Handoff{}, err
	}
	err = cmp.Or(m.readSpares(ctx, &o), m.readVariables(ctx, &o), m.trySize(ctx, &o), m.tryControl(ctx, set))
	return m.inspect(o), err
}

// Fence takes one step towards no pod of a member being left. Before it scales the StatefulSet to 0 it keeps Kubernetes from deleting the
// members' claims. It deletes the pods itself, all at once: with OrderedReady and a lost quorum the controller deletes none. If another
// program scales the StatefulSet up again and again, the error matches fault.Refused.
func (m *Manager) Fence(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	return m.step(ctx, h, func(o objects, was saved) step { return m.fence(o, was, time.Now()) })
}

// Release takes one step towards all members running. It is done when their pods exist. With OrderedReady the controller would wait for
// the first member, which waits for a quorum: Release creates the pods that the controller would create, and the controller adopts them.
func (m *Manager) Release(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	return m.start(ctx, h, func(o objects, was saved) step { return m.scaleUp(o, was, int32(len(h.Members))) })
}

// Return takes one step towards as many members running as Inspect found, if this restore has stopped them. Settled and Lift put back the
// other values: until then the members may need them to find one another.
func (m *Manager) Return(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	return m.start(ctx, h, m.putBack)
}

// Settled is done once all pods have been ready and unchanged for half a minute, the Service and the retention policy are as Inspect found them,
// and an EtcdCluster of etcd-io's operator controls the StatefulSet again.
func (m *Manager) Settled(ctx context.Context, h handoff.Handoff) (handoff.Progress, error) {
	return m.step(ctx, h, func(o objects, was saved) step { return settled(o, was, time.Now()) })
}

// step reads the live objects, and carries out the step that decide returns for them and the saved values.
func (m *Manager) step(ctx context.Context, h handoff.Handoff, decide func(objects, saved) step) (handoff.Progress, error) {
	was, err := decodeSaved(h.Saved)
	if err != nil {
		return handoff.Progress{}, err
	}
	set, err := m.readSet(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	o, err := m.readObjects(ctx, set, int32(len(h.Members)))
	if err != nil {
		return handoff.Progress{}, err
	}
	return m.carryOut(ctx, decide(o, was))
}

// count returns the number of members.
func (m *Manager) count(set *appsv1.StatefulSet) int32 {
	now := replicasOf(set)
	earlier, found := markOf(set)
	switch {
	case now > 0:
		return now
	case found && earlier.Replicas > 0:
		return earlier.Replicas
	}
	return int32(cmp.Or(len(m.Into.Members), len(m.Backup)))
}
