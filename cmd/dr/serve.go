package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/api/service"
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
		Short: "Look after one cluster or thousands: backups by schedule, and what is kept",
		Long: `serve takes the backups of all clusters in its configuration when they are due. It keeps no state: what was done is read
from the repositories. Several may run with one configuration: one works on a cluster, another takes over when it stops.

The configuration is read again on SIGHUP, and when it or a file that it names changes; one that is wrong is refused, and
the old one stays in force. On SIGTERM nothing is begun any more, and what runs may end within --patience.

--listen serves the API, /metrics, /healthz and /readyz. On a loopback address it asks for no login; on any other it demands TLS
(--tls-cert, --tls-key), and a token (--tokens-file) or a client certificate (--client-ca). Nothing is restored over the network.`,
		Example: `  dr serve --config /etc/etcd-dr/dr.yaml
  dr serve --config /etc/etcd-dr/dr.yaml --listen :2391 --tls-cert tls.crt --tls-key tls.key --tokens-file tokens`,
		Args: noArgs,
	}
	a.configFlag(cmd, &path)
	cmd.Flags().StringVar(&door.Address, "listen", "127.0.0.1:2391", "address for the page, the API, /metrics and /healthz; empty: none")
	cmd.Flags().StringVar(&door.Cert, "tls-cert", "", "certificate of --listen; it is read again when it changes, as the files below are")
	cmd.Flags().StringVar(&door.Key, "tls-key", "", "its key")
	cmd.Flags().StringVar(&door.Tokens, "tokens-file", "",
		"who may ask: lines of a role (read, operate), a name and the token's digest (sha256:…)")
	cmd.Flags().StringVar(&door.ClientCA, "client-ca", "",
		"authority of clients that log in by certificate; the role is their organizational unit, etcd-dr:read or etcd-dr:operate")
	cmd.Flags().DurationVar(&patience, "patience", 20*time.Second, "how long what runs may take to end when it is stopped; then it is given up, and cleaned up in at most 8s")
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
		defer a.endBy(cmd.Context(), patience+cleanUp)()
		report, done := a.progress()
		defer done()
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		host, _ := os.Hostname() // only people read it
		err = service.Run(cmd.Context(), service.Options{
			Path: path, Config: c, Getenv: a.getenv, Reload: hangup, Door: door, Patience: patience,
			Identity: jobs.Identity{Version: version(), Host: host, By: identity()},
		}, report)
		if err != nil {
			return cannotListen(err)
		}
		return nil
	}
	return cmd
}

// cleanUp is how long what was given up may take to remove what it has left in a store. With the default --patience that is
// less than the 30 s that systemd and Kubernetes wait.
const cleanUp = 8 * time.Second

// warnPlainOf is warnPlain of one cluster among others.
func (a *app) warnPlainOf(s spec.Spec) {
	if s.Backup.To.Seal().Encryption == "" {
		fmt.Fprintf(a.stderr, "dr: WARNING: cluster %s has no recipients: its backups are NOT ENCRYPTED\n", s.Cluster)
	}
}

// warnGraceOf warns of a grace within which a backup may still run: its data would be removed under it.
func (a *app) warnGraceOf(s spec.Spec) {
	if s.Backup.Grace < s.Timeout {
		fmt.Fprintf(a.stderr, "dr: WARNING: cluster %s: backup.grace %s is shorter than backup.timeout %s: "+
			"a backup that takes longer than the grace fails\n", s.Cluster, s.Backup.Grace, s.Timeout)
	}
}
