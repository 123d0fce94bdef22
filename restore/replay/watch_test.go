package replay_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// Two ranges meet if some key is in both: the test tries all short keys.
func TestKeysMeet(t *testing.T) {
	var all [][]byte
	letters := []byte{0, 'a', 'b', 0xff}
	for _, a := range letters {
		all = append(all, []byte{a})
		for _, b := range letters {
			all = append(all, []byte{a, b})
			for _, c := range letters {
				all = append(all, []byte{a, b, c})
			}
		}
	}
	key := rapid.SliceOfN(rapid.SampledFrom(letters), 1, 2)
	draw := func(t *rapid.T, name string) replay.Keys {
		k := replay.Keys{From: key.Draw(t, name+" from")}
		if rapid.Bool().Draw(t, name+" is a range") {
			k.To = key.Draw(t, name+" to")
		}
		return k
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		common := false
		for _, key := range all {
			common = common || a.Has(key) && b.Has(key)
		}
		empty := func(k replay.Keys) bool { // ends before it begins: contains no key
			for _, key := range all {
				if k.Has(key) {
					return false
				}
			}
			return true
		}
		got := a.Meet(b)
		if got != common && !empty(a) && !empty(b) || a.Meet(b) != b.Meet(a) && !empty(a) && !empty(b) {
			t.Fatalf("%q and %q meet: %v, and have a key in common: %v", a, b, got, common)
		}
	})
}
