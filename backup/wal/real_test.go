package wal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// start starts real servers. They need tools and seconds.
func start(t *testing.T, o servers.Options) *servers.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts real servers")
	}
	t.Parallel()
	return servers.Start(t, o)
}

// everyVersion runs a test on all versions of servers.
func everyVersion(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// reader follows one member's log as an archiver does.
type reader struct {
	t      *testing.T
	name   string
	client *clientv3.Client
	url    string
	log    *wal.Log

	mu       sync.Mutex
	requests map[uint64]segment.Record
	covered  uint64 // the last position so far
	gaps     []wal.GapError
	err      error

	stop context.CancelFunc
	done chan struct{}
}

// follow reads the log of a member from its beginning until the test ends.
func follow(t *testing.T, c *servers.Cluster, i int) *reader {
	t.Helper()
	m := c.Members[i]
	client := c.Client(t, servers.At(m))
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{
		t: t, name: m.Name, client: client, url: m.ClientURL, log: open(t, m.DataDir, segment.End{}),
		requests: map[uint64]segment.Record{}, stop: cancel, done: make(chan struct{}),
	}
	go r.run(ctx)
	t.Cleanup(r.end)
	return r
}

func (r *reader) run(ctx context.Context) {
	defer close(r.done)
	defer r.log.Close()
	for ctx.Err() == nil {
		r.confirm(ctx)
		err := r.step()
		if err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// confirm asks the member for its status. The member may be down or cut off.
func (r *reader) confirm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	first, err := r.client.Status(ctx, r.url)
	if err != nil {
		return
	}
	second, err := r.client.Status(ctx, r.url)
	if err == nil {
		r.log.Confirm(first.RaftAppliedIndex, second.RaftTerm)
	}
}

func (r *reader) step() error {
	for more := true; more; {
		var err error
		more, err = r.log.Read()
		if err != nil {
			return err
		}
		held := r.log.Backlog().Held
		if held > 64<<20 {
			return fmt.Errorf("%d bytes are held", held)
		}
		err = r.take()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) take() error {
	for {
		b, err := r.log.Take(1 << 20)
		var gap *wal.GapError
		r.mu.Lock()
		switch {
		case errors.As(err, &gap):
			r.gaps = append(r.gaps, *gap)
			r.log.Resume(gap.To + 1)
		case err == nil && b.Last > 0:
			r.covered = b.Last
			for _, request := range b.Requests {
				r.requests[request.Position] = request
			}
		}
		r.mu.Unlock()
		if gap == nil && (err != nil || b.Last == 0) {
			return err
		}
		r.log.Release(b.Last)
	}
}

// end stops reading. The results may be read afterwards.
func (r *reader) end() {
	r.stop()
	<-r.done
	if r.err != nil {
		r.t.Errorf("the log of %s: %v", r.name, r.err)
	}
}

// waitFor waits until everything up to position has arrived.
func (r *reader) waitFor(t *testing.T, position uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		covered, err := r.covered, r.err
		r.mu.Unlock()
		if covered >= position {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the log of %s came up to %d, want %d: %v", r.name, covered, position, err)
		}
	}
}

// TestRealThreeMembers reads three members' logs while they are written, leaders change, and members are killed and
// restarted. They must be equal position by position, and equal to the entries that etcd itself reads afterwards.
func TestRealThreeMembers(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		c := start(t, servers.Options{Version: version, Members: 3, Auth: true})
		var readers []*reader
		for i := range c.Members {
			readers = append(readers, follow(t, c, i))
		}
		client := c.Client(t)
		servers.Fill(t, client, 1, servers.FillOptions{Keys: 100})
		c.MoveLeader(t, (c.Leader(t)+1)%3)
		servers.Fill(t, client, 2, servers.FillOptions{Keys: 100})
		for seed := range uint64(3) {
			killed := int(seed)
			c.Kill(t, killed)
			c.Leader(t)
			// Members of 3.4 forget their tokens when they end. etcd's client then requests a new one with the unknown
			// old one, again and again. So there is a new client each time.
			servers.Fill(t, c.Client(t), 3+seed, servers.FillOptions{Keys: 50})
			c.Restart(t, killed)
		}
		alarms(t, c.Client(t))
		last := uint64(0)
		for i := range c.Members {
			last = max(last, applied(t, c, i))
		}
		for _, r := range readers {
			r.waitFor(t, last)
			r.end()
			if len(r.gaps) > 0 || len(r.requests) < 100 {
				t.Errorf("%s: gaps %v, %d requests", r.name, r.gaps, len(r.requests))
			}
		}
		c.StopAll(t)
		var passwords int
		for i, m := range c.Members {
			compare(t, m.Name, readers[i].requests, onDisk(t, m.DataDir), last)
			for position, r := range readers[i].requests {
				other := readers[(i+1)%3].requests[position]
				if position <= last && (other.Term != r.Term || string(other.Data) != string(r.Data)) {
					t.Errorf("%s and its neighbour differ at %d", m.Name, position)
				}
				if wal.HoldsPassword(r.Data) {
					passwords++
				}
			}
		}
		if (passwords > 0) != (version == "3.4") {
			t.Errorf("%d passwords in the log of %s", passwords, version)
		}
	})
}

