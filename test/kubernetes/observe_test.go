package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// observed is a status of an EtcdRestore, and when the test has read it.
type observed struct {
	restoration
	at time.Time
}

// restoration is the part of an EtcdRestore's status that the tests compare.
type restoration struct {
	Phase   handoff.Phase
	Since   time.Time
	Outcome struct {
		ClusterID string
		Revision  int64
	}
}

// progress are the statuses of an EtcdRestore, one after the other.
type progress struct {
	mu  sync.Mutex
	all []observed
}

// watchRestore reads all statuses of an EtcdRestore until the end of the test. It calls act, unless it is nil, at each change of the phase.
func (s *site) watchRestore(t *testing.T, namespace, name string, act func(phase handoff.Phase)) *progress {
	t.Helper()
	p := &progress{}
	cmd := s.Command([]string{"HOME=" + t.TempDir()}, "kubectl", "-n", namespace, "get", "edr", name, "--watch", "-o", "json")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nsenter has a child
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.read(out, act) })
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		reading.Wait()
		_ = cmd.Wait()
	})
	return p
}

func (p *progress) read(stream io.Reader, act func(phase handoff.Phase)) {
	decoder := json.NewDecoder(stream)
	var last handoff.Phase
	for {
		var e struct{ Status restoration }
		err := decoder.Decode(&e)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.all = append(p.all, observed{e.Status, time.Now()})
		p.mu.Unlock()
		if e.Status.Phase != last && act != nil {
			act(e.Status.Phase)
		}
		last = e.Status.Phase
	}
}

// wait waits until a phase is reached, and returns its first status.
func (p *progress) wait(t *testing.T, phase handoff.Phase) (o observed) {
	t.Helper()
	eventually(t, "phase "+string(phase), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.IndexFunc(p.all, func(o observed) bool { return o.Phase == phase })
		if i >= 0 {
			o = p.all[i]
		}
		return i >= 0
	})
	return o
}

// phase returns the newest phase, or "".
func (p *progress) phase() handoff.Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) == 0 {
		return ""
	}
	return p.all[len(p.all)-1].Phase
}

// answer is one answer of a member at its client port.
type answer struct {
	member   int
	cluster  uint64 // its id
	revision int64
	at       time.Time
}

// probe asks all members of a StatefulSet for their status, each every 100 ms, until the returned function is called. That returns all
// answers.
func (s *site) probe(t *testing.T, namespace string) (end func() []answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}}
	var mu sync.Mutex
	var all []answer
	var probing sync.WaitGroup
	for member := range 3 {
		url := fmt.Sprintf("http://etcd-%d.etcd.%s.svc.cluster.local:2379/v3/maintenance/status", member, namespace)
		probing.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				cluster, revision, err := ask(client, url)
				if err != nil {
					continue
				}
				mu.Lock()
				all = append(all, answer{member, cluster, revision, time.Now()})
				mu.Unlock()
			}
		})
	}
	return func() []answer {
		cancel()
		probing.Wait()
		return all
	}
}

// ask returns the id and the revision of the cluster whose member answers at a URL.
func ask(client *http.Client, url string) (cluster uint64, revision int64, err error) {
	reply, err := client.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, 0, err
	}
	defer reply.Body.Close()
	var status struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id,string"`
			Revision  int64  `json:",string"`
		}
	}
	err = json.NewDecoder(reply.Body).Decode(&status)
	return status.Header.ClusterID, status.Header.Revision, err
}

// wantOnlyRestored fails the test if a member of another cluster than the restored one, whose id is in hex, has answered after a time. From
// then on a program that starts the members can start only those that have the new data already.
func wantOnlyRestored(t *testing.T, answers []answer, after time.Time, id string) {
	t.Helper()
	before, restored := 0, 0
	for _, a := range answers {
		switch {
		case a.at.Before(after):
			before++
		case fmt.Sprintf("%x", a.cluster) == id:
			restored++
		default:
			t.Errorf("member %d of cluster %x has answered %s after the data dirs were closed", a.member, a.cluster, a.at.Sub(after))
		}
	}
	if before == 0 || restored == 0 {
		t.Errorf("%d answers came before and %d after: the probe has not worked", before, restored)
	}
}
