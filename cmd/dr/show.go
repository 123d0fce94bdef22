package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func (a *app) show() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [ID|latest]",
		Short: "Show one backup: its origin, content and proofs",
		Args:  atMostOne("backup"),
	}
	a.readFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		b, err := a.find(cmd, c, args)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.document(document.NewBackup(b))
		}
		a.printShow(b)
		return nil
	}
	return cmd
}

// find returns the backup that the argument names, with its proofs.
func (a *app) find(cmd *cobra.Command, c *repository.Cluster, args []string) (catalog.Backup, error) {
	id, err := parseID(args)
	if err != nil {
		return catalog.Backup{}, err
	}
	cat, err := c.Load(cmd.Context(), backups.LoadOptions{Only: id, Proofs: true})
	if err != nil {
		return catalog.Backup{}, err
	}
	a.warnUntrusted(cat)
	if id == "" {
		return cat.Latest()
	}
	return cat.Find(id)
}

func (a *app) printShow(b catalog.Backup) {
	now := time.Now()
	a.printf("backup %s of cluster %s\n", b.ID, b.Cluster)
	a.facts(
		"taken", takenText(b, now),
		"origin", originText(b.Manifest),
		"written", writtenText(b, now),
		"cluster id", b.ClusterID,
		"member", memberText(b.Manifest),
		"revision", fmt.Sprintf("%d%s", b.Revision, hashText(b.Manifest)),
		"database", fmt.Sprintf("%s, sha256 %s", size(b.Plain.Size), b.Plain.SHA256),
		"stored", fmt.Sprintf("%s, %s, sha256 %s", size(b.Stored.Size), sealText(b), b.Stored.SHA256),
		"holds", strings.Join(contents(b), ", "),
		"marks", strings.Join(notices(b), ", "),
		"diverged", b.Diverged,
		"labels", labelText(b.Labels),
		"proven", provenText(b, now),
		"pinned", strings.Join(pinTexts(b.Pins, now), "; "),
	)
	var rows [][]string
	for _, m := range b.Members {
		rows = append(rows, []string{"  " + m.Name, m.ID, strings.Join(m.PeerURLs, ","), strings.Join(m.ClientURLs, ","), learner(m)})
	}
	a.table([]string{"  MEMBER", "ID", "PEER URLS", "CLIENT URLS", ""}, rows)
	if len(b.Proofs) == 0 {
		return
	}
	rows = nil
	for _, p := range b.Proofs {
		rows = append(rows, []string{"  " + age(p.Time, now), levelText(p), string(p.Verdict), seconds(p.Seconds), p.Key, p.Finding})
	}
	a.table([]string{"  PROOF", "LEVEL", "VERDICT", "TOOK", "KEY", "FINDING"}, rows)
}

func takenText(b catalog.Backup, now time.Time) string {
	if b.Origin != nil {
		return fmt.Sprintf("imported %s (%s)", b.Origin.Imported.Format(time.RFC3339), age(b.Origin.Imported, now))
	}
	return fmt.Sprintf("%s (%s), in %s", b.Started.Format(time.RFC3339), age(b.Started, now), seconds(b.Finished.Sub(b.Started).Seconds()))
}

// writtenText returns when the data of an imported backup was last written, and the source of this time; "" for other backups.
func writtenText(b catalog.Backup, now time.Time) string {
	if b.Origin == nil {
		return ""
	}
	by := "by the times of the files"
	if b.Origin.Given {
		by = "as the operator confirmed"
	}
	return fmt.Sprintf("%s (%s), %s", b.Origin.Written.Format(time.RFC3339), age(b.Origin.Written, now), by)
}

// levelText returns the level of a proof or, for a drill, its target and the time until the restored data was served. An RTO of 0 means
// that it never was.
func levelText(p catalog.Proof) string {
	switch {
	case p.Drill == nil:
		return string(p.Level)
	case p.Drill.RTO == 0:
		return "drill: " + p.Drill.Target
	}
	return fmt.Sprintf("drill: %s, served after %s", p.Drill.Target, seconds(p.Drill.RTO))
}

// contents returns the properties of a backup's data.
func contents(b catalog.Backup) []string {
	var c []string
	if b.Kubernetes {
		c = append(c, "a Kubernetes key space")
	}
	if b.KubernetesEncrypted {
		c = append(c, "values that Kubernetes encrypted (their keys are not in the backup)")
	}
	if b.Auth {
		c = append(c, "users (enabled)")
	}
	return c
}

func labelText(labels catalog.Labels) string {
	var parts []string
	for name, value := range labels {
		parts = append(parts, name+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func learner(m catalog.Member) string {
	if m.Learner {
		return "learner"
	}
	return ""
}
