package jobs

import (
	"context"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Rename replaces names in the errors, reports and checks of s's jobs. The jobs share the functions of the command's verbs, whose remedies
// name flags; the settings of a service have other names. All of s's functions that do jobs must be set.
func Rename(s *scheduler.Service, names *strings.Replacer) {
	r := renaming{names, &scheduler.Service{
		Backup: s.Backup, Prune: s.Prune, Copy: s.Copy, Drill: s.Drill, Revision: s.Revision, Check: s.Check, Archive: s.Archive,
	}}
	s.Backup, s.Prune, s.Copy, s.Drill = r.backup, r.prune, r.copy, r.drill
	s.Revision, s.Check, s.Archive = r.revision, r.check, r.archive
}

// RenameLines returns a copy of lines with other names.
func RenameLines(lines []check.Line, names *strings.Replacer) []check.Line {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Seen, lines[i].Cure = names.Replace(lines[i].Seen), names.Replace(lines[i].Cure)
	}
	return lines
}

// renaming does the jobs of a service, and replaces names in their texts.
type renaming struct {
	*strings.Replacer
	jobs *scheduler.Service
}

func (r renaming) backup(ctx context.Context, request scheduler.BackupRequest, report storage.Report) (backup.Result, error) {
	result, err := r.jobs.Backup(ctx, request, r.report(report))
	return result, r.err(err)
}

func (r renaming) prune(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) error {
	return r.err(r.jobs.Prune(ctx, s, in, r.report(report)))
}

func (r renaming) copy(ctx context.Context, request scheduler.CopyRequest, report storage.Report) (copying.Result, error) {
	result, err := r.jobs.Copy(ctx, request, r.report(report))
	return result, r.err(err)
}

func (r renaming) drill(ctx context.Context, request scheduler.DrillRequest, report storage.Report) ([]catalog.Proof, error) {
	proofs, err := r.jobs.Drill(ctx, request, r.report(report))
	proofs = slices.Clone(proofs)
	for i := range proofs {
		proofs[i].Finding = r.Replace(proofs[i].Finding)
	}
	return proofs, r.err(err)
}

func (r renaming) revision(ctx context.Context, s spec.Spec) (int64, error) {
	revision, err := r.jobs.Revision(ctx, s)
	return revision, r.err(err)
}

func (r renaming) check(ctx context.Context, s spec.Spec) []check.Line {
	return RenameLines(r.jobs.Check(ctx, s), r.Replacer)
}

func (r renaming) archive(ctx context.Context, c archive.Config, to *repository.Cluster) error {
	observe := c.Observe
	c.Report = r.report(c.Report)
	c.Observe = func(s archive.Status) {
		s.Problem = r.Replace(s.Problem)
		observe(s)
	}
	return r.err(r.jobs.Archive(ctx, c, to))
}

func (r renaming) report(to storage.Report) storage.Report {
	return func(e storage.Event) {
		e.Message = r.Replace(e.Message)
		to.Say(e)
	}
}

func (r renaming) err(err error) error {
	if err == nil {
		return nil
	}
	return renamed{err, r.Replace(err.Error())}
}

// renamed is an error with other names in its text.
type renamed struct {
	error
	text string
}

func (e renamed) Error() string { return e.text }

func (e renamed) Unwrap() error { return e.error }
