package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/handoff/systemd"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/address"
)

// intoFlags holds the flags of dr restore --into.
type intoFlags struct {
	into        string // such as statefulset/etcd
	access      statefulset.Access
	forward     bool // connect to the members through the API server
	members     *cluster.Flags
	container   string
	confirm     string
	image       string
	memory      int64
	limit       time.Duration // for which members may be stopped
	credentials string        // names of Secrets, with a key after a slash
	identity    string
	ca          string

	toStop, toStart string   // commands
	endpoints       []string // client URLs of the member on this host
	records         string   // directory of node.Records

	without []string // names of members

	fence, unfence bool // only stop the member on this host, or start it again

	ofSet, ofNode, ofAll []string // names of these flags but the first, by the targets that take them
}

func (f *intoFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.into, "into", "",
		"restore in place, stop and start the members too, and keep the old data: statefulset/NAME in Kubernetes; systemd or systemd/UNIT, kubeadm or kubeadm/DIRECTORY, or command, for the member on this host")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.StringVarP(&f.access.Namespace, "namespace", "n", "", "namespace of the StatefulSet (default: that of the kubeconfig)")
	flags.StringVar(&f.access.Kubeconfig, "kubeconfig", "", "file with the access to the API server (default: as kubectl finds it, or the service account of the pod)")
	flags.StringVar(&f.access.Context, "context", "", "context of the kubeconfig (default: the current one)")
	flags.BoolVar(&f.forward, "port-forward", false, "connect to the members through the API server, if their client URLs cannot be reached from here")
	flags.StringVar(&f.container, "container", "", "container that runs etcd (default: detected)")
	flags.StringVar(&f.image, "job-image", "", "image of dr, for the Jobs that work on the members' volumes")
	flags.Var((*byteSize)(&f.memory), "job-memory", "memory that each Job requests and may use; 0: 1 GiB")
	flags.StringVar(&f.credentials, "credentials-secret", "", "Secret with the credentials of the store, for the Jobs")
	flags.StringVar(&f.identity, "identity-secret", "", "Secret with the identity that opens the backups, for the Jobs; NAME/KEY if its key is not key.txt")
	flags.StringVar(&f.ca, "ca-secret", "", "Secret with the CA of the store, for the Jobs; NAME/KEY if its key is not ca.crt")
	f.ofSet = addSet(cmd, "with --into statefulset/NAME: ", flags)

	flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.StringVar(&f.toStop, "stop-command", "", "with --into command: stops etcd, in a shell")
	flags.StringVar(&f.toStart, "start-command", "", "with --into command: starts etcd, in a shell, and returns without waiting for it")
	flags.StringVar(&f.records, "state-dir", node.DefaultDir, "with --into systemd, kubeadm or command: directory for the progress of the restore")
	flags.StringSliceVar(&f.endpoints, "endpoints", nil, "with --into systemd, kubeadm or command: client URLs of the member on this host (default: those of the service, or of the plan)")
	flags.StringSliceVar(&f.without, "without", nil, "with --into systemd, kubeadm or command: members whose hosts do not run dr, because they are lost or you cannot log in: dr does not wait for them to stop or to start")
	flags.BoolVar(&f.fence, "fence-only", false, "with --into systemd or kubeadm: only stop the member on this host, and keep it stopped until the restore; under systemd, at most until a reboot")
	flags.BoolVar(&f.unfence, "unfence", false, "with --into systemd or kubeadm: start the member again that --fence-only has stopped")
	f.ofNode = addSet(cmd, "", flags)

	flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.StringVar(&f.confirm, "confirm", "", "the name of the StatefulSet, the unit or the member again, or kubeadm: its data may be replaced")
	f.limit = inplace.DefaultLimit
	flags.Var((*when.Span)(&f.limit), "time-limit", "how long members may be stopped before the restore goes back by itself; on a host there is no limit unless it is given")
	f.members = cluster.AddAccess(flags)
	f.ofAll = addSet(cmd, "with --into: ", flags)
}

