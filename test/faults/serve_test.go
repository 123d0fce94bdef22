package faults

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// served configures a service for one cluster.
type served struct {
	repo      repo
	endpoints []string
	recipient string
	more      string // keys of the cluster
}

// config writes the configuration of a service.
func (s served) config(t *testing.T) string {
	t.Helper()
	return command.Config(t, fmt.Sprintf("lease: 2s\nrepositories: {main: {url: %q}}\nclusters:\n"+
		"  %s: {etcd: {endpoints: [%s]}, repositories: [main], recipients: [%s], %s}\n",
		"file://"+string(s.repo), clusterName, strings.Join(s.endpoints, ", "), s.recipient, s.more))
}

func (s served) start(t *testing.T) *command.Service {
	t.Helper()
	return command.Serve(t, nil, s.config(t))
}

// idles waits until nothing is due.
func idles(t *testing.T, s *command.Service) {
	t.Helper()
	s.Until(t, "nothing is due", func(status document.ServeStatus) bool {
		return len(status.Clusters) == 1 && status.Clusters[0].State == document.StateIdle
	})
}

// crash kills a service, and waits until its children have ended.
func crash(t *testing.T, s *command.Service) {
	t.Helper()
	s.Kill(t)
	noProcess(t)
}

func TestKilledServices(t *testing.T) {
	if testing.Short() {
		return
	}
	killServices(t, 3)
}

func TestSoakKilledServices(t *testing.T) {
	if !soak.On() {
		return
	}
	killServices(t, 60)
}

// killServices kills a service in the middle of the first backup of a cluster, each time with another repository. The
// next service takes that backup if it is missing, and no other.
func killServices(t *testing.T, total int) {
	t.Helper()
	t.Logf("seed %d", seed(t))
	random := rand.New(rand.NewPCG(seed(t), 9))
	server, key := small(t)
	there, left := 0, 0
	for n := range total {
		s := served{
			repo: repo(filepath.Join(t.TempDir(), "repo")), recipient: key.recipient, more: `schedule: {cron: "@yearly"}`,
		}
		s.killInBackup(t, server, random, n%3)
		before, pieces := s.repo.list(t).Backups, s.repo.leftovers(t)
		there, left = there+len(before), left+len(pieces)
		s.endpoints = server.Endpoints()
		next := s.start(t)
		idles(t, next)
		next.Stop(t)
		after := s.repo.list(t).Backups
		if len(after) != 1 || len(before) == 1 && after[0].ID != before[0].ID {
			t.Errorf("there were %d backups when it was killed, then %d", len(before), len(after))
		}
		verifyNew(t, s.repo, key, map[catalog.ID]bool{})
		remaining := s.repo.leftovers(t)
		if !slices.Equal(remaining, pieces) {
			t.Errorf("the leftovers were %q, and are %q before their time", pieces, remaining)
		}
		s.swept(t)
	}
	if left == 0 || there == total {
		t.Errorf("of %d kills %d came after the backup, and what was left are %d pieces", total, there, left)
	}
	t.Logf("%d kills: %d after the backup was there, %d pieces left", total, there, left)
}

// killInBackup kills a service at the beginning of a backup, in its stream, or when its data is stored.
func (s served) killInBackup(t *testing.T, server *servers.Cluster, random *rand.Rand, stage int) {
	t.Helper()
	g := newGate(t, server.Members[0].ClientURL, 100<<10+random.Int64N(3<<20))
	s.endpoints = []string{g.url}
	if stage != 1 {
		g.open()
	}
	p := s.start(t)
	p.UntilLogged(t, "taking a backup")
	switch stage {
	case 0:
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) // to die somewhere else each time
	case 1:
		<-g.reached
	case 2:
		s.repo.untilThere(t, 1, "snapshot.db*")
	}
	crash(t, p)
	g.open()
}

// untilThere waits until there are so many objects of backups with such a name.
func (r repo) untilThere(t *testing.T, n int, name string) {
	t.Helper()
	for end := time.Now().Add(hangs); ; time.Sleep(time.Millisecond / 4) {
		found, err := filepath.Glob(filepath.Join(string(r), clusterName, "backups", "*", name))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is never a %s: %q", name, files(t, string(r)))
		}
	}
}

