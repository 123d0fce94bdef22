package jobs_test

import (
	"context"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// naming is an error whose remedy names a flag.
type naming struct{}

func (naming) Error() string { return "pass --flag" }

func (naming) Unwrap() error { return stored.ErrTest }

// naive returns a service whose jobs name a flag in all their texts.
func naive() *scheduler.Service {
	say := func(report storage.Report) { report.Say(storage.Event{Message: "pass --flag"}) }
	return &scheduler.Service{
		Backup: func(_ context.Context, _ scheduler.BackupRequest, report storage.Report) (backup.Result, error) {
			say(report)
			return backup.Result{}, naming{}
		},
		Prune: func(_ context.Context, _ spec.Spec, _ backup.Store, report storage.Report) error {
			say(report)
			return naming{}
		},
		Copy: func(_ context.Context, _ scheduler.CopyRequest, report storage.Report) (copying.Result, error) {
			say(report)
			return copying.Result{}, naming{}
		},
		Drill: func(_ context.Context, _ scheduler.DrillRequest, report storage.Report) ([]catalog.Proof, error) {
			say(report)
			return []catalog.Proof{{Finding: "pass --flag"}}, naming{}
		},
		Revision: func(context.Context, spec.Spec) (int64, error) { return 0, naming{} },
		Check: func(context.Context, spec.Spec) []check.Line {
			return []check.Line{{Seen: "--flag is missing", Cure: "pass --flag"}}
		},
		Archive: func(_ context.Context, c archive.Config, _ *repository.Cluster) error {
			say(c.Report)
			c.Observe(archive.Status{Problem: "pass --flag"})
			return naming{}
		},
	}
}

// TestRename runs each job of a service, all of whose texts name a flag.
func TestRename(t *testing.T) {
	var texts []string
	hear := func(e storage.Event) { texts = append(texts, e.Message) }
	failed := func(err error) {
		stored.WantError(t, "the cause", err, stored.ErrTest)
		texts = append(texts, err.Error())
	}
	s := naive()
	jobs.Rename(s, strings.NewReplacer("--flag", "the.key"))
	_, err := s.Backup(t.Context(), scheduler.BackupRequest{}, hear)
	failed(err)
	failed(s.Prune(t.Context(), spec.Spec{}, backup.Store{}, hear))
	_, err = s.Copy(t.Context(), scheduler.CopyRequest{}, hear)
	failed(err)
	proofs, err := s.Drill(t.Context(), scheduler.DrillRequest{}, hear)
	failed(err)
	_, err = s.Revision(t.Context(), spec.Spec{})
	failed(err)
	lines := s.Check(t.Context(), spec.Spec{})
	failed(s.Archive(t.Context(), archive.Config{Report: hear, Observe: func(a archive.Status) { texts = append(texts, a.Problem) }}, nil))
	texts = append(texts, proofs[0].Finding, lines[0].Seen, lines[0].Cure)
	for _, text := range texts {
		if !strings.Contains(text, "the.key") {
			t.Errorf("the text is %q", text)
		}
	}
	if len(texts) != 15 {
		t.Errorf("%d texts, want 15: %q", len(texts), texts)
	}
}
