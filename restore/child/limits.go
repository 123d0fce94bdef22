package child

import (
	"fmt"
	"runtime/debug"
)

// Limits bounds a child's use of its host. The zero value is no limit.
type Limits struct {
	// Memory is how many bytes Go's runtime keeps to where it can, as GOMEMLIMIT does: it collects garbage harder, and
	// does not fail. Pages of a database that is mapped are the kernel's, and do not count. 0: no limit.
	Memory int64 `json:"memory,omitempty"`
	Nice   int   `json:"nice,omitempty"` // from 0, as everybody else, to 19, the last to get a processor
}

// Apply sets the limits of this process. A child calls it before its work; a niceness cannot be lowered again.
func (l Limits) Apply() error {
	if l.Memory > 0 {
		debug.SetMemoryLimit(l.Memory)
	}
	if l.Nice == 0 {
		return nil
	}
	if err := setNice(l.Nice); err != nil {
		return fmt.Errorf("set the niceness of this process to %d: %w", l.Nice, err)
	}
	return nil
}
