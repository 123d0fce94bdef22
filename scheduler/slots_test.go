package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// elsewhere makes the drills of a service run elsewhere, so many at a time.
func elsewhere(n int) func(*scheduler.Service) {
	return func(s *scheduler.Service) { s.Drills = n }
}

// tenants returns n clusters of a tenant that share a repository with all others, and are drilled once.
func tenants(t *testing.T, tenant string, n int) (specs []spec.Spec) {
	t.Helper()
	for i := range n {
		s := withDrills(t, specOf(t, fmt.Sprintf("%s.c%d", tenant, i), "@weekly", "main"), "@monthly")
		s.Tenant, s.Timeout = tenant, 6*time.Hour
		specs = append(specs, s)
	}
	return specs
}

// hang makes the drills of clusters take until their time limit.
func (w *world) hang(specs []spec.Spec) {
	w.drills.hang = map[string]bool{}
	for _, s := range specs {
		w.drills.hang[s.Cluster] = true
	}
}

// A drill that hangs delays no other, even of the same repository, while the service has a turn left.
func TestDrillsThatHangTakeOneTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hanging, other := tenants(t, "a", 1), tenants(t, "b", 1)
		w.hang(hanging)
		w.drills.took, w.drills.most = 10*time.Minute, 2
		w.start("a", configOf(append(hanging, other...)...), elsewhere(2))
		w.pass(time.Hour)
		w.wantDrills("b.c0", 0)
	})
}

// A tenant whose drills all hang takes every turn, but only until they give it back; and then a tenant without a turn is next, however
// many drills of the other have waited longer.
func TestDrillsTakeTurnsByTenant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hanging := tenants(t, "a", 12)
		w.hang(hanging)
		w.drills.took, w.drills.frees, w.drills.most = 10*time.Minute, time.Hour, 4
		s := w.start("a", configOf(hanging...), elsewhere(4))
		w.pass(30 * time.Minute)
		s.changes <- configOf(append(hanging, tenants(t, "b", 2)...)...)
		w.pass(45 * time.Minute)
		w.wantDrills("b.c0", time.Hour)
		w.wantDrills("b.c1", time.Hour)
		w.pass(12 * time.Hour)
		for _, spec := range hanging {
			if len(w.drilledAt(spec.Cluster)) == 0 {
				t.Errorf("%s was not drilled", spec.Cluster)
			}
		}
	})
}

// A service that starts with hundreds of due drills runs a few at a time, and each tenant's first one early.
func TestManyDueDrills(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		specs := tenants(t, "big", 100)
		for i := range 40 {
			specs = append(specs, tenants(t, fmt.Sprint("small", i), 1)...)
		}
		w.drills.took, w.drills.most = 10*time.Minute, 8
		w.start("a", configOf(specs...), elsewhere(8))
		w.pass(at(0, "3h15m"))
		for _, spec := range specs {
			drilled := w.drilledAt(spec.Cluster)
			if len(drilled) != 1 || spec.Tenant != "big" && drilled[0] > time.Hour+20*time.Minute {
				t.Errorf("%s was drilled at %v", spec.Cluster, drilled)
			}
		}
	})
}

// A backup of a tenant does not wait for all backups that another tenant has due.
func TestBackupsTakeSlotsByTenant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 5 * time.Minute
		var specs []spec.Spec
		for i := range 30 {
			s := specOf(t, fmt.Sprint("a.c", i), "@daily", "main")
			s.Tenant = "a"
			specs = append(specs, s)
		}
		one := specOf(t, "b.c0", "30 12 * * *", "main")
		one.Tenant = "b"
		w.start("a", configOf(append(specs, one)...))
		w.pass(at(0, "1h"))
		got := w.times("b.c0")
		if len(got) != 1 || got[0] > 11*time.Minute || len(w.taken) != 31 || w.most > 4 {
			t.Errorf("the other tenant's was taken at %v, of %d, %d at once", got, len(w.taken), w.most)
		}
	})
}

// A backup that only has to be uploaded from its spool keeps no other waiting, but those of its own repository when they are as many as
// may run.
func TestUploadsTakeNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took, w.upload = time.Minute, map[string]time.Duration{}
		var specs []spec.Spec
		for i := range 4 {
			s := specOf(t, fmt.Sprint("slow", i), "@daily", "offsite")
			w.upload[s.Cluster] = 50 * time.Minute
			specs = append(specs, s)
		}
		specs = append(specs, specOf(t, "same", "@daily", "offsite"), specOf(t, "other", "@daily", "main"))
		w.start("a", configOf(specs...))
		w.pass(at(0, "2h"))
		for cluster, latest := range map[string]time.Duration{"same": 52 * time.Minute, "other": 3 * time.Minute} {
			got := w.times(cluster)
			if len(got) != 1 || got[0] > latest {
				t.Errorf("%s was taken at %v, want by %v", cluster, got, latest)
			}
		}
	})
}

// A drill whose result another host has stored while it waited for its turn is not repeated.
func TestDrillsAreReadAgainAfterTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		specs := []spec.Spec{
			withDrills(t, specOf(t, "c1", "@weekly", "main"), "@monthly"), withDrills(t, specOf(t, "c2", "@weekly", "offsite"), "@monthly"),
		}
		w.drills.took = 50 * time.Minute
		s := w.start("a", configOf(specs...))
		w.pass(10 * time.Minute)
		waiting := specs[1]
		if running(s) != "c1 " {
			waiting = specs[0]
		}
		c, err := repository.Open(w.stores[waiting.Repositories[0].URL], waiting.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		newest, err := s.newest(t, waiting.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Append(t.Context(), catalog.Proof{
			Format: catalog.Proofs.Format, Backup: newest, Level: catalog.Booted, Verdict: catalog.Passed, Time: time.Now().UTC(), By: "a person",
			Drill: &catalog.Drill{Target: "the newest backup"},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.pass(3 * time.Hour)
		w.wantDrills(waiting.Cluster)
	})
}

// newest returns the newest backup in the status of a cluster.
func (s *service) newest(t *testing.T, cluster string) (catalog.ID, error) {
	t.Helper()
	status, err := s.StatusOf(cluster)
	if err == nil && status.Last == nil {
		return "", errTest
	}
	return status.Last.ID, err
}

// A requested drill that waits for its turn while the settings change is run with the new ones.
func TestRequestedDrillWaitsThroughAChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := withDrills(t, specOf(t, "c1", "@weekly", "main"), ""), withDrills(t, specOf(t, "c2", "@weekly", "offsite"), "")
		w.drills.took = 50 * time.Minute
		s := w.start("a", configOf(one, two))
		w.pass(time.Minute)
		s.trigger(t, "c1", scheduler.JobDrill, "first")
		w.pass(time.Minute)
		s.trigger(t, "c2", scheduler.JobDrill, "second")
		w.pass(time.Minute)
		two.Repositories, two.Drill.Repository, two.Digest = specOf(t, "c2", "", "main").Repositories, "main", "moved"
		s.changes <- configOf(one, two)
		w.pass(3 * time.Hour)
		s.wantOutcome(t, "c2", scheduler.JobDrill, scheduler.Succeeded, "second", "")
		places := []string{}
		for _, d := range w.drills.ran {
			places = append(places, d.cluster+" in "+d.in)
		}
		if !slices.Equal(places, []string{"c1 in main", "c2 in main"}) {
			t.Errorf("drilled %q", places)
		}
	})
}
