package find

import (
	"bytes"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// Keys selects one key, a range, or those keys of a range that belong to a Kubernetes namespace.
type Keys struct {
	replay.Keys
	// Namespace restricts the range to the objects of a namespace and the namespace itself; "" does not restrict it.
	Namespace string `json:"namespace,omitempty"`
	// Needed adds the cluster-wide objects that the objects of a namespace may need: CustomResourceDefinitions and PersistentVolumes.
	Needed bool `json:"needed,omitempty"`
}

// Key returns Keys that select one key.
func Key(key string) Keys { return Keys{Keys: replay.Keys{From: []byte(key)}} }

// Prefix returns Keys that select all keys with the prefix; all keys if it is empty.
func Prefix(prefix string) Keys {
	if prefix == "" {
		return Keys{Keys: replay.Keys{From: []byte{0}, To: []byte{0}}}
	}
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return Keys{Keys: replay.Keys{From: []byte(prefix), To: []byte{0}}}
	}
	end[len(end)-1]++
	return Keys{Keys: replay.Keys{From: []byte(prefix), To: end}}
}

// Namespace returns Keys that select the objects of a namespace and the namespace itself.
func Namespace(name string) Keys {
	keys := Prefix(kubernetes.Root)
	keys.Namespace = name
	return keys
}

// Has reports whether k selects key.
func (k Keys) Has(key []byte) bool {
	if !k.Keys.Has(key) {
		return false
	}
	if k.Namespace == "" {
		return true
	}
	n, ok := kubernetes.Named(string(key))
	return ok && (n.Belongs(k.Namespace) || k.Needed && n.Namespace == "" && needed[n.Kind])
}

// needed are the kinds that Keys.Needed adds.
var needed = map[string]bool{"CustomResourceDefinition": true, "PersistentVolume": true}

// watches reports whether a search reads the changes of key: of the selected keys, and of those whose deletion marks count.
func (k Keys) watches(key []byte) bool { return k.Has(key) || k.markable(key) }

// markable reports whether the deletion mark of the object with this key counts: of the only selected key, of the selected namespace
// or, for a range of Kubernetes' keys, of every namespace.
func (k Keys) markable(key []byte) bool {
	switch {
	case len(k.To) == 0:
		return k.Has(key)
	case k.Namespace != "":
		return kubernetes.IsNamespace(string(key), k.Namespace)
	}
	n, ok := kubernetes.Named(string(key))
	return ok && n.Kind == "Namespace" && k.ofKubernetes()
}

// ofKubernetes reports whether the range includes keys of Kubernetes.
func (k Keys) ofKubernetes() bool {
	return len(k.To) > 0 && (strings.HasPrefix(string(k.From), kubernetes.Root) || k.Keys.Has([]byte(kubernetes.Root)))
}

// watched returns a range that includes all keys that a search reads.
func (k Keys) watched() replay.Keys {
	if !k.ofKubernetes() {
		return k.Keys
	}
	wider, namespaces := k.Keys, Prefix(kubernetes.NamespaceKey("")).Keys
	if bytes.Compare(namespaces.From, wider.From) < 0 {
		wider.From = namespaces.From
	}
	if wider.To[0] != 0 && bytes.Compare(wider.To, namespaces.To) < 0 { // it ends, and earlier
		wider.To = namespaces.To
	}
	return wider
}

// deleting reports whether value is an object that is marked for deletion, and the mark counts.
func (k Keys) deleting(key, value []byte) bool {
	if !k.markable(key) {
		return false
	}
	object, err := kubernetes.Decode(value)
	return err == nil && object.Deleting()
}
