package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// later returns a changed fixedBackup that is an hour or more newer.
func later(hours int, change func(b *catalog.Backup)) catalog.Backup {
	return changed(fixedBackup(), func(b *catalog.Backup) {
		b.Started, b.Finished = b.Started.Add(time.Duration(hours)*time.Hour), b.Finished.Add(time.Duration(hours)*time.Hour)
		b.ID = catalog.NewID(b.Started, b.Revision)
		change(b)
	})
}

func notEncrypted(b *catalog.Backup) {
	b.Seal, b.Stored.Name = seal.Seal{Compression: "zstd"}, "snapshot.db.zst"
}

func noChange(*catalog.Backup) {}

// An attacker who may write to the repository can store a newer backup there. The plan notes each property in which it differs
// from the backups before it.
func TestPlanNotesDoubtfulOrigin(t *testing.T) {
	otherCluster := func(b *catalog.Backup) { b.ClusterID = "f00d" }
	for name, test := range map[string]struct {
		backups []catalog.Backup // newest first
		signed  bool
		notes   []string // prefixes
	}{
		"signed, like those before": {[]catalog.Backup{later(1, noChange), fixedBackup()}, true, nil},
		"unsigned":                  {[]catalog.Backup{later(1, noChange), fixedBackup()}, false, []string{"unsigned: --trust was not given"}},
		"another cluster": {[]catalog.Backup{later(1, otherCluster), fixedBackup()}, true,
			[]string{"another cluster: this backup is of cluster id f00d"}},
		"two of another cluster": {[]catalog.Backup{later(2, otherCluster), later(1, otherCluster), fixedBackup()}, true,
			[]string{"another cluster: this backup is of cluster id f00d, backup " + string(fixedBackup().ID)}},
		"not encrypted any more": {[]catalog.Backup{later(1, notEncrypted), fixedBackup()}, true,
			[]string{"another encryption: this backup is not encrypted"}},
		"other recipients": {[]catalog.Backup{later(1, func(b *catalog.Backup) { b.Seal.Recipients = []string{"age1other"} }), fixedBackup()}, true,
			[]string{"another encryption: this backup is encrypted for age1other"}},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := catalogOf(test.backups...)
			catalog.Signed = test.signed
			p, err := plan.New(catalog, plan.Target{}, plan.Layout{Token: "t"}, now)
			if err != nil {
				t.Fatal(err)
			}
			doubts := slices.DeleteFunc(slices.Clone(p.Notes), func(n string) bool {
				return !strings.HasPrefix(n, "unsigned") && !strings.HasPrefix(n, "another ")
			})
			matches := slices.EqualFunc(doubts, test.notes, strings.HasPrefix)
			if !matches {
				t.Errorf("doubts %q, want %q", doubts, test.notes)
			}
		})
	}
}

// With a key at hand a backup that is not encrypted is taken only if it is asked for.
func TestPlainBackupIsRefusedWithAKey(t *testing.T) {
	plain, sealed := later(1, notEncrypted), fixedBackup()
	cat := catalogOf(plain, sealed)
	planned := func(target plan.Target) (catalog.ID, error) {
		p, err := plan.New(cat, target, plan.Layout{Token: "t"}, now)
		if err != nil {
			return "", err
		}
		return p.Backup.ID, nil
	}
	for name, target := range map[string]plan.Target{
		"latest": {Plain: plan.PlainRefused}, "by its name": {Plain: plan.PlainRefused, Backup: plain.ID},
	} {
		_, err := planned(target)
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), string(plain.ID)) || !strings.Contains(err.Error(), "--allow-plain") {
			t.Errorf("%s: error %v, want a refusal that names %s and the flag", name, err, plain.ID)
		}
	}
	for p, want := range map[plan.Plain]catalog.ID{plan.PlainTaken: plain.ID, plan.PlainSkipped: sealed.ID} {
		got, err := planned(plan.Target{Plain: p})
		if got != want || err != nil {
			t.Errorf("%v: backup %s, %v, want %s", p, got, err, want)
		}
	}
	_, err := planned(plan.Target{Plain: plan.PlainRefused, Backup: sealed.ID})
	if err != nil {
		t.Errorf("the encrypted backup: %v", err)
	}
}

// A plan that was made without a key is held against the key when it runs.
func TestPlainSegmentsAreRefusedWithAKey(t *testing.T) {
	base := backupAt(started, 30)
	base.Seal = fixedBackup().Seal
	log := evenLog(lineageNumber(0), started, 4)
	cat := catalogOf(base)
	cat.Lineages = []catalog.Lineage{log}
	p, err := plan.New(cat, plan.Target{}, plan.Layout{Token: "t"}, now)
	if err != nil || p.Log == nil {
		t.Fatalf("log %v, %v", p.Log, err)
	}
	err = p.RefusePlain()
	if !errors.Is(err, fault.Refused) {
		t.Errorf("the log of plan %+v is plain, and the error is %v", p.Log, err)
	}
	_, err = plan.New(cat, plan.Target{Plain: plan.PlainRefused}, plan.Layout{Token: "t"}, now)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "segments of lineage") {
		t.Errorf("error %v, want a refusal that names the log", err)
	}
	p, err = plan.New(cat, plan.Target{Plain: plan.PlainSkipped}, plan.Layout{Token: "t"}, now)
	if err != nil || p.Log != nil || p.Backup.ID != base.ID {
		t.Errorf("without the plain segments: %+v, %v, want the backup alone", p.Log, err)
	}
}
