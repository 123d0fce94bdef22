package condition_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain gives rapid the same numbers each time, unless the command line says otherwise.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.seed": "20261121", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
