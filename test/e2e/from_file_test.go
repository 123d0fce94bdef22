package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// fetched returns the plain snapshot of a backup of c.
func fetched(t *testing.T, j job, c *servers.Cluster) string {
	t.Helper()
	j.backUp(t, c)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	command.Must(t, j.env, "fetch", "--to", path)
	return path
}

// atDefaultPort makes a member answer clients at etcd's default port of another loopback address, and returns that address.
func atDefaultPort(t *testing.T, m *servers.Member) string {
	t.Helper()
	host := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&0xff, 1+os.Getpid()%250)
	l, err := net.Listen("tcp", host+":2379")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(m.ClientURL, "http://"))
			if err != nil {
				from.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(to, from)
				to.Close()
			}()
			go func() {
				_, _ = io.Copy(from, to)
				from.Close()
			}()
		}
	}()
	return host
}

// TestRestoreOfAFileIsRefusedByALiveMember restores a plain file for members of which one still answers at the host of another.
func TestRestoreOfAFileIsRefusedByALiveMember(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	file := fetched(t, newJob(t), c)
	member := c.Members[0]
	host := atDefaultPort(t, member)
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{
		"restore", "--from-file", file, "--skip-hash-check", "--output-dir", dir,
		"--initial-cluster", fmt.Sprintf("%s=%s,m2=http://%s:2380", member.Name, member.PeerURL, host),
	}
	command.Run(t, nil, args...).Ended(t, 4, "still answers at http://"+host+":2379")
	_, err := os.Stat(dir)
	if !os.IsNotExist(err) {
		t.Errorf("%s exists: %v", dir, err)
	}
	c.Stop(t, 0)
	command.Must(t, nil, args...)
}

// TestFreshToken restores one member twice: with --fresh-token each run forms a cluster of its own, without it both form the same.
func TestFreshToken(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	file := fetched(t, newJob(t), c)
	id := func(args ...string) string {
		args = append([]string{
			"restore", "--from-file", file, "--skip-hash-check", "--name", "m1", "--initial-cluster", "m1=http://127.0.0.1:1",
			"--data-dir", filepath.Join(t.TempDir(), "m1"),
		}, args...)
		return command.Result[document.Restore](t, nil, args...).ClusterID
	}
	derived, again := id(), id()
	if derived == "" || derived != again {
		t.Errorf("without --fresh-token the cluster ids are %s and %s", derived, again)
	}
	fresh, other := id("--fresh-token"), id("--fresh-token")
	if fresh == other || fresh == derived || other == derived {
		t.Errorf("with --fresh-token the cluster ids are %s and %s, without it %s", fresh, other, derived)
	}
}
