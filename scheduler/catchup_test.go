package scheduler_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// ids returns the backups of a cluster in one of w's stores.
func (w *world) ids(t *testing.T, store, cluster string) (ids []catalog.ID) {
	t.Helper()
	c, err := repository.Open(w.stores[store], cluster)
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := c.Load(t.Context(), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range catalog.Backups {
		ids = append(ids, b.ID)
	}
	return ids
}

func anywhere(t *testing.T, cron string, repositories ...string) spec.Spec {
	settings := specOf(t, "prod", cron, repositories...)
	settings.Backup.Require, settings.Backup.Grace, settings.Observe = spec.Any, 24*time.Hour, 10*time.Minute
	return settings
}

// A repository that is unreachable for a day does not prevent backups in the other, and gets the missed backups when it is
// reachable: also from a service that started meanwhile, and before the next backup is due.
func TestServiceCopiesMissedBackups(t *testing.T) {
	for _, name := range []string{"fails at once", "never answers"} {
		for _, restart := range []bool{false, true} {
			bubble(t, func(t *testing.T, w *world) {
				on := &atomic.Bool{}
				defer w.recover(on)
				c := configOf(anywhere(t, "15 */6 * * *", "offsite", "main"))
				prepare := func(s *scheduler.Service) {
					w.opening(troubles[name], on)(s)
					s.Copy = scheduler.Copy
				}
				s := w.start("a", c, prepare)
				w.pass(5 * time.Hour)
				on.Store(true)
				w.pass(24 * time.Hour)
				n, missing := len(w.ids(t, "main", "prod")), len(w.ids(t, "offsite", "prod"))
				if n != 6 || missing != 2 {
					t.Fatalf("%s: main has %d backups, offsite %d", name, n, missing)
				}
				if restart {
					s.end()
					s = w.start("b", c, prepare)
					w.pass(time.Minute)
				}
				on.Store(false)
				w.pass(40 * time.Minute)
				here, there := w.ids(t, "main", "prod"), w.ids(t, "offsite", "prod")
				if !slices.Equal(here, there) {
					t.Errorf("%s, restart %v: main has %q, offsite %q", name, restart, here, there)
				}
				got := s.status(t, "prod")
				if got.State != scheduler.Idle || counted(got, scheduler.JobCopy, scheduler.Succeeded) != 1 {
					t.Errorf("%s, restart %v: status %+v", name, restart, got)
				}
			})
		}
	}
}

// A repository that lacks backups gets the next one after them, so that a service that starts before they are copied finds
// out. If they cannot be copied, the repository gets new backups all the same.
func TestServiceCopiesMissedBackupsBeforeNewOnes(t *testing.T) {
	for _, restart := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			on := &atomic.Bool{}
			defer w.recover(on)
			c := configOf(anywhere(t, "15 */6 * * *", "offsite", "main"))
			copied := func(ctx context.Context, r scheduler.CopyRequest, report storage.Report) (copying.Result, error) {
				return copying.Result{}, errTest
			}
			prepare := func(s *scheduler.Service) {
				w.opening(troubles["fails at once"], on)(s)
				s.Copy = copied
			}
			s := w.start("a", c, prepare)
			w.pass(5 * time.Hour)
			on.Store(true)
			w.pass(at(1, "0h14m58s") - at(0, "5h"))
			on.Store(false)
			w.pass(12 * time.Second)
			if len(w.ids(t, "main", "prod")) != 6 {
				t.Fatalf("main has %q", w.ids(t, "main", "prod"))
			}
			if restart {
				s.end()
				copied = scheduler.Copy
				w.start("b", c, prepare)
				w.pass(40 * time.Minute)
				here, there := w.ids(t, "main", "prod"), w.ids(t, "offsite", "prod")
				if !slices.Equal(here, there) {
					t.Errorf("main has %q, offsite %q", here, there)
				}
				return
			}
			w.pass(6 * time.Hour)
			here, there := w.ids(t, "main", "prod"), w.ids(t, "offsite", "prod")
			if here[0] != there[0] {
				t.Errorf("without copies, main has %q, offsite %q", here, there)
			}
		})
	}
}