// swept makes a service with a short grace take a backup, after which no leftover of the killed ones remains.
func (s served) swept(t *testing.T) {
	t.Helper()
	waitPastLeftovers(t, s.repo)
	s.more = `schedule: {cron: "@every 1s"}, backup: {grace: 1ms}`
	p := s.start(t)
	p.UntilLogged(t, "is stored")
	p.Stop(t)
	left := s.repo.leftovers(t)
	if len(left) > 0 {
		t.Errorf("after the grace there are still %q", left)
	}
	onlyBackups(t, s.repo)
}

func TestKilledPrunes(t *testing.T) {
	if testing.Short() {
		return
	}
	killPrunes(t, 2)
}

func TestSoakKilledPrunes(t *testing.T) {
	if !soak.On() {
		return
	}
	killPrunes(t, 50)
}

// killPrunes kills a service while it removes old backups. The ones to keep stay listed and complete, and the next
// service removes the rest, including its data.
func killPrunes(t *testing.T, total int) {
	t.Helper()
	t.Logf("seed %d", seed(t))
	random := rand.New(rand.NewPCG(seed(t), 10))
	server, key := small(t)
	const old = 40
	hits := 0
	for range total {
		s := served{
			repo: repo(filepath.Join(t.TempDir(), "repo")), endpoints: server.Endpoints(), recipient: key.recipient,
			more: `schedule: {cron: "@every 1s"}, retention: {last: 2}, backup: {grace: 1ms}`,
		}
		ids := s.repo.addOld(t, server, old)
		p := s.start(t)
		s.repo.untilThere(t, 1+random.IntN(old/2), "tombstone-*.json")
		crash(t, p)
		listed := s.listed(t)
		if len(listed) > 2 {
			hits++
		}
		newest := listed[0]
		if slices.Contains(ids, newest) || !slices.Contains(listed, ids[0]) && len(listed) < 2 {
			t.Errorf("the service has taken a backup, and of two to be kept are listed %q", listed)
		}
		run(t, s.repo.flags("verify", string(listed[0]), "--level", "hashed", "--identity", key.file)...).Succeeded(t, nil)

		next := s.start(t)
		for range 3 { // the second one removes the data that the first has unlisted, and that is over before the third
			next.UntilLogged(t, "is stored")
		}
		next.Stop(t)
		after := s.listed(t)
		if len(after) != 3 || after[2] != listed[0] {
			t.Errorf("to be kept are two and what was proven, %s; listed are %q", listed[0], after)
		}
		for _, id := range ids {
			left := files(t, filepath.Join(string(s.repo), clusterName, "backups", string(id)))
			if len(left) > 0 {
				t.Errorf("of a backup that was removed is left %q", left)
			}
		}
		s.noSlotTwice(t)
		verifyNew(t, s.repo, key, map[catalog.ID]bool{})
	}
	if hits == 0 {
		t.Error("no kill was in the middle of a prune")
	}
	t.Logf("%d kills, %d in the middle", total, hits)
}

// listed returns the backups, the newest first.
func (s served) listed(t *testing.T) (ids []catalog.ID) {
	t.Helper()
	for _, b := range s.repo.list(t).Backups {
		ids = append(ids, b.ID)
	}
	return ids
}

// noSlotTwice fails the test if two backups were taken for one moment of the schedule.
func (s served) noSlotTwice(t *testing.T) {
	t.Helper()
	slots := map[string]catalog.ID{}
	for _, b := range s.repo.list(t).Backups {
		slot := b.Labels[spec.LabelSlot]
		other, twice := slots[slot]
		if twice {
			t.Errorf("%s and %s are both of %s", other, b.ID, slot)
		}
		slots[slot] = b.ID
	}
}

// addOld adds n backups of past hours, with content that cannot be restored, and returns them, the newest first.
func (r repo) addOld(t *testing.T, server *servers.Cluster, n int) (ids []catalog.ID) {
	t.Helper()
	members, err := server.Client(t).MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.Open(bucket(t, "file://"+string(r)), clusterName)
	if err != nil {
		t.Fatal(err)
	}
	for hours := range n {
		m := catalog.Manifest{
			Started: time.Now().Add(-time.Duration(hours+1) * time.Hour).UTC(), Revision: int64(1 + n - hours),
			ClusterID: fmt.Sprintf("%x", members.Header.ClusterId),
			Plain:     catalog.Blob{Name: "snapshot.db", Size: 5, SHA256: hex.EncodeToString(make([]byte, 32))},
		}
		m.Finished = m.Started
		id := catalog.NewID(m.Started, m.Revision)
		_, err := stored.CreateFrom(t.Context(), c, id, seal.Recipients{}.Seal(), strings.NewReader("sealed"),
			func() (catalog.Manifest, error) { return m, nil })
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}
