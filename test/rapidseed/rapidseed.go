// Package rapidseed makes rapid draw the same numbers in every run of a test binary that imports it, so that a failure
// can be repeated. -rapid.seed and -rapid.checks on the command line override it.
package rapidseed

import (
	"flag"

	_ "pgregory.net/rapid" // defines the flags
)

func init() {
	for name, value := range map[string]string{"rapid.seed": "20261121", "rapid.nofailfile": "true"} {
		err := flag.Set(name, value)
		if err != nil {
			panic(err)
		}
	}
}
