package controller

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/api/controller/drill"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// minDrillMemory is the least memory of a Job, in bytes: with less, an etcd server spends its time on garbage collection.
const minDrillMemory = 128 << 20

// drill returns how restores are practiced. The declaration has no identity: the Jobs mount it. A quarter of their memory is left to
// what the limit of dr drill does not count.
func (d *declaration) drill(s *v1alpha1.Drill) declared.Drill {
	if s == nil {
		return declared.Drill{}
	}
	memory := drill.Memory(s)
	if memory.Value() < minDrillMemory {
		d.fault("spec.drill.memory", fmt.Errorf("%s is too little for an etcd server: use at least 128Mi", memory.String()))
	}
	if s.Scratch != nil && s.Scratch.Sign() <= 0 {
		d.fault("spec.drill.scratch", errors.New("it must be above 0: use three times the size of the database"))
	}
	set := declared.Drill{Schedule: declared.Schedule{Zone: "UTC"}, Repository: s.Repository, Assert: s.Assert, Memory: memory.Value() / 4 * 3}
	d.schedule(&s.Schedule, "spec.drill.schedule", &set.Schedule)
	return set
}

// drillField returns the field of an EtcdBackup's drill, or of its schedule, that corresponds to a key of dr.yaml.
func drillField(key string) string {
	switch key {
	case "zone":
		return "timeZone"
	case "memoryLimit":
		return "memory"
	}
	return key
}

// drillDigest returns a digest of s, whose identity and scratch volume are not part of a declaration; "" if s is nil.
func drillDigest(s *v1alpha1.Drill) string {
	if s == nil {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // only texts and quantities
	}
	return fmt.Sprintf(" drill %x", spec.Hash(string(text)))
}
