package main

import (
	"crypto/rand"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/controller"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

func (a *app) operator() *cobra.Command {
	var o controller.Options
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Back up and restore etcd clusters as EtcdBackups and EtcdRestores in Kubernetes describe",
		Long: `operator carries out the EtcdBackups and EtcdRestores of a Kubernetes cluster, and writes their status. It keeps no state of its own: it
reads the state from the repositories. While the API server does not answer, backups continue with the last settings.

Several operators may run: one of them writes status, and another takes over when that one stops. Each needs the rights in
deploy/kubernetes/rbac.yaml; drills and restores need those in drills.yaml and restores.yaml too. No operator reads the Secrets with
identities: the Jobs mount them.

--listen serves the page, the API, /metrics, /healthz and /readyz of all clusters, for administrators. --probe-listen serves
/healthz and /readyz alone, for kubelet.`,
		Example: `  dr operator
  dr operator --kubeconfig ~/.kube/config --namespace payments --election-namespace payments`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "file with the access to the API server; empty: the pod's service account")
	flags.StringVar(&o.Namespace, "namespace", "", "namespace whose EtcdBackups and EtcdRestores are carried out; empty: all")
	flags.StringVar(&o.Election.Namespace, "election-namespace", "etcd-dr", "namespace of the Lease by which operators elect the leader")
	flags.StringVar(&o.Election.Name, "election-name", "etcd-dr", "name of that Lease")
	flags.IntVar(&o.Concurrency, "concurrency", declared.DefaultConcurrency, "backups at a time")
	o.Lease = declared.DefaultLease
	flags.Var((*when.Span)(&o.Lease), "lease", "how long another operator waits before it takes over a job")
	flags.BoolVar(&o.Loopback, "allow-loopback", false,
		"let EtcdBackups lead to loopback, link-local and metadata addresses: their authors can then reach servers on the operator's own host")
	flags.StringVar(&o.Spool, "spool-dir", "",
		"folder in which the logs of EtcdBackups with archive wait, sealed, while a store is unreachable, at most 2GiB a cluster, and backups with a limit; "+
			"empty: logs wait in memory alone, and a limit is not accepted")
	o.SpoolBackups = controller.DefaultSpoolBackups
	flags.Var((*byteSize)(&o.SpoolBackups), "spool-backups",
		"bytes of --spool-dir for backups, of all namespaces together; one namespace takes no more than it leaves free")
	flags.StringVar(&o.JobImage, "job-image", "",
		"the operator's own image, for the Jobs of drills and of EtcdRestores; empty: neither is run")
	flags.IntVar(&o.Drills, "drills", controller.DefaultDrills,
		"Jobs of drills at a time, of all namespaces in turn; one that runs for more than an hour no longer counts")
	flags.StringArrayVar(&o.Ambient, "ambient-prefix", nil,
		"repository URL at and below which EtcdBackups need no Secret: the operator's own identity opens it. {{namespace}} is the "+
			"EtcdBackup's; may be given several times. Example: s3://backups/{{namespace}}")
	flags.BoolVar(&o.Coreos, "coreos", false,
		"carry out the EtcdBackups and EtcdRestores of etcd.database.coreos.com in place of those of etcd-dr.io")
	flags.BoolVar(&o.PlainSnapshots, "coreos-plain-snapshots", false,
		"with --coreos: also store each of their backups as a plain snapshot under the path that their EtcdBackup names")
	flagsOfService(cmd, &o.Door, &o.Patience)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, f := range declared.CheckService(o.Concurrency, o.Lease) {
			return usagef("--%w", f.Err)
		}
		if o.PlainSnapshots && !o.Coreos {
			return usagef("--coreos-plain-snapshots needs --coreos")
		}
		if o.Drills < 1 {
			return usagef("--drills must be at least 1")
		}
		defer a.exitLate(cmd.Context(), o.Patience+cleanUp)()
		report, done := a.progress()
		defer done()
		o.Identity = identity()
		o.Election.Identity = o.Identity.Host + "-" + strings.ToLower(rand.Text()[:8])
		err := controller.Run(cmd.Context(), o, report)
		if errors.Is(err, server.ErrListen) {
			return cannotListen(err)
		}
		return err
	}
	return cmd
}
