package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration of dr serve",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.configCheck())
	return cmd
}

func (a *app) configCheck() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Explain the effect of a configuration, or list its errors",
		Long: `check reads the file as dr serve does, with the secrets and certificates that it names. For each cluster it prints when the
next backups are due, where they are stored, which keys can open them and which rules keep them. It contacts neither clusters
nor stores: use dr check for those.`,
		Example: `  dr config check --config /etc/etcd-dr/dr.yaml`,
		Args:    noArgs,
	}
	a.configFlag(cmd, &path)
	a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := a.readConfig(path)
		if err != nil {
			return err
		}
		for _, spec := range c.Specs {
			a.warnGraceOf(spec)
		}
		doc := document.NewConfigCheck(c.Config, time.Now())
		if a.output == "json" {
			return a.document(doc)
		}
		for _, cluster := range doc.Clusters {
			a.printConfig(cluster)
		}
		a.printf("%d clusters, %d backups at a time\n", len(doc.Clusters), doc.Concurrency)
		return nil
	}
	return cmd
}

func (a *app) configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", a.getenv("DR_CONFIG"), "configuration file, such as /etc/etcd-dr/dr.yaml (DR_CONFIG)")
}

var errNoConfig = usagef("no configuration: set --config or DR_CONFIG")

func (a *app) readConfig(path string) (config.Config, error) {
	if path == "" {
		return config.Config{}, errNoConfig
	}
	c, err := config.Load(path, a.getenv)
	return c, cmp.Or(err, c.RefusedErr())
}

func (a *app) printConfig(c document.ConfigCluster) {
	a.printf("%s: %s, %s, %s\n", c.Cluster, nextText(c), keepsText(c.Keeps), nextDrillText(c))
	var places []string
	for _, r := range c.Repositories {
		place := fmt.Sprintf("%s (%s)", r.Name, r.URL)
		if r.Keeps != nil {
			place += " which " + keepsText(r.Keeps)
		}
		places = append(places, place)
	}
	to := strings.Join(places, ", ")
	if len(places) > 1 {
		to += "; required: " + c.Require
	}
	sealed := "NOT ENCRYPTED: anyone who can read the repository can read every secret in etcd"
	if len(c.Recipients) > 0 {
		sealed = strings.Join(c.Recipients, ", ")
	}
	a.facts("schedule", strings.TrimSpace(c.Schedule+" "+c.Zone), "then", thenText(c.Next, c.Zone), "also after", strings.Join(c.Triggers, ", "),
		"from", c.From+" of "+strings.Join(c.Endpoints, ", "), "to", to, "sealed for", sealed, "signed", signedText(c),
		"log", logText(c),
		"drills", drillsText(c.Drill), "expecting", expectedText(c.Drill))
}

// signedText warns of repositories that are written without signatures; "" if there are none.
func signedText(c document.ConfigCluster) string {
	var unsigned []string
	for _, r := range c.Repositories {
		if !r.Signed {
			unsigned = append(unsigned, r.Name)
		}
	}
	if len(unsigned) == 0 {
		return ""
	}
	return "no: anyone who may write to " + strings.Join(unsigned, " or ") + " can forge backups there: set signKeyFile"
}

// drillsText returns "" if there are no drills.
func drillsText(d *document.ConfigDrill) string {
	if d == nil {
		return ""
	}
	texts := []string{"from " + d.Repository}
	if d.Schedule != "" {
		texts = []string{d.Schedule + " " + d.Zone + " from " + d.Repository, "then " + thenText(d.Next, d.Zone)}
	}
	if d.MemoryLimit > 0 {
		texts = append(texts, "memory "+size(d.MemoryLimit))
	}
	if d.Nice > 0 {
		texts = append(texts, fmt.Sprintf("nice %d", d.Nice))
	}
	if !d.Keys {
		texts = append(texts, "WITHOUT A KEY: encrypted backups cannot be drilled")
	}
	return strings.Join(texts, "; ")
}

func expectedText(d *document.ConfigDrill) string {
	if d == nil {
		return ""
	}
	return strings.Join(d.Assertions, ", ")
}

func nextDrillText(c document.ConfigCluster) string {
	switch {
	case c.Drill == nil || c.Suspended:
		return "drill never"
	case len(c.Drill.Next) == 0:
		return "drill on request"
	}
	return "next drill at " + inZone(c.Drill.Next[0], c.Drill.Zone)
}

// thenText returns the times in next after the first one.
func thenText(next []time.Time, zone string) string {
	var then []string
	for _, at := range next[min(1, len(next)):] {
		then = append(then, inZone(at, zone))
	}
	return strings.Join(then, ", ")
}

// logText returns "" if no log is archived.
func logText(c document.ConfigCluster) string {
	if c.Archive == nil {
		return ""
	}
	text := fmt.Sprintf("every %gs into %s", c.Archive.FlushSeconds, c.Repositories[0].Name)
	if c.Archive.Spool != "" {
		text += fmt.Sprintf("; spool %s, at most %s", c.Archive.Spool, size(c.Archive.SpoolMax))
	}
	return text
}

func nextText(c document.ConfigCluster) string {
	switch {
	case c.Suspended:
		return "suspended, no backup"
	case len(c.Next) == 0 && len(c.Triggers) == 0:
		return "no backup"
	case len(c.Next) == 0:
		return "next backup when a trigger makes it due"
	}
	return "next backup at " + inZone(c.Next[0], c.Zone)
}

// inZone returns the time in the named zone of a schedule, or in at's own zone if the name is unknown.
func inZone(at time.Time, name string) string {
	zone, err := time.LoadLocation(name)
	if err == nil {
		at = at.In(zone)
	}
	return at.Format("2006-01-02 15:04:05 MST")
}

func keepsText(keeps []string) string {
	if len(keeps) == 0 {
		return "keeps everything"
	}
	return "keeps " + strings.Join(keeps, ", ")
}
