package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// With a separate directory for the log, possibly on another disk, etcd starts with both.
func TestLogInADirectoryOfItsOwn(t *testing.T) {
	t.Parallel()
	s := store(t, plainDatabase(t), nil)
	url := servers.FreeURLs(t, 1)[0]
	into := withLog(t)
	p := s.plan(t, plan.Layout{Members: []plan.Member{memberAt("m1", url)}, Into: into})
	r, _ := run(t, s, p)

	_, err := os.Stat(filepath.Join(into.DataDir, "member", "wal"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log in the data dir: %v, want none", err)
	}
	command := strings.Join(r.Members[0].Command, " ")
	want := " --data-dir " + into.DataDir + " --wal-dir " + into.WALDir + " "
	if !strings.Contains(command, want) {
		t.Errorf("%q does not have %q", command, want)
	}
	wantMode(t, into.WALDir)
	wantNoWork(t, filepath.Dir(into.DataDir))
	wantNoWork(t, filepath.Dir(into.WALDir))
	member := launchWith(t, into, p.InitialCluster(), url)
	wait(t, member)
	wantServing(t, []*embed.Etcd{member}, plainDatabase(t))
}

// withLog returns where m1 shall be, with its log elsewhere.
func withLog(t *testing.T) plan.Into {
	t.Helper()
	into := one(t, "m1")
	into.WALDir = filepath.Join(t.TempDir(), "wal")
	return into
}

// An existing log may be the last copy: a restore keeps it, and creates no data dir.
func TestOccupiedLogDirectoryIsRefused(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	into := withLog(t)
	err := occupied(into.WALDir, "0000000000000000-0000000000000000.wal")
	if err != nil {
		t.Fatal(err)
	}
	before := names(t, into.WALDir)
	p := s.plan(t, plan.Layout{Into: into})
	_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), into.WALDir) {
		t.Errorf("error %v", err)
	}
	_, err = os.Stat(into.DataDir)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data dir: %v, want none", err)
	}
	after := names(t, into.WALDir)
	if !slices.Equal(before, after) {
		t.Errorf("in it are %q, before %q", after, before)
	}
	wantNoWork(t, filepath.Dir(into.DataDir))
	wantNoWork(t, filepath.Dir(into.WALDir))
}

func TestLogDirectoryGoesWithOneDataDir(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{})
	for name, c := range map[string]struct {
		into plan.Into
		want string
	}{
		"all members":     {plan.Into{OutputDir: "/out", WALDir: "/wal"}, "--data-dir"},
		"no data dir":     {plan.Into{Name: "m1", WALDir: "/wal"}, "--data-dir"},
		"in the data dir": {plan.Into{Name: "m1", DataDir: "/etcd", WALDir: "/etcd/wal"}, "/etcd/wal"},
		"the same":        {plan.Into{Name: "m1", DataDir: "/etcd", WALDir: "/etcd/"}, "/etcd"},
		"around it":       {plan.Into{Name: "m1", DataDir: "/wal/etcd", WALDir: "/wal"}, "/wal"},
		"relative":        {plan.Into{Name: "m1", DataDir: "/etcd", WALDir: "wal"}, "absolute"},
	} {
		_, err := p.Place(c.into)
		if !errors.Is(err, plan.ErrLayout) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for _, into := range []plan.Into{
		{Name: "m1", DataDir: "/etcd", WALDir: "/etcd-wal"}, {Name: "m1", DataDir: "/etcd", WALDir: "/..wal"},
	} {
		_, err := p.Place(into)
		if err != nil {
			t.Errorf("%+v: %v", into, err)
		}
	}
}
