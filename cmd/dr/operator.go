package main

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/controller"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
)

func (a *app) operator() *cobra.Command {
	var o controller.Options
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Back up the etcd clusters that EtcdBackups in Kubernetes describe",
		Long: `operator carries out the EtcdBackups of a Kubernetes cluster, and writes their status. It keeps no state of its own: it reads the
state from the repositories. While the API server does not answer, backups continue with the last settings.

Several operators may run: one of them writes status, and another takes over when that one stops. It needs the rights to read
and watch EtcdBackups, to patch their status, to read the Secrets that they name, and to write one Lease.

--listen serves the page, the API, /metrics, /healthz and /readyz of all clusters, for administrators.`,
		Example: `  dr operator
  dr operator --kubeconfig ~/.kube/config --namespace payments --election-namespace payments`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "file with the access to the API server; empty: the pod's service account")
	flags.StringVar(&o.Namespace, "namespace", "", "namespace whose EtcdBackups are carried out; empty: all")
	flags.StringVar(&o.Election.Namespace, "election-namespace", "etcd-dr", "namespace of the Lease by which operators elect the leader")
	flags.StringVar(&o.Election.Name, "election-name", "etcd-dr", "name of that Lease")
	flags.IntVar(&o.Concurrency, "concurrency", 4, "backups at a time")
	o.Lease = time.Minute
	flags.Var((*when.Span)(&o.Lease), "lease", "how long another operator waits before it takes over a job")
	flags.BoolVar(&o.Loopback, "allow-loopback", false,
		"let EtcdBackups name endpoints on loopback and link-local addresses: their authors can then reach what listens beside the operator")
	flags.StringVar(&o.Door.Address, "listen", "127.0.0.1:2391", "address for the page, the API, /metrics and /healthz; empty: none")
	doorFlags(cmd, &o.Door)
	o.Patience = 20 * time.Second
	flags.Var((*when.Span)(&o.Patience), "patience", "how long running jobs may take to end when dr operator is stopped; then they are aborted, and cleaned up in at most 8s")
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		defer a.exitLate(cmd.Context(), o.Patience+cleanUp)()
		report, done := a.progress()
		defer done()
		host, _ := os.Hostname() // in a pod, the pod's name
		o.Identity = jobs.Identity{Version: version(), Host: host, By: author()}
		o.Election.Identity = host + "-" + strings.ToLower(rand.Text()[:8])
		err := controller.Run(cmd.Context(), o, report)
		if errors.Is(err, server.ErrListen) {
			return cannotListen(err)
		}
		return err
	}
	return cmd
}

// doorFlags defines the flags of a door other than its address.
func doorFlags(cmd *cobra.Command, d *server.Door) {
	cmd.Flags().StringVar(&d.Cert, "tls-cert", "", "certificate of --listen; this and the files below are reloaded when they change")
	cmd.Flags().StringVar(&d.Key, "tls-key", "", "key of --tls-cert")
	cmd.Flags().StringVar(&d.Tokens, "tokens-file", "",
		"file with one client per line: a role (read, operate), a name and the token's digest (sha256:…)")
	cmd.Flags().StringVar(&d.ClientCA, "client-ca", "",
		"CA of client certificates; their organizational unit is the role: etcd-dr:read or etcd-dr:operate")
}