// addSet adds flags with a prefix to their usage, and returns their names.
func addSet(cmd *cobra.Command, prefix string, flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(flag *pflag.Flag) {
		names = append(names, flag.Name)
		flag.Usage = prefix + flag.Usage
	})
	cmd.Flags().AddFlagSet(flags)
	return names
}

// The kinds of targets of --into.
const (
	intoStatefulSet = "statefulset"
	intoSystemd     = "systemd"
	intoCommand     = "command"
	intoKubeadm     = "kubeadm"
)

// place returns the kind of the target, and the name that --confirm repeats.
func (f *intoFlags) place() (kind, name string) {
	kind, name, _ = strings.Cut(f.into, "/")
	switch kind {
	case intoKubeadm:
		return kind, kind
	case intoSystemd:
		return kind, strings.TrimSuffix(cmp.Or(name, systemd.DefaultUnit), ".service")
	}
	return kind, name
}

// isNode reports whether the target is on this host.
func (f *intoFlags) isNode() bool {
	kind, _ := f.place()
	return kind == intoSystemd || kind == intoCommand || kind == intoKubeadm
}

// notInto lists the flags that cannot be combined with --into.
var notInto = []string{
	"output-dir", "initial-advertise-peer-urls", "fresh-token", "plan-out", "replace", "mark-compacted", "from-data-dir", "salvage-tail",
	"salvage-base", "etcd-version", "as-of",
}

// notIntoSet lists those that cannot be combined with a StatefulSet either.
var notIntoSet = []string{"name", "initial-cluster-token", "from-file", "skip-hash-check", "parallel", "passphrase-file", "skip-plain", "plan"}

// notIntoUnit lists those whose values come from the unit or the manifest.
var notIntoUnit = []string{"name", "data-dir", "wal-dir", "stop-command", "start-command"}

// checkInto refuses flags that need --into, or cannot be combined with it.
func (f *restoreFlags) checkInto(cmd *cobra.Command) error {
	i := &f.into
	kind, name := i.place()
	var refused []string
	valid := !strings.Contains(name, "/")
	switch kind {
	case "":
		wrong := given(cmd, func(name string) bool {
			return slices.Contains(slices.Concat(i.ofSet, i.ofNode, i.ofAll), name) || name == "sign-key"
		})
		if len(wrong) > 0 {
			return usagef("%s: omit it, or restore in place with --into", strings.Join(wrong, ", "))
		}
		return nil
	case intoStatefulSet:
		refused = slices.Concat(notInto, notIntoSet, i.ofNode)
		valid = valid && name != ""
	case intoSystemd, intoKubeadm:
		refused = slices.Concat(notInto, notIntoUnit, i.ofSet)
	case intoCommand:
		refused = slices.Concat(notInto, i.ofSet)
		valid, name = i.into == kind, f.layout.Into.Name
	}
	wrong := given(cmd, func(name string) bool { return slices.Contains(refused, name) })
	switch {
	case refused == nil, !valid:
		return usagef("--into %s: use statefulset/NAME, systemd, systemd/UNIT, kubeadm, kubeadm/DIRECTORY or command", i.into)
	case len(wrong) > 0:
		return usagef("%s: omit it: it cannot be combined with --into %s", strings.Join(wrong, ", "), i.into)
	case kind == intoStatefulSet && cmd.Flags().Changed("identity"):
		return usagef("--identity: omit it, because the Jobs open the backups: store the key in a Secret, and name that with --identity-secret")
	case kind == intoCommand && (name == "" || f.layout.Into.DataDir == "" || i.toStop == "" || i.toStart == ""):
		return usagef("--into command: pass --name, --data-dir, --stop-command and --start-command of the member on this host")
	case i.confirm != "" && i.confirm != name:
		return usagef("--confirm %s is not the name of the target, which is %s: correct one of them", i.confirm, name)
	}
	return nil
}

// given returns the flags of the command line whose names match.
func given(cmd *cobra.Command, matches func(name string) bool) (all []string) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if matches(flag.Name) {
			all = append(all, "--"+flag.Name)
		}
	})
	return all
}

