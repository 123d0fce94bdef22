package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/api/service"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

func (a *app) serve() *cobra.Command {
	var path string
	var door server.Door
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Back up, prune and drill one cluster or thousands on a schedule",
		Long: `serve takes the backups of all clusters in its configuration when they are due. It keeps no state of its own: it reads the
state from the repositories. Several services may run with one configuration: one works on a cluster, and another takes over
when that one stops.

It reloads the configuration on SIGHUP, and when it or a file that it names changes. If the new one is not valid, the old one
stays in effect. After SIGTERM it starts no more jobs, and running jobs may end within --patience.

--listen serves the page, the API, /metrics, /healthz and /readyz. A loopback address needs no login; any other requires TLS
(--tls-cert, --tls-key), and a token (--tokens-file) or a client certificate (--client-ca). The API cannot restore. --probe-listen
serves /healthz and /readyz alone, for kubelet.`,
		Example: `  dr serve --config /etc/etcd-dr/dr.yaml
  dr serve --config /etc/etcd-dr/dr.yaml --listen :2391 --tls-cert tls.crt --tls-key tls.key --tokens-file tokens`,
		Args: noArgs,
	}
	a.configFlag(cmd, &path)
	flagsOfService(cmd, &door, &patience)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if path == "" {
			return errNoConfig
		}
		c, err := config.Load(path, a.getenv)
		if err != nil {
			return err
		}
		for _, spec := range c.Specs {
			a.warnPlainOf(spec)
			a.warnGraceOf(spec)
		}
		defer a.exitLate(cmd.Context(), patience+cleanUp)()
		report, done := a.progress()
		defer done()
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		err = service.Run(cmd.Context(), service.Options{
			Path: path, Config: c, Getenv: a.getenv, Reload: hangup, Door: door, Patience: patience,
			Identity: identity(),
		}, report)
		if err != nil {
			return cannotListen(err)
		}
		return nil
	}
	return cmd
}

// flagsOfService defines the flags that services have in common.
func flagsOfService(cmd *cobra.Command, d *server.Door, patience *time.Duration) {
	flags := cmd.Flags()
	flags.StringVar(&d.Address, "listen", "127.0.0.1:2391", "address for the page, the API, /metrics and /healthz; empty: none")
	flags.StringVar(&d.Cert, "tls-cert", "", "certificate of --listen; this and the files below are reloaded when they change")
	flags.StringVar(&d.Key, "tls-key", "", "key of --tls-cert")
	flags.StringVar(&d.Tokens, "tokens-file", "",
		"file with one client per line: a role (read, operate), a name and the token's digest (sha256:…)")
	flags.StringVar(&d.ClientCA, "client-ca", "",
		"CA of client certificates; their organizational unit is the role: etcd-dr:read or etcd-dr:operate")
	flags.StringVar(&d.Probes, "probe-listen", "",
		"second address, without TLS and login, for /healthz and /readyz alone, which kubelet asks; empty: none. Example: :8081")
	*patience = 20 * time.Second
	flags.Var((*when.Span)(patience), "patience",
		"how long running jobs may take to end when dr "+cmd.Name()+" is stopped; then they are aborted, and cleaned up in at most 8s")
}

// identity returns how backups and leases name this service.
func identity() jobs.Identity {
	host, _ := os.Hostname() // for display only; in a pod, the pod's name
	return jobs.Identity{Version: version(), Host: host, By: author()}
}

// cleanUp bounds how long aborted jobs may take to remove their leftovers in a store. With the default --patience the sum is
// less than the 30 s that Kubernetes waits.
const cleanUp = 8 * time.Second

// warnPlainOf is like warnPlain, for one of several clusters.
func (a *app) warnPlainOf(s spec.Spec) {
	if s.Backup.To.Seal().Encryption == "" {
		a.warnf("WARNING: cluster %s has no recipients: its backups are NOT ENCRYPTED", s.Cluster)
	}
}

// warnGraceOf warns of a grace that is shorter than a backup may take: a prune could remove the data of a running backup, which then
// fails.
func (a *app) warnGraceOf(s spec.Spec) {
	if s.Backup.Grace < s.Timeout {
		a.warnf("WARNING: cluster %s: backup.grace %s is shorter than backup.timeout %s: "+
			"a backup that takes longer than the grace fails", s.Cluster, s.Backup.Grace, s.Timeout)
	}
}