// Two repositories that fail in turns each have a backup that the other lacks. Both get it, although one of them has the newest.
func TestRepositoriesThatFailInTurns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		fails := map[string]*atomic.Bool{"main": {}, "offsite": {}}
		w.start("a", configOf(anywhere(t, "15 */6 * * *", "offsite", "main")), func(s *scheduler.Service) {
			s.Copy = scheduler.Copy
			s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
				b, err := w.open(ctx, r)
				return slowStore{Bucket: b, err: errTest, on: fails[r.Name]}, err
			}
		})
		w.pass(at(0, "6h14m58s"))
		fails["offsite"].Store(true)
		w.pass(10 * time.Second)
		fails["offsite"].Store(false)
		fails["main"].Store(true)
		w.pass(6 * time.Hour)
		fails["main"].Store(false)
		w.pass(40 * time.Minute)
		here, there := w.ids(t, "main", "prod"), w.ids(t, "offsite", "prod")
		if len(here) != 5 || !slices.Equal(here, there) {
			t.Errorf("main has %q, offsite %q", here, there)
		}
	})
}

// A repository that missed backups gets one that the service does not take: by hand, or as the base of a log. It has the newest backup
// then, and gets the missed ones all the same, from a service that started before or after that.
func TestServiceCopiesWhatANewerBackupHides(t *testing.T) {
	for _, startsBefore := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			on := &atomic.Bool{}
			defer w.recover(on)
			c := configOf(anywhere(t, "15 */6 * * *", "offsite", "main"))
			prepare := func(s *scheduler.Service) {
				w.opening(troubles["fails at once"], on)(s)
				s.Copy = scheduler.Copy
			}
			s := w.start("a", c, prepare)
			w.pass(5 * time.Hour)
			on.Store(true)
			w.pass(18 * time.Hour)
			s.end()
			if startsBefore {
				w.start("b", c, prepare)
				w.pass(time.Minute)
			}
			byHand, err := repository.Open(w.stores["offsite"], "prod")
			if err != nil {
				t.Fatal(err)
			}
			_, err = create(t.Context(), byHand, time.Now(), 1000, 1000, nil)
			if err != nil {
				t.Fatal(err)
			}
			on.Store(false)
			if !startsBefore {
				w.start("b", c, prepare)
			}
			w.pass(40 * time.Minute)
			here, there := w.ids(t, "main", "prod"), w.ids(t, "offsite", "prod")
			if len(here) != 6 || !slices.Equal(here, there) {
				t.Errorf("starts before: %v: main has %q, offsite %q", startsBefore, here, there)
			}
		})
	}
}

// A backup that a repository had and has deleted is not copied to it again by a service that starts.
func TestServiceCopiesNothingThatWasDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(anywhere(t, "15 */6 * * *", "offsite", "main"))
		copies := func(s *scheduler.Service) { s.Copy = scheduler.Copy }
		s := w.start("a", c, copies)
		w.pass(13 * time.Hour)
		s.end()
		offsite, err := repository.Open(w.stores["offsite"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		before := w.ids(t, "offsite", "prod")
		err = offsite.Delete(t.Context(), catalog.Tombstone{Backup: before[1], Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		s = w.start("b", c, copies)
		w.pass(time.Hour)
		got := w.ids(t, "offsite", "prod")
		if slices.Contains(got, before[1]) || counted(s.status(t, "prod"), scheduler.JobCopy, scheduler.Succeeded) > 0 {
			t.Errorf("offsite had %q, and has %q", before, got)
		}
	})
}

// A backup that is damaged in every repository that has it cannot be copied. The others are, once, and the damage is reported.
func TestServiceCopiesAroundADamagedBackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		on := &atomic.Bool{}
		defer w.recover(on)
		s := w.start("a", configOf(anywhere(t, "15 */6 * * *", "offsite", "main")), func(s *scheduler.Service) {
			w.opening(troubles["fails at once"], on)(s)
			s.Copy = scheduler.Copy
		})
		w.pass(5 * time.Hour)
		on.Store(true)
		w.pass(9 * time.Hour)
		missed := w.ids(t, "main", "prod")
		stored.Put(t, w.stores["main"], "prod/backups/"+string(missed[1])+"/manifest.json", []byte("damaged"))
		on.Store(false)
		w.pass(5 * time.Hour)
		got := s.status(t, "prod")
		copies := counted(got, scheduler.JobCopy, scheduler.Failed) + counted(got, scheduler.JobCopy, scheduler.Succeeded)
		there := w.ids(t, "offsite", "prod")
		if !slices.Contains(there, missed[0]) || copies != 1 {
			t.Errorf("%d copies; main has %q, offsite %q", copies, w.ids(t, "main", "prod"), there)
		}
		s.wantOutcome(t, "prod", scheduler.JobCopy, scheduler.Failed, "it lacks backups that main has", "1 objects were not copied")
	})
}