// orderOf returns the order that the flags give.
func (a *app) orderOf(cmd *cobra.Command, f *restoreFlags, args []string) (o statefulset.Order, err error) {
	err = f.setTarget(cmd, args, time.Now())
	if err != nil {
		return o, err
	}
	if f.newestBackup {
		_, err = a.catalog(cmd, f)
		if err != nil {
			return o, err
		}
	}
	if f.into.image == "" && !f.dryRun {
		return o, usagef("the Jobs need an image of dr: name it with --job-image")
	}
	o = statefulset.Order{
		Target: strings.Join(append([]string{f.to}, args...), " "), Point: f.target, Layout: f.layout, URL: a.repo,
		Into:  statefulset.Into{Container: f.into.container, DataDir: f.layout.Into.DataDir, WALDir: f.layout.Into.WALDir},
		Image: f.into.image, Memory: f.into.memory, Clone: f.layout.OldIsDead,
	}
	o.Layout.Into, o.Layout.Salt, o.Layout.OldIsDead = plan.Into{}, rand.Text(), true // the members are stopped after the data is built
	if f.into.identity != "" && !f.plain.allow {
		o.Point.Plain = plan.PlainRefused
	}
	if f.initialCluster != "" {
		o.Into.Members, err = plan.ParseMembers(f.initialCluster)
		if err != nil {
			return o, err
		}
	}
	o.Repository, err = a.repositoryForJobs(f)
	return o, err
}

// repositoryForJobs returns the repository as the Jobs open it.
func (a *app) repositoryForJobs(f *restoreFlags) (k kubejob.Repository, err error) {
	place, err := address.Parse(a.repo)
	switch {
	case err != nil:
		return k, err
	case place.Scheme == address.File:
		return k, usagef("--repo %s: the Jobs cannot read a directory of this host: use a bucket", a.repo)
	case place.CA != "" && f.into.ca == "":
		return k, usagef("--repo %s: the Jobs cannot read the file in ca: store it in a Secret, and name that with --ca-secret", a.repo)
	}
	options, err := a.store.options()
	if err != nil {
		return k, err
	}
	policy, err := a.store.policy()
	if err != nil {
		return k, err
	}
	ca, caErr := keyOf("ca-secret", f.into.ca, "ca.crt")
	identity, err := keyOf("identity-secret", f.into.identity, "key.txt")
	place.CA = ""
	return kubejob.Repository{
		URL: place.String(), Cluster: a.cluster, Credentials: f.into.credentials, CA: ca, Identity: identity,
		AllowPlain: f.plain.allow, Limit: options.Limit, Trust: policy.Trusted().Keys(),
	}, errors.Join(caErr, err)
}

// keyOf parses the value of a flag: NAME, or NAME/KEY if the key differs from the usual one. Without a value it returns the zero Key.
func keyOf(flag, value, usual string) (kubejob.Key, error) {
	if value == "" {
		return kubejob.Key{}, nil
	}
	name, key, found := strings.Cut(value, "/")
	if !found {
		key = usual
	}
	if name == "" || key == "" {
		return kubejob.Key{}, usagef("--%s %s: use NAME or NAME/KEY", flag, value)
	}
	return kubejob.Key{Secret: name, Name: key}, nil
}

// undoFlagsOfSet returns the flags that --undo and --clean accept with --into statefulset/NAME.
func undoFlagsOfSet() []string {
	return append(undoFlags(), "namespace", "kubeconfig", "context", "port-forward")
}

// undoFlagsOfNode returns those that they accept with --into for this host.
func undoFlagsOfNode() []string {
	return append(undoFlags(), "repo", "cluster", "name", "data-dir", "wal-dir", "stop-command", "start-command", "endpoints", "state-dir", "without")
}

// undoFlags returns those that they accept with every --into.
func undoFlags() []string {
	names := []string{"into", "undo", "clean", "output", "write-out", "credentials", "trust", "sign-key", "time-limit"}
	access := pflag.NewFlagSet("", pflag.ContinueOnError)
	cluster.AddAccess(access)
	access.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}
