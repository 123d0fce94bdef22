package keyspace

import "slices"

// history contains the change that each entry makes to its key, in the order of the entries. It is divided by the hash of the key, so that
// the set of the keys of one part fits into the processor's cache: a single set of millions of keys takes ten times as long.
type history [][]keyHash

const parts = 256

// keyHash is the hash of a key without its lowest bits, which are flags.
type keyHash uint64

const (
	deleted    keyHash = 1 << iota // the entry is a tombstone
	inRegistry                     // the key is below /registry/
	flags      = deleted | inRegistry
)

// Registry is the prefix of the keys of Kubernetes.
const Registry = "/registry/"

var registry = []byte(Registry)

// add adds the entry of a key.
func (h history) add(id uint64, tombstone, isInRegistry bool) {
	c := keyHash(id) &^ flags
	if tombstone {
		c |= deleted
	}
	if isInRegistry {
		c |= inRegistry
	}
	part := &h[id>>56]
	*part = append(*part, c)
}

// count is a number of keys that exist.
type count struct{ keys, registry int64 }

// live counts the keys that exist after all entries: those whose last entry is no tombstone.
func (h history) live() (live count) {
	seen := map[keyHash]struct{}{}
	for _, part := range h {
		clear(seen)
		for _, c := range slices.Backward(part) {
			key := c &^ flags
			_, again := seen[key]
			if again {
				continue
			}
			seen[key] = struct{}{}
			if c&deleted != 0 {
				continue
			}
			live.keys++
			if c&inRegistry != 0 {
				live.registry++
			}
		}
	}
	return live
}
