package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// entry holds the Spec of one EtcdBackup, or the reason why it has none.
type entry struct {
	uid             types.UID
	created         time.Time
	spec            spec.Spec
	backup          *v1alpha1.EtcdBackup // from which spec was built; nil: there is no spec
	claimedCluster  string               // the cluster of an EtcdBackup that was listed, before its Spec is built; else ""
	fault           string               // why the EtcdBackup as written is not in effect; "": it is
	unservedCluster string               // the cluster that is not backed up because of fault, if no Spec is in effect; else ""

	generation int64     // of the EtcdBackup that the entry was built from
	read       time.Time // when its Secrets and its StatefulSet were read
}

// isCurrent reports whether e was built from this generation of the EtcdBackup, and so recently that the Secrets and the StatefulSet
// need not be read again.
func (e entry) isCurrent(uid types.UID, generation int64, now time.Time) bool {
	after := settingsAfter
	if e.fault != "" {
		after = faultAfter
	}
	return e.uid == uid && e.generation == generation && now.Sub(e.read) < after
}

// older reports whether e was created before other; equal times are ordered by their UIDs.
func (e entry) older(other entry) bool {
	return cmp.Or(e.created.Compare(other.created), cmp.Compare(e.uid, other.uid)) < 0
}

// table holds the Specs of all EtcdBackups. All fields are guarded by mu.
type table struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]entry
	owners  map[string]types.NamespacedName // the oldest EtcdBackup of each cluster
	changed chan struct{}                   // holds one element after a change
}

func newTable() *table {
	return &table{entries: map[types.NamespacedName]entry{}, changed: make(chan struct{}, 1)}
}

// claim adds an EtcdBackup whose entry was not built yet. Until put replaces it, no younger EtcdBackup of the same cluster is in effect.
func (t *table) claim(name types.NamespacedName, e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.entries[name]
	if !known {
		t.entries[name] = e
		t.announce()
	}
}

// put sets the entry of an EtcdBackup. With a fault, the Spec that was in effect stays, if there was one.
func (t *table) put(name types.NamespacedName, e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.entries[name]
	if e.fault != "" {
		e.spec, e.backup = spec.Spec{}, nil
		if before.uid == e.uid && before.spec.Cluster != "" {
			e.spec, e.backup, e.unservedCluster = before.spec, before.backup, ""
		}
	}
	t.entries[name] = e
	if !known || before.uid != e.uid || before.spec.Digest != e.spec.Digest || before.fault != e.fault {
		t.announce()
	}
}

// get returns the entry of an EtcdBackup, the zero entry if there is none.
func (t *table) get(name types.NamespacedName) entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[name]
}

// remove forgets an EtcdBackup. Its running jobs end.
func (t *table) remove(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.entries[name]
	if known {
		delete(t.entries, name)
		t.announce()
	}
}

// announce recomputes the owners, and reports the change. The caller holds t.mu.
func (t *table) announce() {
	t.owners = map[string]types.NamespacedName{}
	for name, e := range t.entries {
		cluster := cmp.Or(e.claimedCluster, e.spec.Cluster)
		other, taken := t.owners[cluster]
		if cluster != "" && (!taken || e.older(t.entries[other])) {
			t.owners[cluster] = name
		}
	}
	select {
	case t.changed <- struct{}{}:
	default: // the last change was not seen yet
	}
}

// inEffect returns the cluster for which the Spec of the named EtcdBackup is in effect; "": none is. duplicate is the reason if another
// EtcdBackup, which is older, has the same cluster. It does not name the other: that may belong to another tenant.
func (t *table) inEffect(name types.NamespacedName) (cluster, duplicate string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, known := t.entries[name]
	if !known || e.spec.Cluster == "" {
		return "", ""
	}
	if t.owners[e.spec.Cluster] != name {
		return "", fmt.Sprintf("an older EtcdBackup has the cluster name %s: choose another name with spec.cluster, or, to take a single backup of that cluster, set spec.like", e.spec.Cluster)
	}
	return e.spec.Cluster, ""
}

// nameOf returns the oldest EtcdBackup of a cluster. Only its Spec is in effect, as soon as it is built.
func (t *table) nameOf(cluster string) (types.NamespacedName, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, ok := t.owners[cluster]
	return name, ok
}

// backupOf returns the EtcdBackup from which s was built; nil: s is no longer in effect. It must not be changed.
func (t *table) backupOf(s spec.Spec) *v1alpha1.EtcdBackup {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[t.owners[s.Cluster]]
	if e.spec.Digest != s.Digest {
		return nil
	}
	return e.backup
}

// config returns base with all Specs in effect, and the faults by cluster: those of these Specs' EtcdBackups, and those that leave a
// cluster without a Spec.
func (t *table) config(base spec.Config) spec.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	base.Specs, base.Faulty = nil, map[string]string{}
	for _, cluster := range slices.Sorted(maps.Keys(t.owners)) {
		e := t.entries[t.owners[cluster]]
		if e.claimedCluster != "" {
			continue
		}
		base.Specs = append(base.Specs, e.spec)
		if e.fault != "" {
			base.Faulty[cluster] = e.fault
		}
	}
	for _, e := range t.entries {
		_, taken := t.owners[e.unservedCluster]
		if e.unservedCluster != "" && !taken {
			base.Faulty[e.unservedCluster] = max(base.Faulty[e.unservedCluster], e.fault) // any of several faults, but always the same
		}
	}
	return base
}

// names returns all EtcdBackups of t, in no particular order.
func (t *table) names() []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.entries))
}
