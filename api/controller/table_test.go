package controller

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "payments", Name: name}
}

// entryOf returns the entry of an EtcdBackup that was created in that hour.
func entryOf(uid types.UID, hour int, cluster string) entry {
	return entry{
		uid: uid, created: time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC), spec: spec.Spec{Cluster: cluster, Digest: string(uid) + cluster},
	}
}

// faulty returns the entry of the same EtcdBackup after a change with a fault.
func (e entry) faulty(fault string) entry {
	e.spec, e.fault = spec.Spec{}, fault
	return e
}

// changed reports whether the table has announced a change since the last call.
func (t *table) hasChanged() bool {
	select {
	case <-t.changed:
		return true
	default:
		return false
	}
}

func (t *table) clusters() (names []string) {
	for _, s := range t.config(spec.Config{}).Specs {
		names = append(names, s.Cluster+" of "+t.entries[t.owners[s.Cluster]].spec.Digest)
	}
	return names
}

func wantClusters(t *testing.T, all *table, want ...string) {
	t.Helper()
	got := all.clusters()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("in effect are %q, want %q", got, want)
	}
}

func TestAFaultKeepsTheSpecInEffect(t *testing.T) {
	all, e := newTable(), entryOf("u", 1, "prod")
	all.put(named("a"), e.faulty("bad cron"))
	wantClusters(t, all)
	cluster, duplicate := all.inEffect(named("a"))
	if cluster != "" || duplicate != "" {
		t.Errorf("a first version with a fault is in effect for %q, duplicate %q", cluster, duplicate)
	}
	all.put(named("a"), e)
	all.put(named("a"), e.faulty("bad cron"))
	wantClusters(t, all, "prod of uprod")
	cluster, _ = all.inEffect(named("a"))
	got := all.config(spec.Config{Concurrency: 3})
	if cluster != "prod" || got.Faulty["prod"] != "bad cron" || got.Concurrency != 3 {
		t.Errorf("in effect for %q: %+v", cluster, got)
	}
	all.put(named("a"), e)
	if len(all.config(spec.Config{}).Faulty) != 0 {
		t.Error("a fault that was mended is listed")
	}
}

func TestTheOlderOfTwoWithOneClusterIsInEffect(t *testing.T) {
	all := newTable()
	all.put(named("young"), entryOf("y", 2, "prod"))
	all.put(named("old"), entryOf("o", 1, "prod"))
	all.put(named("other"), entryOf("x", 3, "test"))
	wantClusters(t, all, "prod of oprod", "test of xtest")
	cluster, duplicate := all.inEffect(named("young"))
	if cluster != "" || duplicate == "" {
		t.Errorf("the younger one is in effect for %q", cluster)
	}
	owner, _ := all.nameOf("prod")
	if owner != named("old") {
		t.Errorf("prod is that of %s", owner)
	}
	all.remove(named("old"))
	wantClusters(t, all, "prod of yprod", "test of xtest")

	twins := newTable()
	twins.put(named("b"), entryOf("2", 1, "prod"))
	twins.put(named("a"), entryOf("1", 1, "prod"))
	wantClusters(t, twins, "prod of 1prod")
}

func TestARecreatedEtcdBackupInheritsNothing(t *testing.T) {
	all := newTable()
	all.put(named("a"), entryOf("first", 1, "prod"))
	all.put(named("a"), entryOf("second", 2, "prod").faulty("bad cron"))
	wantClusters(t, all)
}

func TestTheTableTellsOfChangesOnly(t *testing.T) {
	all, e := newTable(), entryOf("u", 1, "prod")
	for _, step := range []struct {
		does string
		do   func()
		want bool
	}{
		{"put", func() { all.put(named("a"), e) }, true},
		{"put the same", func() { all.put(named("a"), e) }, false},
		{"put a fault", func() { all.put(named("a"), e.faulty("bad cron")) }, true},
		{"remove another", func() { all.remove(named("b")) }, false},
		{"remove", func() { all.remove(named("a")) }, true},
	} {
		step.do()
		if all.hasChanged() != step.want {
			t.Errorf("%s: told %v, want %v", step.does, !step.want, step.want)
		}
	}
}

func TestASpecOfOtherSettingsHasNoEtcdBackup(t *testing.T) {
	all, e := newTable(), entryOf("u", 1, "prod")
	e.backup = scheduled("payments", "a")
	all.put(named("a"), e)
	before := e.spec
	e.spec.Digest = "other"
	all.put(named("a"), e)
	if all.backupOf(before) != nil || all.backupOf(e.spec) != e.backup {
		t.Errorf("the EtcdBackups are %v and %v", all.backupOf(before), all.backupOf(e.spec))
	}
}
