package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

func (a *app) status() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen how all clusters stand, the worst first",
		Long: `status reads the repositories, and nothing else: of each cluster the age of its last good backup, against its schedule if
--config names it, its recovery window and the gaps in its log. The exit code is 3 if a cluster has no good backup, if one
is late or damaged, or if no backup has come after a gap.`,
		Example: `  dr status --config /etc/etcd-dr/dr.yaml
  dr status --repo s3://bucket/prefix`,
		Args: noArgs,
	}
	a.configFlag(cmd, &path)
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("repo") {
			if cmd.Flags().Changed("config") {
				return usagef("--config or --repo, not both")
			}
			path = ""
		}
		lookups, err := a.lookups(cmd.Context(), path)
		if err != nil {
			return err
		}
		doc := document.NewStatus(lookAll(cmd.Context(), lookups, time.Now()))
		if a.output == "json" {
			err = a.document(doc)
		} else {
			a.printStatus(doc, time.Now())
		}
		if err == nil && doc.Wanting > 0 {
			err = fmt.Errorf("%d of %d are %w", doc.Wanting, len(doc.Clusters), errWanting)
		}
		return err
	}
	return cmd
}

// lookup is one cluster in one repository.
type lookup struct {
	spec       scheduler.Spec // the zero one but for its cluster where there is no configuration
	repository string
	open       func(ctx context.Context) (*repository.Cluster, error)
}

func (a *app) lookups(ctx context.Context, path string) (all []lookup, err error) {
	if path != "" {
		return a.lookupsOf(path)
	}
	clusters, err := a.clusters(ctx)
	for _, c := range clusters {
		open := func(context.Context) (*repository.Cluster, error) { return c, nil }
		all = append(all, lookup{scheduler.Spec{Cluster: c.Name()}, stores.Shown(a.repo), open})
	}
	return all, err
}

func (a *app) lookupsOf(path string) (all []lookup, err error) {
	c, err := a.readConfig(path)
	if err != nil {
		return nil, err
	}
	for _, spec := range c.Specs {
		if a.cluster != "" && a.cluster != spec.Cluster {
			continue
		}
		for _, r := range spec.Repositories {
			all = append(all, lookup{spec, r.Name, func(ctx context.Context) (*repository.Cluster, error) {
				bucket, err := stores.Open(ctx, r.URL, stores.Options{Parallel: r.Parallel})
				if err != nil {
					return nil, err
				}
				return repository.OpenWith(bucket, spec.Cluster, r.Policy)
			}})
		}
	}
	if len(all) == 0 {
		return nil, usagef("--cluster %s is not in %s", a.cluster, path)
	}
	return all, nil
}

// lookupsAtOnce bounds connections and memory.
const lookupsAtOnce = 8

// lookAll reads everything. What cannot be read is a finding, not the end.
func lookAll(ctx context.Context, lookups []lookup, now time.Time) []document.ClusterStatus {
	all := make([]document.ClusterStatus, len(lookups))
	var group errgroup.Group
	group.SetLimit(lookupsAtOnce)
	for i, l := range lookups {
		group.Go(func() error {
			all[i] = l.look(ctx, now)
			return nil
		})
	}
	_ = group.Wait() // none of them gives an error
	return all
}

func (l lookup) look(ctx context.Context, now time.Time) document.ClusterStatus {
	c, err := l.open(ctx)
	var catalog repository.Catalog
	if err == nil {
		catalog, err = c.Load(ctx, repository.LoadOptions{Proofs: true, Log: true})
	}
	if err != nil {
		return document.NewUnreadable(l.spec.Cluster, l.repository, err)
	}
	if word, err := c.Suspension(ctx); err == nil && word.Suspended { // what cannot be believed counts for nothing
		l.spec.Suspend = true
	}
	return document.NewClusterStatus(l.repository, catalog, l.spec, now)
}

func (a *app) printStatus(doc document.Status, now time.Time) {
	var rows [][]string
	for _, c := range doc.Clusters {
		verdict := string(c.Verdict)
		if c.Verdict.Wanting() {
			verdict = strings.ToUpper(verdict)
		}
		last, proven, due, window := "-", "-", "-", "-"
		if c.Last != nil {
			last = age(c.Last.Started, now)
			proven = fmt.Sprintf("%s, %s", c.Last.Proven, age(c.Last.ProvenAt, now))
		}
		if !c.Due.IsZero() {
			due = inZone(c.Due, "UTC")
		}
		if c.Window != nil {
			window = fmt.Sprintf("%s to %s", moment(c.Window.From.Time), moment(c.Window.To.Time))
		}
		rows = append(rows, []string{c.Cluster, c.Repository, verdict, last, due, proven, fmt.Sprint(c.Backups), size(c.Bytes), window,
			fmt.Sprint(len(c.Gaps))})
		if c.Message != "" {
			rows = append(rows, []string{"", "", "→ " + c.Message})
		}
	}
	a.table([]string{"CLUSTER", "REPOSITORY", "VERDICT", "LAST GOOD", "NEXT DUE", "PROVEN", "BACKUPS", "STORED", "WINDOW", "GAPS"}, rows)
}
