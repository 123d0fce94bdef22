package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

func (a *app) status() *cobra.Command {
	var path string
	var all, live bool
	cmd := &cobra.Command{
		SuggestFor: []string{"snapshot"}, // etcdctl's and etcdutl's word
		Use:        "status [FILE]",
		Short:      "Show the state of all clusters on one screen, the worst first",
		Long: `status reads the repositories and shows for each cluster the age of its last good backup (compared with its schedule if
--config has it), its proofs, its recovery window and the gaps in its log, and which problems exist and how to solve them. It
reads only the newest backups; --all reads every manifest, and so finds damage in older ones. With --check it also contacts the
clusters of --config.

The exit code is 3 if a condition is critical, if a cluster has no good backup in one of its repositories or a late or damaged
one, or if a repository cannot be read.

With FILE it examines a plain snapshot instead, as etcdutl snapshot status does: it checks every page and the digest at its end,
if any, and prints its content. It does not change the file. The exit code is 3 if it is damaged.`,
		Example: `  dr status --config /etc/etcd-dr/dr.yaml
  dr status --repo s3://bucket/prefix
  dr status snapshot.db`,
		Args: atMostOne("file"),
	}
	a.configFlag(cmd, &path)
	cmd.Flags().BoolVar(&all, "all", false, "read every backup's manifest")
	cmd.Flags().BoolVar(&live, "check", false, "with --config: contact the clusters too")
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return a.inspect(cmd, args[0])
		}
		if cmd.Flags().Changed("repo") {
			if cmd.Flags().Changed("config") || live {
				return usagef("--repo cannot be combined with --config or --check")
			}
			path = ""
		}
		if live && path == "" {
			return usagef("--check needs the clusters' endpoints: pass --config or set DR_CONFIG")
		}
		sources, unread, err := a.statusSources(cmd.Context(), path)
		if err != nil {
			return err
		}
		doc := document.NewStatus(statusReader{all: all, live: live, now: time.Now()}.read(cmd.Context(), sources))
		if a.output == "json" {
			err = a.document(doc)
		} else {
			a.printStatus(doc, path == "", time.Now())
		}
		if err == nil && doc.Attention > 0 {
			err = fmt.Errorf("%w: %d of %d clusters", errAttention, doc.Attention, len(doc.Clusters))
		}
		return cmp.Or(unread, err)
	}
	return cmd
}

// statusSource is one cluster and its repositories.
type statusSource struct {
	spec   spec.Spec // without a configuration only the cluster's name is set
	fault  string    // why the cluster's configuration cannot be used; "": it can
	places []place
}

// place is one repository of a cluster.
type place struct {
	repository string // its name or, without a configuration, its URL
	open       func(ctx context.Context) (*repository.Cluster, error)
}

// statusSources returns the clusters to show: those of the configuration at path or, if path is "", those of the repository.
// --cluster selects one of them. unread is the error of a file that the configuration includes and that cannot be read, so that its
// clusters are not known.
func (a *app) statusSources(ctx context.Context, path string) (all []statusSource, unread, err error) {
	if path != "" {
		return a.configuredSources(path)
	}
	clusters, err := a.clusters(ctx)
	for _, c := range clusters {
		open := func(context.Context) (*repository.Cluster, error) { return c, nil }
		all = append(all, statusSource{spec: spec.Spec{Cluster: c.Name()}, places: []place{{stores.Shown(a.repo), open}}})
	}
	return all, nil, err
}

func (a *app) configuredSources(path string) (all []statusSource, unread, err error) {
	c, err := config.Load(path, a.getenv)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range c.Refused {
		switch {
		case r.Cluster == "":
			unread = cmp.Or(unread, fmt.Errorf("%w: %w", config.ErrConfig, r.Err))
		case a.cluster == "" || a.cluster == r.Cluster:
			all = append(all, statusSource{spec: spec.Spec{Cluster: r.Cluster}, fault: r.Err.Error()})
		}
	}
	for _, spec := range c.Specs {
		if a.cluster != "" && a.cluster != spec.Cluster {
			continue
		}
		s := statusSource{spec: spec}
		for _, r := range spec.Repositories {
			s.places = append(s.places, place{r.Name, func(ctx context.Context) (*repository.Cluster, error) {
				bucket, err := stores.Open(ctx, r.URL, stores.Options{Parallel: r.Parallel, Credentials: r.Credentials})
				if err != nil {
					return nil, err
				}
				return repository.OpenWith(bucket, spec.Cluster, r.Policy)
			}})
		}
		all = append(all, s)
	}
	if len(all) == 0 && unread != nil { // the cluster may be in the file that cannot be read
		return nil, nil, unread
	}
	if len(all) == 0 {
		return nil, nil, usagef("--cluster %s is not in %s: correct the name, or add the cluster there", a.cluster, path)
	}
	return all, unread, nil
}

// maxStatusReads bounds the clusters that are read at a time, and so connections and memory.
const maxStatusReads = 8

// statusReader reads the state of clusters.
type statusReader struct {
	all  bool // all backups, not only the newest
	live bool // also the clusters themselves
	now  time.Time
}

