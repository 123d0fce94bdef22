package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// app is one run of dr: its environment, and the flags that several verbs share.
type app struct {
	world
	repo    string
	cluster string
	store   storeFlags
	output  string
	path    string // the command that ran, such as "dr config check"
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dr",
		Short: "Back up and restore etcd clusters",
		Long: `dr backs up etcd clusters into a repository, proves the backups, and rebuilds every member's data dir from them.

Exit codes: 0 done; 1 the network, the store or etcd failed; 2 the command line or a configuration is not valid;
3 not found in the repository, or a check failed; 4 refused for safety; 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(a.store.check(cmd), a.checkVariables(cmd))
		},
	}
	root.SetFlagErrorFunc(badFlag)
	root.AddCommand(a.backup(), a.list(), a.show(), a.fetch(), a.verify(), a.drill(), a.restore(), a.archive(), a.salvage(), a.importFile(), a.convert(), a.copy(), a.prune(), a.pin(), a.unpin(), a.assets(),
		a.search(), a.extract(), a.diff(), a.check(), a.serve(), a.operator(), a.trigger(), a.suspend(), a.resume(), a.status(), a.config(), a.keygen(), a.demo(), a.version(), a.child(), a.member())
	root.SetHelpCommand(a.help())
	a.complete(root)
	return root
}

// repositoryFlags adds the flags of verbs that read or write a repository.
func (a *app) repositoryFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.repo, "repo", a.getenv("DR_REPO"), repoUsage)
	a.store.credentialsFlag(cmd, a.getenv)
	a.clusterFlag(cmd)
}

// readFlags adds the flags of verbs that read backups or the log, as they are or were.
func (a *app) readFlags(cmd *cobra.Command) {
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.pastFlags(cmd)
}

const repoUsage = "repository, such as file:///var/backups/etcd or s3://bucket/prefix (DR_REPO)"

func (a *app) clusterFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.cluster, "cluster", a.getenv("DR_CLUSTER"), "the cluster's name in the repository (DR_CLUSTER)")
}

func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", "table", "table or json; -w and --write-out are the same, as in etcdctl")
	completeFormats(cmd, "table", "json")
	writeOut := cmd.Flags().VarPF(cmd.Flag("output").Value, "write-out", "w", "as --output")
	writeOut.Hidden = true
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch a.output {
		case "table", "json":
			return nil
		case "simple": // etcdctl's name of its format for people
			a.output = "table"
			return nil
		}
		bad := a.output
		a.output = "table"
		return usagef("-o %s: use table or json (jq extracts single fields from JSON)", bad)
	}
}

// open opens the cluster that the flags name, in an existing repository.
func (a *app) open(ctx context.Context) (*repository.Cluster, error) { return a.openIn(ctx, a.bucket) }

// load returns the catalog of the cluster that the flags name, and warns of objects in it that are ignored.
func (a *app) load(ctx context.Context, o backups.LoadOptions) (catalog.Catalog, error) {
	c, err := a.open(ctx)
	if err != nil {
		return catalog.Catalog{}, err
	}
	catalog, err := c.Load(ctx, o)
	a.warnUntrusted(catalog)
	return catalog, err
}

// unfold returns the segments that were folded into one segment of the cluster's catalog.
func (a *app) unfold(ctx context.Context, folded catalog.Segment) ([]catalog.Segment, error) {
	c, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	return c.Log().Unfold(ctx, folded)
}

// create is like open, for a verb that may write the first backup: it creates the repository if it is missing.
func (a *app) create(ctx context.Context) (*repository.Cluster, error) {
	return a.openIn(ctx, func(ctx context.Context) (storage.Bucket, error) {
		options, err := a.store.options()
		if err != nil {
			return nil, err
		}
		return stores.Create(ctx, a.repo, options)
	})
}

func (a *app) openIn(ctx context.Context, open func(context.Context) (storage.Bucket, error)) (*repository.Cluster, error) {
	if a.cluster == "" {
		return nil, usagef("no cluster: name it with --cluster or DR_CLUSTER")
	}
	policy, err := a.store.policy()
	if err != nil {
		return nil, err
	}
	bucket, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return repository.OpenWith(bucket, a.cluster, policy)
}

// bucket opens the repository that the flags name.
func (a *app) bucket(ctx context.Context) (storage.Bucket, error) {
	options, err := a.store.options()
	if err != nil {
		return nil, err
	}
	return stores.Open(ctx, a.repo, options)
}

// source returns the location and credentials with which a child opens the repository.
func (a *app) source(cluster string, keys seal.Keys) (child.Source, error) {
	options, err := a.store.options()
	if err != nil {
		return child.Source{}, err
	}
	policy, err := a.store.policy()
	if err != nil {
		return child.Source{}, err
	}
	return child.NewSource(child.Repository{URL: a.repo, Options: options, Cluster: cluster, Trust: policy.Trusted()}, keys), nil
}

// json prints v on one line.
func (a *app) json(v any) error { return json.NewEncoder(jsonWriter{a.stdout}).Encode(v) }

// document prints v as indented JSON.
func (a *app) document(v any) error {
	enc := json.NewEncoder(jsonWriter{a.stdout})
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) printf(format string, args ...any) {
	fmt.Fprint(a.stdout, visible(fmt.Sprintf(format, args...)))
}

// warnf prints a line to stderr.
func (a *app) warnf(format string, args ...any) {
	fmt.Fprintln(a.stderr, "dr: "+visible(fmt.Sprintf(format, args...)))
}

// ask prints the question and returns a secret that is typed on the terminal.
func (a *app) ask(question string) (string, error) {
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", fmt.Errorf("stdin is not a terminal")
	}
	fmt.Fprint(a.stderr, question)
	secret, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(a.stderr)
	return string(secret), err
}

// secretFile returns the first line of a file.
func secretFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	return strings.TrimRight(line, "\r"), nil
}

func isTerminal(w io.Writer) bool {
	p, ok := w.(*checkedWriter)
	if ok {
		w = p.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// atMostOne allows one argument or none. kind names it in the error, such as "backup".
func atMostOne(kind string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("at most one %s, not %d", kind, len(args))
		}
		return nil
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected %q: omit it", args[0])
	}
	return nil
}

// parseID returns the ID in args; "", which selects the newest backup, without an argument and for latest.
func parseID(args []string) (catalog.ID, error) {
	if len(args) == 0 || args[0] == "latest" {
		return "", nil
	}
	return catalog.ParseID(args[0])
}
