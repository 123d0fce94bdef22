package find

import (
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

// deleting reports whether value is an object that is marked for deletion, and key is the selected namespace or the only selected key.
func (k Keys) deleting(key, value []byte) bool {
	single := len(k.To) == 0
	if !single && (k.Namespace == "" || !kubernetes.IsNamespace(string(key), k.Namespace)) {
		return false
	}
	object, err := kubernetes.Decode(value)
	return err == nil && object.Deleting()
}