// read returns the state of the cluster of each source. A repository that cannot be read is a finding of its cluster, not an error.
func (r statusReader) read(ctx context.Context, sources []statusSource) []document.ClusterStatus {
	found := make([]document.ClusterStatus, len(sources))
	var group errgroup.Group
	group.SetLimit(maxStatusReads)
	for i, s := range sources {
		group.Go(func() error {
			found[i] = s.read(ctx, r)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return found
}

// read returns the state of one cluster. If its repositories contain several suspensions, the latest counts.
func (s statusSource) read(ctx context.Context, r statusReader) document.ClusterStatus {
	d := document.ClusterStatus{Cluster: s.spec.Cluster, Suspended: s.spec.Suspend, Standings: []condition.Standing{}}
	var latest suspension.Suspension
	for _, p := range s.places {
		standing, stored := s.readStanding(ctx, p, r)
		d.Standings = append(d.Standings, standing)
		if stored.Time.After(latest.Time) {
			latest = stored
		}
	}
	d.Suspended = d.Suspended || latest.Suspended
	facts := s.facts(d.Standings, r.now)
	facts.Agreed.Suspended = d.Suspended
	if r.live && s.fault == "" {
		facts.Checks = jobs.RenameLines(jobs.Check(ctx, s.spec), config.Keys)
	}
	d.Conditions = condition.Judge(facts, r.now)
	return d
}

// readStanding returns the state of the cluster in one repository, and the suspension there; the zero Suspension if there is none.
func (s statusSource) readStanding(ctx context.Context, p place, r statusReader) (condition.Standing, suspension.Suspension) {
	options := condition.SurveyOptions(!s.spec.Drill.Schedule.None(), r.now)
	if r.all {
		options.Newest = 0 // all
	}
	c, err := p.open(ctx)
	var survey repository.Survey
	if err == nil {
		survey, err = c.Survey(ctx, options)
	}
	if err != nil {
		return condition.Standing{Repository: p.repository, Problem: err.Error()}, suspension.Suspension{}
	}
	stored, _ := c.Services().Read(ctx) // a document that is not trusted is ignored
	return condition.NewStanding(p.repository, survey, s.spec.Schedule.Next, r.now), stored
}

// facts returns the facts from which conditions are derived. Without a configuration no schedule, drill or log is expected.
func (s statusSource) facts(standings []condition.Standing, now time.Time) condition.Facts {
	if len(s.spec.Repositories) > 0 {
		return scheduler.Facts(s.spec, standings, scheduler.Status{}, now)
	}
	f := condition.Facts{Cluster: s.spec.Cluster, Fault: s.fault}
	for _, one := range standings {
		f.Repositories = append(f.Repositories, condition.Repository{Standing: one, URL: one.Repository})
	}
	return f
}

// printStatus prints a line per repository, and below each cluster its conditions. With one it omits the repository's name.
func (a *app) printStatus(doc document.Status, one bool, now time.Time) {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if one { // there is only one repository, which the user has just named
			cells = append(cells[:1], cells[2:]...) // without REPOSITORY
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("CLUSTER", "REPOSITORY", "STATE", "LAST GOOD", "NEXT DUE", "PROVEN", "BACKUPS", "STORED", "WINDOW")
	for _, c := range doc.Clusters {
		name, state := c.Cluster, stateOf(c)
		for _, s := range c.Standings {
			row(name, s.Repository, state, lastGood(s, now), nextDue(s, now), provenAt(s, now), fmt.Sprint(s.Backups), size(s.Bytes),
				windowOf(s, now))
			name, state = "", ""
		}
		if len(c.Standings) == 0 { // its repositories are not known
			row(name, "-", state, "-", "-", "-", "-", "-", "-")
		}
	}
	w.Flush()
	a.printf("%s", line(&table))
	for _, c := range doc.Clusters {
		for range max(1, len(c.Standings)) {
			a.printf("%s", line(&table))
		}
		a.printConditions(c.Conditions, one)
	}
}

// line removes the first line of table and returns it, without blanks at its end.
func line(table *bytes.Buffer) string {
	text, _ := table.ReadString('\n') // no error: the caller reads as many lines as it has written
	return strings.TrimRight(text, " \n") + "\n"
}

// stateOf returns the worst severity of c's conditions, in capitals if it needs action now.
func stateOf(c document.ClusterStatus) string {
	switch {
	case c.NeedsAttention():
		return strings.ToUpper(string(c.Conditions[0].Severity))
	case c.Suspended:
		return "suspended"
	case len(c.Conditions) > 0:
		return string(c.Conditions[0].Severity)
	}
	return "ok"
}

func lastGood(s condition.Standing, now time.Time) string {
	if s.Good == nil {
		return "-"
	}
	return age(s.Good.Started, now)
}

func nextDue(s condition.Standing, now time.Time) string {
	wait := s.Due.Sub(now)
	switch {
	case s.Due.IsZero():
		return "-"
	case wait >= time.Second:
		return "in " + length(wait)
	}
	return age(s.Due, now)
}

func provenAt(s condition.Standing, now time.Time) string {
	if s.Good == nil {
		return "-"
	}
	return fmt.Sprintf("%s, %s", s.Good.Proven, age(s.Good.ProvenAt, now))
}

// windowOf returns the length of the newest recovery window and the age of its end.
func windowOf(s condition.Standing, now time.Time) string {
	if s.Window == nil {
		return "-"
	}
	from, to := s.Window.From.Time, s.Window.To.Time
	return fmt.Sprintf("%s, to %s", length(to.Sub(from)), age(to, now))
}

// screen is the maximum width of a line, in characters.
const screen = 118

func (a *app) printConditions(conditions []condition.Condition, one bool) {
	for _, c := range conditions {
		in := ""
		if c.Repository != "" && !one {
			in = " in " + c.Repository
		}
		for i, text := range wrapped(fmt.Sprintf("%s %s%s: %s", c.Severity, c.Name, in, c.Message), screen-4) {
			a.printf("  %s%s\n", strings.Repeat("  ", min(i, 1)), text)
		}
		for i, text := range wrapped(c.Cure, screen-6) {
			a.printf("    %s%s\n", []string{"→ ", "  "}[min(i, 1)], text)
		}
	}
}

// wrapped returns text in lines of at most width characters, except for longer words.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
