package scheduler_test

import (
	"os"
	"testing"

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
