package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/test/memory"
)

// cost is the cost of one command.
type cost struct {
	wall, cpu time.Duration
	peak      int64                    // memory, bytes
	phases    map[string]time.Duration // of dr restore
}

// work returns the wall time without the phases that the other tools do not have.
func (c cost) work() time.Duration { return c.wall - c.phases["check"] - c.phases["prove"] }

type result struct {
	measured
	size                                 int64 // of the snapshot, bytes
	save, backup                         []cost
	saveStalls, backupStalls             []cost // wall: of the longest write meanwhile
	theirRestore, restoreOne, restoreAll []cost
	copies                               []cost // two copies of the database
	backupShares, restoreShares          string // of packages in the CPU of a backup, and of a restore of one member
}

// measure runs all pairs on one database.
func measure(ctx context.Context, o options, db measured, dr, dir string) (result, error) {
	r := result{measured: db}
	b := bench{ctx: ctx, options: o, dr: dr, dir: dir}
	err := b.prepare(db)
	if err != nil {
		return r, err
	}
	defer b.stop()
	err = b.warm(&r)
	if err != nil {
		return r, err
	}
	for i := range o.pairs {
		fmt.Fprintf(os.Stderr, "bench: %s, pair %d of %d\n", db, i+1, o.pairs)
		for _, step := range []struct {
			into *[]cost
			do   func() (cost, error)
		}{{&r.save, b.save}, {&r.backup, b.backup}} {
			err := add(step.into, step.do)
			if err != nil {
				return r, err
			}
		}
	}
	r.backupShares, err = b.profile(b.backup)
	if err != nil {
		return r, err
	}
	err = b.measureStalls(&r)
	if err != nil {
		return r, err
	}
	b.stop() // so that the restores have the machine to themselves
	for i := range o.pairs {
		fmt.Fprintf(os.Stderr, "bench: %s, restore pair %d of %d\n", db, i+1, o.pairs)
		for _, step := range []struct {
			into *[]cost
			do   func() (cost, error)
		}{{&r.theirRestore, b.theirRestore}, {&r.restoreOne, b.restoreOne}, {&r.restoreAll, b.restoreAll}, {&r.copies, b.copies}} {
			err := add(step.into, step.do)
			if err != nil {
				return r, err
			}
		}
	}
	r.restoreShares, err = b.profile(b.restoreOne)
	return r, err
}

// profile does do once more, with the dr that writes profiles, and returns its shares.
func (b *bench) profile(do func() (cost, error)) (string, error) {
	plain := b.dr
	defer func() { b.dr = plain }()
	b.dr = b.profiling
	return shares(b.ctx, b.dir, func() error {
		_, err := do()
		return err
	})
}

func add(into *[]cost, do func() (cost, error)) error {
	c, err := do()
	*into = append(*into, c)
	return err
}

type bench struct {
	options
	ctx       context.Context
	dr, dir   string
	endpoint  string
	recipient string
	server    *exec.Cmd
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }
func (b *bench) repo() []string {
	return []string{"--repo", "file://" + b.path("repo"), "--cluster", "bench"}
}

// prepare generates the database, makes a data dir of it and starts a server on that.
func (b *bench) prepare(db measured) error {
	err := os.MkdirAll(b.dir, 0o700)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "bench: generating %s\n", db)
	err = db.generate(b.path("generated"))
	if err != nil {
		return err
	}
	peer := "http://" + freeAddress()
	b.endpoint = "http://" + freeAddress()
	err = command(b.ctx, b.tool("etcdutl"), "snapshot", "restore", b.path("generated"), "--skip-hash-check",
		"--name", "bench", "--data-dir", b.path("data"), "--initial-cluster", "bench="+peer,
		"--initial-advertise-peer-urls", peer)
	if err != nil {
		return err
	}
	err = os.Remove(b.path("generated"))
	if err != nil {
		return err
	}
	b.server = exec.CommandContext(b.ctx, b.tool("etcd"), "--name", "bench", "--data-dir", b.path("data"),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench="+peer,
		"--listen-client-urls", b.endpoint, "--advertise-client-urls", b.endpoint,
		"--quota-backend-bytes", "8589934592", "--log-level", "error", "--snapshot-count", "1000000")
	b.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = b.server.Start()
	if err != nil {
		return err
	}
	return b.key()
}

func (b *bench) key() error {
	out, err := exec.CommandContext(b.ctx, b.dr, "keygen", "--to", b.path("key.txt")).Output()
	b.recipient = strings.TrimSpace(string(out))
	return err
}

func (b *bench) stop() {
	if b.server.ProcessState == nil {
		_ = b.server.Process.Signal(syscall.SIGTERM)
		_ = b.server.Wait()
	}
}