// alarms raises an alarm, lists all alarms and clears it.
func alarms(t *testing.T, client *clientv3.Client) {
	t.Helper()
	maintenance := pb.NewMaintenanceClient(client.ActiveConnection())
	for _, action := range []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_GET, pb.AlarmRequest_DEACTIVATE} {
		_, err := maintenance.Alarm(t.Context(), &pb.AlarmRequest{Action: action, MemberID: 7, Alarm: pb.AlarmType_NOSPACE})
		ok(t, err)
	}
}

// TestRealCutOffLeader cuts off a leader with writes that were never acknowledged, and then gives it a snapshot from
// the new leader. One of the others is down for as long, and gets a snapshot too.
func TestRealCutOffLeader(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		c := start(t, servers.Options{
			Version: version, Members: 3, ExtraArgs: []string{"--snapshot-count", "200", "--election-timeout", "5000"}, // for so long a leader stays one
		})
		var readers []*reader
		for i := range c.Members {
			readers = append(readers, follow(t, c, i))
		}
		servers.Fill(t, c.Client(t), 1, servers.FillOptions{Keys: 100})
		old := c.Leader(t)
		others := []int{(old + 1) % 3, (old + 2) % 3}
		// If they were only paused, the writes would wait in their sockets.
		for _, i := range others {
			c.Kill(t, i)
		}
		c.PutUnacknowledged(t, old, "unacknowledged", 40)
		c.Pause(t, old)
		c.Restart(t, others...)
		c.Leader(t)
		putMany(t, c.Client(t, toMembers(c, others)), 5600)
		c.Resume(t, old)
		applied(t, c, old)
		putMany(t, c.Client(t), 300)
		last := uint64(0)
		for i := range c.Members {
			last = max(last, applied(t, c, i))
		}
		truth := readers[others[0]]
		for _, r := range readers {
			r.waitFor(t, last)
			r.end()
		}
		if len(truth.gaps) > 0 || len(readers[old].gaps) != 1 {
			t.Errorf("gaps of a member that was there %v, of the old leader %v", truth.gaps, readers[old].gaps)
		}
		c.StopAll(t)
		entries := onDisk(t, c.Members[others[0]].DataDir)
		compare(t, truth.name, truth.requests, entries, last)
		for _, gap := range readers[old].gaps {
			for position := gap.From; position <= gap.To; position++ {
				_, came := readers[old].requests[position]
				if came {
					t.Errorf("%d came, and is in the gap %v", position, gap)
				}
				delete(entries, position)
			}
		}
		compare(t, "the old leader", readers[old].requests, entries, last)
		for position, r := range readers[old].requests {
			if strings.Contains(string(r.Data), "unacknowledged") {
				t.Errorf("%d came from the old leader, and was never committed", position)
			}
		}
	})
}

func toMembers(c *servers.Cluster, numbers []int) servers.ClientOption {
	return func(config *clientv3.Config) {
		config.Endpoints = nil
		for _, i := range numbers {
			config.Endpoints = append(config.Endpoints, c.Members[i].ClientURL)
		}
	}
}

// putMany writes n keys, several at a time.
func putMany(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	const writers = 200
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := w; i < n; i += writers {
				for {
					_, err := client.Put(t.Context(), fmt.Sprintf("many/%d", i%500), fmt.Sprint(i))
					if err == nil {
						break
					}
					if t.Context().Err() != nil {
						return
					}
					time.Sleep(10 * time.Millisecond) // a leader is being elected
				}
			}
		})
	}
	wait.Wait()
}
