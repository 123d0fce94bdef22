package scheduler_test

import (
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// TestMain creates the encoder that package seal shares before the first test. If a test created it within its synctest bubble, no
// other test could use it.
func TestMain(m *testing.M) {
	_, err := seal.Bytes([]byte("x"), seal.Recipients{})
	if err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func zone(t rapid.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func schedule(t rapid.TB, text, in string) spec.Schedule {
	t.Helper()
	s, err := spec.ParseSchedule(text, zone(t, in), 0, "prod")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