// warm waits for the server, reads its database once, and leaves a compressed snapshot for the restores.
func (b *bench) warm(r *result) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		err := exec.CommandContext(b.ctx, b.tool("etcdctl"), "--endpoints", b.endpoint, "endpoint", "health").Run()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server does not serve: %w", err)
		}
	}
	_, err := b.save()
	if err != nil {
		return err
	}
	info, err := os.Stat(b.path("saved.db"))
	if err != nil {
		return err
	}
	r.size = info.Size()
	return command(b.ctx, "zstd", "-q", "-f", b.path("saved.db"), "-o", b.path("saved.db.zst"))
}

func (b *bench) save() (cost, error) {
	err := os.RemoveAll(b.path("saved.db"))
	if err != nil {
		return cost{}, err
	}
	return timed(b.ctx, b.tool("etcdctl"), "--endpoints", b.endpoint, "--command-timeout", "10m", "snapshot", "save", b.path("saved.db"))
}

func (b *bench) backup() (cost, error) {
	err := os.RemoveAll(b.path("repo"))
	if err != nil {
		return cost{}, err
	}
	return timed(b.ctx, b.dr, append(b.repo(), "backup", "--endpoints", b.endpoint, "--recipient", b.recipient, "--no-hash")...)
}

// backupAgain takes a backup of a cluster that already has one, with the HashKV.
func (b *bench) backupAgain() (cost, error) {
	return timed(b.ctx, b.dr, append(b.repo(), "backup", "--endpoints", b.endpoint, "--recipient", b.recipient)...)
}

func (b *bench) theirRestore() (cost, error) {
	for _, path := range []string{"plain.db", "theirs"} {
		err := os.RemoveAll(b.path(path))
		if err != nil {
			return cost{}, err
		}
	}
	unpacked, err := timed(b.ctx, "zstd", "-q", "-d", b.path("saved.db.zst"), "-o", b.path("plain.db"))
	if err != nil {
		return cost{}, err
	}
	restored, err := timed(b.ctx, b.tool("etcdutl"), "snapshot", "restore", b.path("plain.db"), "--data-dir", b.path("theirs"),
		"--name", "bench", "--initial-cluster", members[0], "--initial-advertise-peer-urls", "http://127.0.0.1:1")
	return cost{
		wall: unpacked.wall + restored.wall, cpu: unpacked.cpu + restored.cpu, peak: max(unpacked.peak, restored.peak),
	}, err
}

var members = []string{"bench=http://127.0.0.1:1", "bench2=http://127.0.0.1:2", "bench3=http://127.0.0.1:3"}

func (b *bench) restoreOne() (cost, error) { return b.restore(members[:1]) }
func (b *bench) restoreAll() (cost, error) { return b.restore(members) }

func (b *bench) restore(members []string) (cost, error) {
	err := os.RemoveAll(b.path("ours"))
	if err != nil {
		return cost{}, err
	}
	return timed(b.ctx, b.dr, append(b.repo(), "restore", "-o", "json", "--identity", b.path("key.txt"), "--old-is-dead",
		"--initial-cluster", strings.Join(members, ","), "--output-dir", b.path("ours"))...)
}

// copies makes two copies of the database, which theirRestore has left, and waits until they are on disk. Nothing that builds the data
// dirs of two more members can be faster, unless the file system shares their blocks.
func (b *bench) copies() (cost, error) {
	return timedHere(b.ctx, func(context.Context) error {
		group := errgroup.Group{}
		for _, name := range []string{"copy1", "copy2"} {
			group.Go(func() error { return copySynced(b.path(name), b.path("plain.db")) })
		}
		return group.Wait()
	})
}

// copySynced replaces the file at to by a copy of the one at from.
func copySynced(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	err = os.RemoveAll(to)
	if err != nil {
		return err
	}
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	if err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close())
}

// timed runs a command. Its cost includes that of its children, as in wait4.
func timed(ctx context.Context, name string, args ...string) (cost, error) {
	cmd := exec.CommandContext(ctx, name, reorder(args)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Start()
	if err != nil {
		return cost{}, err
	}
	peak := memory.Watch(cmd.Process.Pid, memory.WithChildren)
	err = cmd.Wait()
	c := cost{wall: time.Since(begin), peak: peak()}
	if err != nil {
		return c, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	c.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	c.phases = phases(stdout.Bytes())
	return c, nil
}

// reorder puts the verb first: flags of a verb follow it.
func reorder(args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return a == "backup" || a == "restore" })
	if i <= 0 || !strings.HasPrefix(args[0], "--repo") {
		return args
	}
	return append([]string{args[i]}, append(slices.Clone(args[:i]), args[i+1:]...)...)
}

func phases(stdout []byte) map[string]time.Duration {
	all := map[string]time.Duration{}
	for line := range bytes.Lines(stdout) {
		var l struct {
			Result struct {
				Phases []struct {
					Stage   string
					Seconds float64
				}
			}
		}
		if json.Unmarshal(line, &l) == nil {
			for _, p := range l.Result.Phases {
				all[p.Stage] = time.Duration(p.Seconds * float64(time.Second))
			}
		}
	}
	return all
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}
