package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// printPlan prints p. into describes where the data will be.
func (a *app) printPlan(p plan.Plan, into string) error {
	if a.output == "json" {
		return a.document(document.Plan(p))
	}
	a.printf("plan %s\n", p.ID)
	a.facts(planFacts(p, into)...)
	return nil
}

// planFacts returns names and values of the lines about p.
func planFacts(p plan.Plan, into string) []string {
	pairs := []string{"restores", planSource(p)}
	if p.Backup != nil && p.Backup.EtcdVersion != "" {
		pairs = append(pairs, "etcd", p.Backup.EtcdVersion)
	}
	pairs = append(pairs, planLog(p)...)
	pairs = append(pairs, planSalvage(p)...)
	pairs = append(pairs, "members", p.InitialCluster(), "token", p.Token, "revisions", p.Bump.String(), "into", into)
	if p.Estimate > 0 {
		pairs = append(pairs, "takes about", seconds(p.Estimate))
	}
	for _, note := range p.Notes {
		pairs = append(pairs, "note", note)
	}
	return pairs
}

// withPlan holds the flags of dr restore that may be passed with --plan: the place of the data, the access to the repository and to
// encrypted data, and the form of the output. The plan contains the values of all others.
var withPlan = []string{
	"plan", "dry-run", "output-dir", "name", "data-dir", "wal-dir", "replace",
	"repo", "credentials", "trust", "as-of", "limit", "parallel", "identity", "passphrase-file", "allow-plain",
	"output", "write-out",
}

// checkWithPlan refuses the flags and arguments that would change the plan of --plan. more are flags that may be passed with it too.
func checkWithPlan(cmd *cobra.Command, args []string, more ...[]string) error {
	accepted := slices.Concat(append(more, withPlan)...)
	other := given(cmd, func(name string) bool { return !slices.Contains(accepted, name) })
	if len(other) > 0 {
		return usagef("--plan already sets %s: leave it out, or make another plan", strings.Join(other, ", "))
	}
	if len(args) > 0 {
		return usagef("--plan already sets the backup: leave %s out", args[0])
	}
	return nil
}

// readPlan reads the plan of --plan, and places it where the flags name. Flags that would change the plan itself are refused.
func (a *app) readPlan(cmd *cobra.Command, f *restoreFlags, args []string) (plan.Plan, error) {
	err := checkWithPlan(cmd, args)
	if err != nil {
		return plan.Plan{}, err
	}
	planned, err := a.decodePlan(f.planIn)
	if err != nil || f.layout.Into == (plan.Into{}) {
		return planned, err
	}
	return planned.Place(f.layout.Into)
}

// decodePlan reads the plan of --plan.
func (a *app) decodePlan(path string) (plan.Plan, error) {
	data, err := a.readFileOrStdin(path)
	if err != nil {
		return plan.Plan{}, usagef("--plan: %w", err)
	}
	planned, err := plan.Decode(data)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("--plan %s: %w", path, err)
	}
	return planned, nil
}

func (a *app) readFileOrStdin(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(a.stdin)
	}
	return os.ReadFile(path)
}

func (a *app) writePlan(p plan.Plan, path string) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	err = os.WriteFile(path, data, 0o600)
	if err != nil {
		return usagef("--plan-out: %w", err)
	}
	a.printf("plan %s written to %s: on each host run dr restore --plan %s --name NAME --data-dir DIR\n", p.ID, path, filepath.Base(path))
	return nil
}

func planSource(p plan.Plan) string {
	if p.Salvage != nil && p.Salvage.Database != nil {
		d := p.Salvage.Database
		return fmt.Sprintf("database %s: position %d, revision %d, %s", d.File, d.Index, d.Revision, size(d.Size))
	}
	if p.Backup == nil {
		return p.File
	}
	b := p.Backup
	return fmt.Sprintf("backup %s of cluster %s: revision %d, %s", b.ID, p.Cluster, b.Revision, size(b.Plain.Size))
}

// planLog returns names and values of the lines about the log that is replayed and the resulting state.
func planLog(p plan.Plan) []string {
	if p.Log == nil {
		return nil
	}
	l, r := p.Log, p.Reach
	replays := fmt.Sprintf("%d segments of lineage %s, %s, with %s requests; those that the backup contains are skipped",
		l.Segments, l.Lineage, size(l.Bytes), humanize.Comma(int64(l.Requests)))
	end := "their end"
	switch {
	case l.Revision > 0:
		end = fmt.Sprintf("revision %d", l.Revision)
	case l.Position > 0 && r.Revision > 0:
		end = fmt.Sprintf("position %d, revision %d", l.Position, r.Revision)
	case l.Position > 0:
		end = fmt.Sprintf("position %d", l.Position)
	}
	pairs := []string{"replays", replays, "up to", end}
	if !r.NotBefore.IsZero() {
		pairs = append(pairs, "includes", "every write acknowledged by "+moment(r.NotBefore))
	}
	if !r.NotAfter.IsZero() {
		pairs = append(pairs, "excludes", "every write after "+moment(r.NotAfter))
	}
	return pairs
}

// moment returns t in UTC, to the millisecond.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func planInto(p plan.Plan) string {
	switch {
	case p.Into.OutputDir != "":
		return p.Into.OutputDir + ", one directory per member; it must be empty or missing"
	case p.Into.DataDir != "":
		if p.Into.WALDir != "" {
			return fmt.Sprintf("%s, member %s, its log into %s; both must be empty or missing", p.Into.DataDir, p.Into.Name, p.Into.WALDir)
		}
		return fmt.Sprintf("%s, member %s; it must be empty or missing", p.Into.DataDir, p.Into.Name)
	}
	return "not set: use --output-dir, or --name and --data-dir"
}

func replayedWords(r *restore.Replayed) string {
	if r == nil {
		return ""
	}
	words := fmt.Sprintf("%s requests replayed, revision %d to %d: %s", humanize.Comma(int64(r.Requests)), r.From, r.To, r.Proven)
	if r.Unseen != "" {
		words += "; " + r.Unseen
	}
	if r.GuessedLeases > 0 {
		words += fmt.Sprintf("; the time to live of %s leases was unknown", humanize.Comma(int64(r.GuessedLeases)))
	}
	return words
}
