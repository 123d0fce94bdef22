package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// idleLimit is the limit of an idle agent's requests in an hour.
const idleLimit = 150

// idle is what agents ask of S3 while nothing is written to their member.
type idle struct {
	settles, lasts time.Duration
	server         *objectstores.S3Server
	agents         []*idleAgent
}

// idleAgent is an agent of one source, with a repository of its own.
type idleAgent struct {
	source   segment.Source
	bucket   string
	asked    atomic.Int64 // requests since its start
	requests int64        // of the measured time
	ended    chan error   // receives its end
}

// newIdle starts the server and creates the buckets.
func newIdle(o options, t testing.TB) *idle {
	// An idle agent renews its lease after half of IdleTTL: six times in the measured time.
	i := &idle{settles: lease.IdleTTL + time.Minute, lasts: 3 * lease.IdleTTL, server: objectstores.S3Plain(t)}
	if o.quick {
		i.settles, i.lasts = time.Second, time.Second
	}
	for _, source := range []segment.Source{segment.WAL, segment.Watch} {
		i.agents = append(i.agents, &idleAgent{source: source, bucket: i.server.Bucket(t)})
	}
	return i
}

// measure runs both agents, and counts their requests once they are idle.
func (i *idle) measure(ctx context.Context, o options, dr, dir string) error {
	b := bench{ctx: ctx, options: o, dr: dr, dir: dir}
	err := b.prepare(measured{megabytes: 1})
	if err != nil {
		return err
	}
	defer b.stop()
	err = b.warm(&result{})
	if err != nil {
		return err
	}
	for _, a := range i.agents {
		stop, err := i.start(&b, a)
		if err != nil {
			return err
		}
		defer stop()
	}
	err = storage.Sleep(ctx, i.settles)
	if err != nil {
		return err
	}
	before := map[*idleAgent]int64{}
	for _, a := range i.agents {
		before[a] = a.asked.Load()
	}
	err = storage.Sleep(ctx, i.lasts)
	for _, a := range i.agents {
		a.requests = a.asked.Load() - before[a]
		err = errors.Join(err, a.check())
	}
	return err
}

// check returns an error unless the agent still runs, and has asked for something.
func (a *idleAgent) check() error {
	select {
	case err := <-a.ended:
		a.ended <- err
		return fmt.Errorf("the agent, %s, has ended: %v", a.source, err)
	default:
	}
	if a.asked.Load() == 0 {
		return fmt.Errorf("the agent, %s, makes no requests through the proxy", a.source)
	}
	return nil
}

// start starts an agent, and a proxy that counts its requests.
func (i *idle) start(b *bench, a *idleAgent) (stop func(), err error) {
	forward, err := i.server.Forward()
	if err != nil {
		return nil, err
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		forward.ServeHTTP(w, r)
	}))
	counted := *i.server
	counted.Endpoint = proxy.URL
	args := []string{"archive", "--source", string(a.source), "--repo", counted.URL(a.bucket, ""), "--cluster", "bench"}
	if a.source == segment.WAL {
		args = append(args, "--data-dir", b.path("data"))
	}
	agent := exec.CommandContext(b.ctx, b.dr, append(args, "--endpoints", b.endpoint, "--recipient", b.recipient, "--flush", "1s", "--listen", "", "-o", "json")...)
	agent.Env, agent.Stderr = append(os.Environ(), counted.Env()...), os.Stderr
	err = agent.Start()
	if err != nil {
		proxy.Close()
		return nil, err
	}
	a.ended = make(chan error, 1)
	go func() { a.ended <- agent.Wait() }()
	return func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		<-a.ended
		proxy.Close()
	}, nil
}

const aboutIdle = `
## An idle cluster

Requests to S3 by an agent with ` + "`--flush 1s`" + ` whose member gets no writes, counted for %s, from %s after the start.

| | requests an hour | limit |
|---|---|---|
`

// render returns an error if an agent makes too many requests.
func (i *idle) render(b *strings.Builder) (past error) {
	fmt.Fprintf(b, aboutIdle, i.lasts, i.settles)
	for _, a := range i.agents {
		hourly := float64(a.requests) * float64(time.Hour) / float64(i.lasts)
		fmt.Fprintf(b, "| --source %s | %.0f | %d |\n", a.source, hourly, idleLimit)
		if hourly > idleLimit {
			past = errors.Join(past, fmt.Errorf("an idle agent, %s: %.0f requests an hour, the limit is %d", a.source, hourly, idleLimit))
		}
	}
	return past
}
