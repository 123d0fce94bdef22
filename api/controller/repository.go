package controller

import (
	"errors"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// lock returns how long a repository's store refuses to delete new objects. nil: not at all.
func (d *declaration) lock(l *v1alpha1.Lock, field string) declared.Lock {
	if l == nil {
		return declared.Lock{}
	}
	before := len(d.faults)
	set := declared.Lock{For: d.duration(l.For, field+".for"), Mode: l.Mode}
	if set.For == 0 && len(d.faults) == before {
		d.fault(field+".for", errors.New("0s locks nothing: use a longer time, such as 30d, or remove lock"))
	}
	return set
}
