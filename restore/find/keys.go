package find

import (
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// Keys selects keys: one, a range, or those of the range that belong to a namespace of Kubernetes.
type Keys struct {
	replay.Keys
	// Namespace limits the range to the objects of this namespace and the namespace itself; "" does not.
	Namespace string `json:"namespace,omitempty"`
	// Needed adds what the objects of a namespace need and is in none: CustomResourceDefinitions and PersistentVolumes.
	Needed bool `json:"needed,omitempty"`
}

// Key selects one key.
func Key(key string) Keys { return Keys{Keys: replay.Keys{From: []byte(key)}} }

// Prefix selects all keys that begin with prefix; all keys if it is empty.
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

// Namespace selects the objects of a namespace and the namespace itself.
func Namespace(name string) Keys {
	keys := Prefix(kubernetes.Root)
	keys.Namespace = name
	return keys
}

// Has reports whether key is selected.
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

var needed = map[string]bool{"CustomResourceDefinition": true, "PersistentVolume": true}

// marked reports whether value, put at key, is the selected namespace marked for deletion.
func (k Keys) marked(key, value []byte) bool {
	if k.Namespace == "" || !kubernetes.IsNamespace(string(key), k.Namespace) {
		return false
	}
	object, err := kubernetes.Decode(value)
	return err == nil && object.Deleting()
}
