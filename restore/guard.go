package restore

import (
	"fmt"
	"runtime/debug"

	"github.com/etcd-dr/etcd-dr/restore/child"
)

// guard calls do, and returns a panic on this goroutine as an error. bbolt and etcd's packages panic on damaged data. A panic on another
// goroutine ends the process, and Spawn finds the panic's message on the process's stderr.
func guard(stage string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page beyond the file's end faults in the mapping
	defer func() {
		words := recover()
		if words != nil {
			err = child.Blame(stage, fmt.Sprint(words))
		}
	}()
	return do()
}
