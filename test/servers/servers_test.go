package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3"
)

// TestEveryVersionLosesAMember starts every version as it is used in production: three members, certificates on all
// sides, authentication. One member is killed and restarted.
func TestEveryVersionLosesAMember(t *testing.T) {
	needServers(t)
	t.Parallel()
	for _, version := range Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := Start(t, Options{Version: version, Members: 3, TLS: true, Auth: true})
			client := c.Client(t)
			Fill(t, client, 1, FillOptions{Kubernetes: true})

			victim := c.Leader(t)
			c.Kill(t, victim)
			c.Leader(t) // a write through the dying leader would time out
			revision := Fill(t, client, 2, FillOptions{Keys: 50})
			c.Restart(t, victim)

			// A member forgets all logins when it ends, and before 3.6 a client does not notice. This one logs in
			// again.
			client = c.Client(t, At(c.Members[victim]))
			want := HashKV(t, client, c.Members[(victim+1)%3].ClientURL, revision)
			got := HashKV(t, client, c.Members[victim].ClientURL, revision)
			if got.Hash != want.Hash || got.CompactRevision != want.CompactRevision {
				t.Fatalf("the restarted member hashes to %v, another to %v", got, want)
			}
			c.MoveLeader(t, victim)
		})
	}
}

func TestLoginByPasswordAndByCertificate(t *testing.T) {
	needServers(t)
	t.Parallel()
	c := Start(t, Options{TLS: true, Auth: true})
	byCertificate := c.Client(t, As("", ""))
	_, err := byCertificate.Put(t.Context(), "/other/key", "root's certificate may")
	if err != nil {
		t.Error(err)
	}
	byPassword := c.Client(t, As(User, c.UserPassword))
	_, err = byPassword.Put(t.Context(), UserPrefix+"key", "alice may")
	if err != nil {
		t.Error(err)
	}
	_, err = byPassword.Put(t.Context(), "/other/key", "alice may not")
	if err == nil {
		t.Error("a user wrote outside its prefix")
	}
}

// TestBootRestoredDirs boots data dirs that the oldest and the newest server's tool restored from their snapshots, on
// peer URLs that were chosen before.
func TestBootRestoredDirs(t *testing.T) {
	needServers(t)
	t.Parallel()
	for _, test := range []struct {
		options Options
		program string
	}{
		{Options{Version: "3.4"}, "etcdctl"},
		{Options{Version: "3.7", TLS: true, Auth: true}, "etcdutl"},
	} {
		t.Run(test.options.Version, func(t *testing.T) {
			t.Parallel()
			source := Start(t, test.options)
			Fill(t, source.Client(t), 3, FillOptions{})
			snapshot := saveSnapshot(t, source.Client(t))

			options := test.options
			options.Certificates = source.Certificates
			dirs := restore(t, Tool(t, options.Version, test.program), snapshot, freeURLs(t, source.scheme(), 3))
			restored := Boot(t, options, dirs...)
			RequireSame(t, source.Client(t), restored.Client(t))
		})
	}
}

// restore creates a data dir for each peer URL with etcd's own tool.
func restore(t *testing.T, program, snapshot string, peers []string) []Existing {
	t.Helper()
	parent := t.TempDir()
	var dirs []Existing
	var all []string
	for i, peer := range peers {
		name := "restored" + string(rune('a'+i))
		dirs = append(dirs, Existing{Name: name, DataDir: filepath.Join(parent, name), PeerURL: peer})
		all = append(all, name+"="+peer)
	}
	for _, dir := range dirs {
		command := exec.Command(program, "snapshot", "restore", snapshot, "--name", dir.Name, "--data-dir", dir.DataDir,
			"--initial-advertise-peer-urls", dir.PeerURL, "--initial-cluster", strings.Join(all, ","))
		command.Env = append(environment(), "ETCDCTL_API=3")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, out)
		}
	}
	return dirs
}

