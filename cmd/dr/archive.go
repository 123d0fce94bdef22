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
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func (a *app) archive() *cobra.Command {
	var config archive.Config
	var listen, spoolMax string
	var to sealFlags
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Archive a cluster's log as it is written, so that any revision or second can be restored",
		Long: `archive stores every committed request in the repository within about --flush. With a backup before it, dr restore --to
and --to-revision then reach any point between.

--source wal runs beside a member and reads its log (member/wal, read-only): it has everything. Run one beside each member:
a lease says which one works, and another takes over within --lease when it stops. While the store is away the member's own
log is the spool.

--source watch needs nothing but the client's port: it watches all keys, from anywhere, as a user with the role root where
users are enabled. It does not see users and roles, leases without keys, and alarms: a restore has them as its backup had
them. While the store is away, changes wait in --spool, and behind that in the cluster itself until it compacts them.

What cannot be archived any more is recorded as a gap, and a backup is taken at once. --listen serves /status, /metrics and
/healthz.`,
		Example: `  dr archive --repo file:///var/backups/etcd --cluster prod --recipient age1… --data-dir /var/lib/etcd \
    --endpoints https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  dr archive --repo s3://backups/etcd --cluster prod --recipient age1… --source watch --spool /var/lib/dr/spool \
    --endpoints https://10.0.0.1:2379,https://10.0.0.2:2379 --cacert ca.crt --cert client.crt --key client.key`,
		Args: noArgs,
	}
	etcd := cluster.AddFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar((*string)(&config.Source), "source", string(segment.WAL), "where the log is read: wal, the member's data dir, or watch, the client's port")
	flags.StringVar(&config.DataDir, "data-dir", "", "with --source wal: the member's data dir; it is only read")
	flags.StringVar(&config.Spool, "spool", "", "with --source watch: a folder in which segments wait, sealed, while the store is away")
	flags.StringVar(&spoolMax, "spool-max", "2GiB", "how much the spool holds at most")
	flags.DurationVar(&config.Flush, "flush", 2*time.Second, "how long a request waits at most before it is on its way to the store")
	flags.IntVar(&config.SegmentSize, "segment-size", spec.SegmentSize, "bytes of requests after which they go at once")
	flags.DurationVar(&config.Lease, "lease", 10*time.Second, "how long another agent waits before it takes over")
	flags.DurationVar(&config.HashEvery, "hash-every", time.Hour, "how often to ask the member for its HashKV, which a restore compares, and to compare that of all members; 0: never")
	flags.Var((*byteSize)(&config.HashMax), "hash-max", hashMaxHelp)
	flags.IntVar(&config.MaxWALs, "max-wals", 5, "the member's --max-wals: how many files of its log it keeps, for the headroom; 0: all")
	flags.StringVar(&listen, "listen", "127.0.0.1:2390", "address for /status, /metrics and /healthz; empty: none")
	to.add(cmd, a.getenv)
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.store.parallelFlag(cmd) // no --limit: it would slow the stream of the backups that the log needs
	a.outputFlag(cmd)
	cmd.AddCommand(a.archiveVerify())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if config.Source != segment.WAL && config.Source != segment.Watch {
			return usagef("--source %s: use wal or watch", config.Source)
		}
		if config.Source == segment.WAL && config.DataDir == "" {
			return usagef("no log: name the member's data dir with --data-dir, or use --source watch")
		}
		most, err := humanize.ParseBytes(spoolMax)
		if err != nil || most > math.MaxInt64 {
			return usagef("--spool-max %s: use a form like 2GiB", spoolMax)
		}
		config.SpoolMax = int64(most)
		if config.To, err = to.load(); err != nil {
			return err
		}
		config.Plain = to.plain
		if config.Etcd, err = etcd.Config(a.getenv, a.ask); err != nil {
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

// archiveMemory is what the collector aims at, besides eight segments: an agent lives beside a member, whose memory is
// worth more than a little of the agent's CPU after a long time behind.
const archiveMemory = 48 << 20

// lastStore is how long an agent that is stopped may take to store what is pending, and to give its lease back.
const lastStore = 28 * time.Second

// runArchive runs the agent and, beside it, its status page.
func (a *app) runArchive(ctx context.Context, config archive.Config, c *repository.Cluster, listen string) error {
	if a.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(archiveMemory + 8*int64(config.SegmentSize))
	}
	config.Version = version()
	config.Host, _ = os.Hostname() // for people only
	defer a.endBy(ctx, lastStore)()
	report, done := a.progress()
	defer done()
	config.Snapshot = snapshotOf(config, c, report)
	var status atomic.Pointer[archive.Status]
	status.Store(&archive.Status{State: archive.Starting, Cluster: c.Name()})
	stop, err := serveStatus(listen, server.Archive(func() archive.Status { return *status.Load() }), report)
	if err != nil {
		return err
	}
	defer stop()
	return archive.Run(ctx, config, c, func(s archive.Status) { status.Store(&s) }, report)
}

// snapshotOf takes a backup where the agent runs, from whoever leads.
func snapshotOf(config archive.Config, c *repository.Cluster, report storage.Report) func(context.Context, string) error {
	return func(ctx context.Context, why string) error {
		_, err := backup.Run(ctx, config.Etcd, []backup.Store{{Cluster: c}}, backup.Request{
			From: "leader", To: config.To, HashMax: config.HashMax, Plain: config.Plain, MaxStream: maxStream, Grace: grace, Version: config.Version,
			Labels: catalog.Labels{spec.LabelArchive: why},
		}, report)
		return err
	}
}

// cannotListen tells what was written wrong from an address that is in use, or not there yet: a service manager that starts dr
// again helps with the second, and leaves the first.
func cannotListen(err error) error {
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return fmt.Errorf("--listen: %w", err)
	}
	return usagef("--listen: %w", err)
}

// serveStatus answers at address until stop is called.
func serveStatus(address string, handler http.Handler, report storage.Report) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cannotListen(err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	report.Say(storage.Event{Stage: "archive", Level: storage.Note, Message: fmt.Sprintf("status at http://%s/status", listener.Addr())})
	return func() {
		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			report.Say(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf("the status page ended: %v", err)})
		}
	}, nil
}
