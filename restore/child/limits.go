package child

import (
	"fmt"
	"runtime/debug"
)

// Limits bounds a child's use of its host. The zero value means no limits.
type Limits struct {
	// Memory is the soft limit of Go's runtime in bytes, like GOMEMLIMIT: near the limit the runtime collects garbage more
	// often, but does not fail. Pages of a mapped database belong to the kernel and do not count. 0: no limit.
	Memory int64 `json:"memory,omitempty"`
	Nice   int   `json:"nice,omitempty"` // from 0, the default priority, to 19, the lowest
}

// Apply sets the limits of this process. A child calls it before its work; a niceness cannot be lowered again.
func (l Limits) Apply() error {
	if l.Memory > 0 {
		debug.SetMemoryLimit(l.Memory)
	}
	if l.Nice == 0 {
		return nil
	}
	err := setNice(l.Nice)
	if err != nil {
		return fmt.Errorf("set the niceness of this process to %d: %w", l.Nice, err)
	}
	return nil
}
