package scratch_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/scratch"
)

// listening returns the TCP addresses on which this process listens, in the kernel's notation.
func listening(t *testing.T) (all []string) {
	t.Helper()
	ours := map[string]bool{}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		to, err := os.Readlink(fd)
		if err == nil {
			ours[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // the kernel has no IPv6
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) > 9 && fields[3] == "0A" && ours[fields[9]] { // TCP_LISTEN
				all = append(all, fields[1])
			}
		}
		f.Close()
	}
	return all
}

// TestOnlyThisUserReachesIt: a drill has every Secret of the cluster, so other users of the host must not reach the server.
func TestOnlyThisUserReachesIt(t *testing.T) {
	for name, dir := range map[string]string{
		"short": t.TempDir(), "too long for a socket": filepath.Join(t.TempDir(), strings.Repeat("long", 30)),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := scratch.Boot(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			end := sync.OnceFunc(s.Close)
			defer end()
			ports := listening(t)
			if len(ports) > 0 {
				t.Errorf("it listens on %q", ports)
			}
			path, isSocket := strings.CutPrefix(s.Endpoint, "unix://")
			info, err := os.Stat(filepath.Dir(path))
			if err != nil || !isSocket || info.Mode().Perm() != 0o700 {
				t.Errorf("the directory of %s: %v, %v, want only its owner to enter it", s.Endpoint, info.Mode(), err)
			}
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: time.Minute, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Put(t.Context(), "key", "value")
			if err != nil {
				t.Errorf("its own user: %v", err)
			}
			end()
			_, err = os.Stat(filepath.Dir(path))
			if !os.IsNotExist(err) {
				t.Errorf("the socket's directory is left: %v", err)
			}
		})
	}
}

// TestBootWithUsers: Boot succeeds although the server requires a password.
func TestBootWithUsers(t *testing.T) {
	dir := t.TempDir()
	s, err := scratch.Boot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(s.Close)
	defer end()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: time.Minute, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.UserAdd(t.Context(), "root", "secret")
	if err == nil {
		_, err = client.UserGrantRole(t.Context(), "root", "root")
	}
	if err == nil {
		_, err = client.AuthEnable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	end()
	again, err := scratch.Boot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
