package faults

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

func TestKilledDrills(t *testing.T) {
	if testing.Short() {
		return
	}
	killDrills(t, 3)
}

func TestSoakKilledDrills(t *testing.T) {
	if !soak.On() {
		return
	}
	killDrills(t, 60)
}

// killDrills kills a service in the middle of the first drill of a cluster, each time with another repository. Its
// child ends, and leaves nothing. If the service is killed before it has a child, it leaves an empty directory. The
// next service drills if there is no proof yet, and then there is one, and no directory.
func killDrills(t *testing.T, total int) {
	t.Helper()
	t.Logf("seed %d", seed(t))
	random := rand.New(rand.NewPCG(seed(t), 11))
	server, key := small(t)
	proven := 0
	for n := range total {
		s := served{repo: repo(filepath.Join(t.TempDir(), "repo")), endpoints: server.Endpoints(), recipient: key.recipient}
		backUp(t, s.repo, key, s.endpoints)
		scratch := t.TempDir()
		s.more = fmt.Sprintf(`drill: {schedule: {cron: "@yearly"}, identityFiles: [%s], scratchDir: %s}`, key.file, scratch)
		p := s.start(t)
		p.UntilLogged(t, "starting a drill: no drill has run yet")
		time.Sleep(time.Duration(random.IntN(1+n%4*300)) * time.Millisecond) // to die somewhere else each time, and the first at once
		crash(t, p)
		nothingPlainIn(t, scratch)
		before := s.repo.proofs(t)
		proven += before

		next := s.start(t)
		drilled(t, next, s.repo)
		next.Stop(t)
		noProcess(t)
		nothingIn(t, scratch)
		after := s.repo.proofs(t)
		if before > 1 || after != 1 {
			t.Errorf("there were %d proofs when it was killed, then %d, want one", before, after)
		}
	}
	if proven == total {
		t.Error("no kill was in the middle of a drill")
	}
	t.Logf("%d kills, %d after the proof was there", total, proven)
}

// nothingPlainIn fails the test if there is any file in dir except locks.
func nothingPlainIn(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			t.Errorf("%s was left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// proofs returns the number of proofs.
func (r repo) proofs(t *testing.T) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(string(r), clusterName, "backups", "*", "proof-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// drilled waits until the repository has a proof and no drill is due. A drill that loses its lease to a slow disk is repeated.
func drilled(t *testing.T, s *command.Service, in repo) {
	t.Helper()
	s.Until(t, "a drill is done", func(status document.ServeStatus) bool {
		return len(status.Clusters) == 1 && status.Clusters[0].NextDrill.After(time.Now()) && in.proofs(t) > 0
	})
}
