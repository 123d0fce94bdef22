package controller

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// lock returns for how long, and in which mode, a repository's store refuses to delete new objects; the zero Lock if l is nil.
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

// signKey returns the signing key in a Secret. If the Secret has none, it adds a fault and returns "".
func (d *declaration) signKey(s v1alpha1.SignKeySecret, field string) string {
	data, ok := d.secret(field, s.Name)
	key := cmp.Or(s.Key, "sign.key")
	if ok && len(data[key]) == 0 {
		d.fault(field, fmt.Errorf("secret %s has no key %q: store the file of dr keygen --signing under it, or name its key in key", s.Name, key))
	}
	return string(data[key])
}
