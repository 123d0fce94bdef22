package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func (a *app) archive() *cobra.Command {
	config := archive.Config{Flush: archive.DefaultFlush, Lease: 10 * time.Second, HashEvery: time.Hour}
	var listen, spoolMax string
	var encryption sealFlags
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Archive a cluster's log continuously, so that any revision or second can be restored",
		Long: `archive stores every committed request in the repository within about --flush. dr restore --to and --to-revision can then
restore any point since the first backup.

--source wal runs next to a member and reads its log (member/wal, read-only): it archives every request. Run one agent next
to each member: one of them holds a lease and works, and another takes over when it stops: within --lease, or within two minutes
if nothing was archived in the two minutes before. While the store is unreachable, the member's own log is the spool.

--source watch needs only the client port: it watches all keys, from any host. If authentication is enabled, it needs one with the
role root. It does not see users, roles, leases without keys and alarms: a restore takes them from the backup. While the store
is unreachable, changes wait in --spool; when that is full, the cluster keeps them until it compacts.

Requests that are lost before they are archived are recorded as a gap, and a backup is taken at once. --listen serves /status,
/metrics and /healthz.`,
		Example: `  dr archive --repo file:///var/backups/etcd --cluster prod --recipient age1… --data-dir /var/lib/etcd \
    --endpoints https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  dr archive --repo s3://backups/etcd --cluster prod --recipient age1… --source watch --spool /var/lib/dr/spool \
    --endpoints https://10.0.0.1:2379,https://10.0.0.2:2379 --cacert ca.crt --cert client.crt --key client.key`,
		Args: noArgs,
	}
	etcd, fromHost := cluster.AddFlags(cmd.Flags()), kubeadmFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar((*string)(&config.Source), "source", string(segment.WAL), "where the log is read: wal (the member's data dir) or watch (the client port)")
	flags.StringVar(&config.DataDir, "data-dir", "", "with --source wal: the member's data dir; it is only read")
	flags.StringVar(&config.Spool, "spool", "", "with --source watch: directory in which encrypted segments wait while the store is unreachable")
	flags.StringVar(&spoolMax, "spool-max", "2GiB", "maximum size of the spool")
	flags.Var((*when.Span)(&config.Flush), "flush", "maximum time before a request is sent to the store")
	flags.IntVar(&config.SegmentSize, "segment-size", spec.SegmentSize, "bytes of requests that are sent without waiting for --flush")
	flags.Var((*when.Span)(&config.Lease), "lease", "time after which another agent takes over from one that stopped")
	flags.Var((*when.Span)(&config.HashEvery), "hash-every", "how often to store the member's HashKV, which a restore compares, and to compare that of all members; 0: never")
	config.HashMax = cluster.HashStall
	flags.Var((*when.Span)(&config.HashMax), "hash-max", hashMaxHelp)
	flags.IntVar(&config.MaxWALs, "max-wals", 5, "the member's --max-wals, from which the headroom before etcd purges its log is computed; 0: it purges nothing")
	flags.StringVar(&listen, "listen", "127.0.0.1:2390", "address for /status, /metrics and /healthz; empty: none")
	encryption.add(cmd, a.getenv)
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.store.parallelFlag(cmd) // no --limit: it would slow the stream of the backups that the log needs
	a.outputFlag(cmd)
	cmd.AddCommand(a.archiveVerify())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := fromHost()
		if err != nil {
			return err
		}
		if config.Source != segment.WAL && config.Source != segment.Watch {
			return usagef("--source %s: use wal or watch", config.Source)
		}
		if config.Source == segment.WAL && config.DataDir == "" {
			return usagef("no data dir: set --data-dir to the member's, or use --source watch")
		}
		most, err := humanize.ParseBytes(spoolMax)
		if err != nil || most > math.MaxInt64 {
			return usagef("--spool-max %s: use a form like 2GiB", spoolMax)
		}
		config.SpoolMax = int64(most)
		config.To, err = encryption.load()
		if err != nil {
			return err
		}
		config.Plain = encryption.plain
		config.Etcd, err = etcd.Config(a.getenv, a.ask)
		if err != nil {
			return err
		}
		c, err := a.create(cmd.Context())
		if err != nil {
			return err
		}
		a.warnPlain(config.To.Seal().Encryption)
		return a.runArchive(cmd.Context(), config, c, listen)
	}
	return cmd
}

// archiveMemory is the agent's soft memory limit in bytes, to which eight segments are added. The agent runs next to a member: when
// the agent lags, it should rather spend CPU on garbage collection than take memory from the member.
const archiveMemory = 48 << 20

// stopLimit bounds how long a stopped agent may take to store pending requests and release its lease.
const stopLimit = 28 * time.Second

// runArchive runs the agent and its status page.
func (a *app) runArchive(ctx context.Context, config archive.Config, c *repository.Cluster, listen string) error {
	if a.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(archiveMemory + 8*int64(config.SegmentSize))
	}
	config.Version = version()
	config.Host, _ = os.Hostname() // for people only
	defer a.exitLate(ctx, stopLimit)()
	report, done := a.progress()
	defer done()
	config.Snapshot = snapshotOf(config, c, report)
	var status atomic.Pointer[archive.Status]
	status.Store(&archive.Status{State: archive.Starting, Cluster: c.Name()})
	stop, err := serveStatus(listen, server.Archive(func() archive.Status { return *status.Load() }, a.repo), report)
	if err != nil {
		return err
	}
	defer stop()
	config.Observe, config.Report = func(s archive.Status) { status.Store(&s) }, report
	return archive.Run(ctx, config, c)
}

// snapshotOf returns a function that takes a backup from the leader, and stores the reason why as a label.
func snapshotOf(config archive.Config, c *repository.Cluster, report storage.Report) func(context.Context, string) error {
	return func(ctx context.Context, why string) error {
		_, err := backup.Run(ctx, config.Etcd, []backup.Store{{Cluster: c}}, backup.Request{
			From: "leader", To: config.To, HashMax: config.HashMax, Plain: config.Plain, MaxStream: maxStream, Grace: grace, Version: config.Version,
			Labels: catalog.Labels{spec.LabelArchive: why}, Report: report,
		})
		return err
	}
}

// cannotListen returns the error for an address that dr cannot listen on. It is a usage error only if the address is malformed:
// an address that is in use, or does not exist yet, may work when a service manager restarts dr.
func cannotListen(err error) error {
	_, ok := errors.AsType[*os.SyscallError](err)
	if ok {
		return err
	}
	return usagef("%w", err)
}

// serveStatus serves handler at address until stop is called. It does nothing if address is "".
func serveStatus(address string, handler http.Handler, report storage.Report) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", cannotListen(err))
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	report.Say(storage.Event{Stage: "archive", Level: storage.Note, Message: fmt.Sprintf("status at http://%s/status", listener.Addr())})
	return func() {
		s.Close()
		err := <-ended
		if !errors.Is(err, http.ErrServerClosed) {
			report.Say(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf("the status page stopped: %v", err)})
		}
	}, nil
}
