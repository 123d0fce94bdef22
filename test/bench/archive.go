package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// archived is the cost of archiving a busy member's log.
type archived struct {
	source   segment.Source
	events   int
	pace     float64         // acknowledged events a second
	lag      []time.Duration // from acknowledgement to durable in the repository, ascending
	cpu      time.Duration
	bytes    int64
	segments int
	peak     int64
	shares   string // of packages in the CPU
}

// The load on the member.
const (
	busyWrites  = 3000 // a second
	busyClients = 16
)

// measureArchive writes to a member for a while, with an agent next to it, and measures when each write was in the
// repository: a segment's file is renamed into place when it is durable.
func measureArchive(ctx context.Context, o options, source segment.Source, lasts time.Duration, dr, dir string) (a archived, err error) {
	a.source = source
	b := bench{ctx: ctx, options: o, dr: dr, dir: dir}
	err = b.prepare(measured{megabytes: 1})
	if err != nil {
		return a, err
	}
	defer b.stop()
	err = b.warm(&result{})
	if err != nil {
		return a, err
	}
	args := append([]string{"archive", "--source", string(source)}, b.repo()...)
	if source == segment.WAL {
		args = append(args, "--data-dir", b.path("data"))
	}
	agent := exec.CommandContext(ctx, dr, append(args, "--endpoints", b.endpoint,
		"--recipient", b.recipient, "--flush", "1s", "--hash-every", "0", "--listen", "", "-o", "json")...)
	agent.Stderr = os.Stderr
	err = agent.Start()
	if err != nil {
		return a, err
	}
	defer func() {
		_ = agent.Process.Kill()
		_ = agent.Wait()
	}()
	time.Sleep(5 * time.Second) // until it has caught up and taken its backup
	before := usage(agent.Process.Pid)
	first, acknowledged, err := b.keepBusy(lasts)
	if err != nil {
		return a, err
	}
	time.Sleep(4 * time.Second)
	a.cpu = usage(agent.Process.Pid) - before
	a.peak = peakOf(agent.Process.Pid)
	_ = agent.Process.Signal(syscall.SIGTERM)
	_ = agent.Wait()
	return a, a.read(b.path("repo"), first, acknowledged)
}

// keepBusy writes for a while. It returns the revision before, and when each later one was acknowledged.
func (b *bench) keepBusy(lasts time.Duration) (first int64, acknowledged map[int64]time.Time, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return 0, nil, err
	}
	defer client.Close()
	now, err := client.Get(b.ctx, "none")
	if err != nil {
		return 0, nil, err
	}
	acknowledged = map[int64]time.Time{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, busyClients)
	limit := rate.NewLimiter(busyWrites, 10)
	ctx, cancel := context.WithTimeout(b.ctx, lasts)
	defer cancel()
	for i := range busyClients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 5))
			for limit.Wait(ctx) == nil {
				answer, err := client.Put(b.ctx, string(key(random)), string(value(random)))
				if err != nil {
					errs[i] = err
					return
				}
				at := time.Now()
				mu.Lock()
				acknowledged[answer.Header.Revision] = at
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return now.Header.Revision, acknowledged, errors.Join(errs...)
}

// read finds out from the segments when each revision was durable: every request is a put, and makes one.
func (a *archived) read(repo string, first int64, acknowledged map[int64]time.Time) error {
	files, err := segmentFiles(repo, "bench")
	if err != nil {
		return err
	}
	var begin, end time.Time
	revision := first
	for _, path := range files {
		h, info, err := headerOf(path)
		if err != nil {
			return err
		}
		if a.source == segment.Watch {
			revision = int64(h.First) - 1
		}
		for range h.Requests {
			revision++
			at, ok := acknowledged[revision]
			if !ok && a.source == segment.WAL {
				revision-- // written before the clients' puts
			}
			if !ok {
				continue
			}
			a.lag = append(a.lag, info.ModTime().Sub(at))
			if begin.IsZero() || at.Before(begin) {
				begin = at
			}
			if at.After(end) {
				end = at
			}
		}
		a.segments++
		a.bytes += info.Size()
	}
	a.events = len(a.lag)
	if a.events != len(acknowledged) {
		return fmt.Errorf("%d writes were acknowledged, %d are in the log", len(acknowledged), a.events)
	}
	a.pace = float64(a.events) / end.Sub(begin).Seconds()
	slices.Sort(a.lag)
	return nil
}

func headerOf(path string) (segment.Header, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return segment.Header{}, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return segment.Header{}, nil, err
	}
	h, _, err := segment.ReadHeader(f)
	return h, info, err
}

// usage returns the CPU time that a process has used, in ticks of a hundredth of a second.
func usage(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	fields := bytes.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime: see proc(5)
		var n int64
		fmt.Sscan(string(f), &n)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func peakOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	var kib int64
	fmt.Sscan(string(rest), &kib)
	return kib << 10
}

func (a archived) render(b *bytes.Buffer) (past error) {
	at := func(share float64) time.Duration { return a.lag[min(len(a.lag)-1, int(share*float64(len(a.lag))))] }
	perEvent := float64(a.cpu.Microseconds()) / float64(a.events)
	size := float64(a.bytes) / float64(a.events)
	fmt.Fprintf(b, "\n## Archiving the log: --source %s\n\n%d puts of 256 bytes at %.0f a second, acknowledged by a server that shares the two cores with its clients and the\nagent; `--flush 1s`, encrypted. Values are hex digits, and every other one is one of 100 that come again and again.\n\n", a.source, a.events, a.pace)
	b.WriteString("| | measured | limit |\n|---|---|---|\n")
	fmt.Fprintf(b, "| acknowledged to durable, median | %.2f s | |\n| 99th percentile | %.2f s | 1.15 s |\n| the longest | %.2f s | |\n",
		at(0.5).Seconds(), at(0.99).Seconds(), at(1).Seconds())
	fmt.Fprintf(b, "| CPU of the agent, an event | %.1f µs | %.0f µs |\n| stored, an event (%d segments) | %.0f bytes | 120 bytes |\n| memory of the agent | %d MiB | |\n",
		perEvent, a.most(), a.segments, size, a.peak>>20)
	fmt.Fprintf(b, "\nThe CPU of the agent, by package: %s.\n", a.shares)
	if at(0.99) > 1150*time.Millisecond {
		past = fmt.Errorf("archive, %s: the 99th percentile of the lag is %v, the limit is 1.15 s", a.source, at(0.99))
	}
	if perEvent > a.most() {
		past = errors.Join(past, fmt.Errorf("archive, %s: %.1f µs of CPU an event, the limit is %.0f", a.source, perEvent, a.most()))
	}
	if size >= 120 {
		past = errors.Join(past, fmt.Errorf("archive, %s: %.0f bytes an event, the limit is 120", a.source, size))
	}
	return past
}

// most returns the limit of CPU time for an event, in microseconds.
func (a archived) most() float64 {
	if a.source == segment.Watch {
		return 15
	}
	return 8
}
