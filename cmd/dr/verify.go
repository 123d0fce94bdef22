package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func (a *app) verify() *cobra.Command {
	var keys keyFlags
	var plain plainFlags
	var all bool
	var level, dir string
	cmd := &cobra.Command{
		Use:   "verify [ID|latest]",
		Short: "Prove a backup, and store the result",
		Long: `verify proves the newest backup, the given one, or all, up to one of these levels:
  stored   the manifest is intact and the object exists with its size
  hashed   all bytes were read, and their digests match
  opened   the database was opened, every page checked, and HashKV compared with the member's
  booted   an etcd server started on the restored data and reported the same HashKV
Each verify appends a proof to the backup; dr list shows the best one. The exit code is 3 if a backup fails.`,
		Args: atMostOne("backup"),
	}
	cmd.Flags().BoolVar(&all, "all", false, "verify every backup of the cluster")
	cmd.Flags().StringVar(&level, "level", "opened", "stored, hashed, opened or booted")
	cmd.Flags().StringVar(&dir, "scratch-dir", "", "directory for the copy of opened and booted (default: the system's temporary directory)")
	keys.add(cmd, a.getenv)
	plain.add(cmd)
	a.readFlags(cmd)
	a.store.signFlags(cmd, a.getenv)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		parsed, err := catalog.ParseLevel(level)
		if err != nil {
			return usagef("--level: %w", err)
		}
		if all && len(args) > 0 {
			return usagef("--all with a backup: use one of them")
		}
		loaded, err := keys.load()
		if err != nil {
			return err
		}
		backups, findings, err := a.toVerify(cmd, c, args, all)
		if err != nil {
			return err
		}
		backups, refused := plain.take(backups, keys)
		findings = errors.Join(findings, refused)
		if len(backups) == 0 {
			return cmp.Or(findings, error(errAllPlain))
		}
		source, err := a.source(a.cluster, loaded)
		if err != nil {
			return err
		}
		a.warnUnsigned()
		report, done := a.progress()
		request := verify.Request{Cluster: c, Keys: loaded, Level: parsed, Dir: dir, By: author(), Source: source}
		doc := document.Verify{Proofs: []catalog.Proof{}}
		for _, b := range backups {
			request.Backup = b
			proof, err := verify.Run(cmd.Context(), request, report)
			doc.Proofs = append(doc.Proofs, proof)
			findings = errors.Join(findings, err)
			if cmd.Context().Err() != nil {
				break
			}
		}
		done()
		return errors.Join(a.printVerify(doc), findings)
	}
	return cmd
}

// warnUnsigned warns of unsigned proofs: with --trust readers ignore them.
func (a *app) warnUnsigned() {
	if len(a.store.trust) > 0 && a.store.signKey == "" {
		a.warnf("WARNING: no --sign-key: the proofs are not signed, and dr with --trust ignores them")
	}
}

// toVerify returns the backups to verify. With all, unusable joins the errors of objects that are damaged or not trusted, and so cannot
// be verified.
func (a *app) toVerify(cmd *cobra.Command, c *repository.Cluster, args []string, all bool) (_ []catalog.Backup, unusable, err error) {
	if !all {
		b, err := a.find(cmd, c, args)
		return []catalog.Backup{b}, nil, err
	}
	cat, err := c.Load(cmd.Context(), backups.LoadOptions{Imported: true})
	if err != nil {
		return nil, nil, err
	}
	_, err = cat.Latest()
	if errors.Is(err, catalog.ErrNotFound) && len(cat.Imported) == 0 {
		return nil, nil, err
	}
	for _, d := range slices.Concat(cat.Damaged, cat.Untrusted, cat.Ignored) {
		unusable = errors.Join(unusable, d.Err)
	}
	return cat.All(), unusable, nil
}

func (a *app) printVerify(doc document.Verify) error {
	if a.output == "json" {
		return a.json(document.Line{Result: doc})
	}
	var rows [][]string
	for _, p := range doc.Proofs {
		rows = append(rows, []string{string(p.Backup), string(p.Level), string(p.Verdict), seconds(p.Seconds), verifyText(p)})
	}
	a.table([]string{"BACKUP", "LEVEL", "VERDICT", "TOOK", "FINDING"}, rows)
	return nil
}

func verifyText(p catalog.Proof) string {
	if p.Verdict == catalog.Passed && p.HashKV != "" {
		return fmt.Sprintf("%s, %d keys", p.HashKV, p.Keys)
	}
	return p.Finding
}

// author returns the host and version of this dr, for the field By of documents.
func author() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return host + ", dr " + version()
}