func saveSnapshot(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	response, err := client.SnapshotWithVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Snapshot.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = file.ReadFrom(response.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFillIsTheSameTwiceAndSameSeesEveryDifference(t *testing.T) {
	needServers(t)
	t.Parallel()
	a, b := Start(t, Options{Version: "3.6"}).Client(t), Start(t, Options{}).Client(t)
	for _, client := range []*clientv3.Client{a, b} {
		Fill(t, client, 7, FillOptions{Keys: 5000, ValueSize: 16})
	}
	RequireSame(t, a, b)

	changes := map[string]func(ctx context.Context) error{
		"role of": func(ctx context.Context) error { _, err := b.RoleAdd(ctx, "role of"); return err },
		"bob":     func(ctx context.Context) error { _, err := b.UserAdd(ctx, "bob", "x"); return err },
		"lease b0b": func(ctx context.Context) error {
			f := newFiller(b, 0, FillOptions{})
			f.leases = 0xb0a
			_, err := f.grant(ctx)
			return err
		},
		"key/7/004": func(ctx context.Context) error {
			_, err := b.Delete(ctx, "key/7/004", clientv3.WithPrefix())
			return err
		},
	}
	for sign, change := range changes {
		err := change(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, err := differences(t.Context(), a, b)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(found, "\n"), sign) {
			t.Errorf("no word of %s in %q", sign, found)
		}
	}
}

func TestPauseStopAndRestartAll(t *testing.T) {
	needServers(t)
	t.Parallel()
	c := Start(t, Options{Members: 3})
	first := c.Leader(t)
	c.Pause(t, first)
	second := c.Leader(t)
	if second == first {
		t.Errorf("%d leads while it is paused", second)
	}
	c.Resume(t, first)
	c.StopAll(t)
	for _, m := range c.Members {
		if m.PID() != 0 {
			t.Errorf("%s still runs", m.Name)
		}
	}
	c.Restart(t)
	c.Leader(t)
}

func TestStartTakesAnotherPort(t *testing.T) {
	needServers(t)
	t.Parallel()
	c := newCluster(t, Options{})
	taken := Start(t, Options{}).Members[0]
	tries := 0
	c.launch(t, func() []*Member {
		members := c.newMembers(t)
		tries++
		if tries == 1 {
			members[0].ClientURL = taken.ClientURL
		}
		return members
	})
	if tries != 2 {
		t.Errorf("it took %d tries, want 2", tries)
	}
}

func TestAServerThatEndsIsReportedWithItsLastWords(t *testing.T) {
	needServers(t)
	c := newCluster(t, Options{ExtraArgs: []string{"--no-such-flag"}})
	c.Members = c.newMembers(t)
	err := c.start(t, c.Members)
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v, want the server's complaint", err)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		t.Error("a wrong flag was taken for a port in use")
	}
}

func TestAnEmptyDirIsNoMember(t *testing.T) {
	err := holdsMember(t.TempDir())
	if err == nil {
		t.Error("an empty dir passed for a member's")
	}
}

// TestServersDieWithTheTestBinary checks that the servers do not outlive a test binary that is killed. The test runs
// itself as the victim.
func TestServersDieWithTheTestBinary(t *testing.T) {
	needServers(t)
	const mark = "ETCD_DR_SERVERS_VICTIM"
	file := os.Getenv(mark)
	if file != "" {
		c := Start(t, Options{})
		err := os.WriteFile(file, []byte(c.Members[0].ClientURL), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		return
	}
	file = filepath.Join(t.TempDir(), "url")
	victim := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheTestBinary$")
	victim.Env = append(os.Environ(), mark+"="+file)
	err := victim.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill() }()
	url := waitFor(t, func() (string, bool) {
		data, err := os.ReadFile(file)
		return string(data), err == nil && len(data) > 0
	})
	err = victim.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	client := (&Cluster{}).httpClient(t)
	waitFor(t, func() (string, bool) {
		_, err := askState(t.Context(), client, &Member{ClientURL: url})
		return "", err != nil
	})
}

func waitFor(t *testing.T, done func() (string, bool)) string {
	t.Helper()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
		result, ok := done()
		if ok {
			return result
		}
	}
	t.Fatalf("it did not happen within %v", readyTimeout)
	return ""
}

func TestFreeURLsAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for _, url := range append(FreeURLs(t, 20), FreeTLSURLs(t, 20)...) {
		_, port, _ := strings.Cut(url, "://")
		if seen[port] {
			t.Errorf("%s was given twice", url)
		}
		seen[port] = true
	}
}

// needServers keeps the short tests free of real servers.
func needServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts real servers")
	}
}
