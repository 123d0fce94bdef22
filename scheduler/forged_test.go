package scheduler_test

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// A service that signs takes its backups regardless of forged ones in the repository: a forged backup immediately before a
// slot does not count as the slot's backup.
func TestForgedBackupsStopNoSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "15 * * * *", "main")
		spec.Repositories[0].Policy = records.Policy{Key: newKey(t)}
		w.start("a", configOf(spec))
		w.pass(2*time.Hour + 14*time.Minute)
		before := len(w.times("prod"))
		attacker, err := repository.OpenWith(w.stores["main"], "prod", records.Policy{Key: newKey(t)})
		if err != nil {
			t.Fatal(err)
		}
		const hours = 6
		for range hours {
			_, err := create(t.Context(), attacker, time.Now().Add(61*time.Second), 5000, 9, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.pass(time.Hour)
		}
		took := len(w.times("prod")) - before
		if took != hours {
			t.Errorf("%d backups in %d hours", took, hours)
		}
	})
}

func newKey(t *testing.T) sign.Key {
	t.Helper()
	secret, _, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