// A repository that trusts only its own key gets new backups even if it missed some: it does not trust copies.
func TestRepositoryWithItsOwnKeyIsNotLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		on := &atomic.Bool{}
		defer w.recover(on)
		settings := anywhere(t, "15 */6 * * *", "offsite", "main")
		own := records.Policy{Key: newKey(t)}
		settings.Repositories[0].Policy = own
		w.start("a", configOf(settings), func(s *scheduler.Service) {
			w.opening(troubles["fails at once"], on)(s)
			s.Copy = scheduler.Copy
		})
		w.pass(5 * time.Hour)
		on.Store(true)
		w.pass(at(1, "0h14m58s") - at(0, "5h"))
		on.Store(false)
		w.pass(30 * time.Minute)
		c, err := repository.OpenWith(w.stores["offsite"], "prod", own)
		if err != nil {
			t.Fatal(err)
		}
		trusted, err := c.Load(t.Context(), backups.LoadOptions{})
		if err != nil || len(trusted.Backups) != 3 || trusted.Backups[0].ID != w.ids(t, "main", "prod")[0] {
			t.Errorf("error %v, %d backups, main has %q", err, len(trusted.Backups), w.ids(t, "main", "prod"))
		}
	})
}

// A backup that only some repositories took is copied to the others, and until then a condition reports it.
func TestServiceReportsMissedBackups(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		broken := &atomic.Bool{}
		broken.Store(true)
		s := w.start("a", configOf(anywhere(t, "@daily", "main", "offsite")), func(s *scheduler.Service) {
			s.Backup = func(ctx context.Context, asked scheduler.BackupRequest, _ storage.Report) (backup.Result, error) {
				others := asked.To[1:]
				asked.To = asked.To[:1]
				r, err := w.backup(ctx, "a", asked)
				for _, left := range others {
					r.Stores = append(r.Stores, backup.Outcome{Repository: left.Repository, Err: errTest})
				}
				return r, err
			}
			s.Copy = func(ctx context.Context, r scheduler.CopyRequest, report storage.Report) (copying.Result, error) {
				if broken.Load() {
					return copying.Result{}, errTest
				}
				return scheduler.Copy(ctx, r, report)
			}
		})
		w.pass(30 * time.Minute)
		reported := func() bool {
			for _, c := range s.status(t, "prod").Conditions {
				if c.Name == "BackupMissing" || c.Name == "NoBackup" {
					return c.Repository == "offsite" && c.Severity == "warning"
				}
			}
			return false
		}
		if !reported() {
			t.Errorf("nothing is said of the backup that offsite lacks: %v", s.status(t, "prod").Conditions)
		}
		broken.Store(false)
		w.pass(30 * time.Minute)
		if reported() || len(w.ids(t, "offsite", "prod")) != 1 {
			t.Errorf("offsite has %q; conditions %v", w.ids(t, "offsite", "prod"), s.status(t, "prod").Conditions)
		}
	})
}

// After the newest backup was deleted another one is due, without a restart.
func TestDeletedBackupCountsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "30 2 * * *", "main")
		spec.Observe = 10 * time.Minute
		w.start("a", configOf(spec))
		w.pass(at(0, "4h"))
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		newest := w.ids(t, "main", "prod")[0]
		err = w.stores["main"].Delete(t.Context(), "prod/backups/"+string(newest)+"/manifest.json", storage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = c
		w.pass(20 * time.Minute)
		ids := w.ids(t, "main", "prod")
		if len(ids) != 2 || ids[0] == newest {
			t.Errorf("20 minutes later there are %q", ids)
		}
	})
}
