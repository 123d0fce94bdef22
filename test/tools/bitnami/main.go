// Command bitnami stands in for the scripts of bitnami's image of etcd, which the tests do not have: it starts etcd after the same decisions
// on the data dir (libetcd.sh of the images from 3.5 on, etcd_initialize). It needs etcd and etcdctl in its path, and takes etcd's settings
// from the variables of the chart.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bitnami stand-in: ")
	initial := strings.Split(os.Getenv("ETCD_INITIAL_CLUSTER"), ",")
	dataDir := os.Getenv("ETCD_DATA_DIR")
	err := prepare(dataDir, initial)
	if err != nil {
		log.Fatal(err)
	}
	path, err := exec.LookPath("etcd")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(syscall.Exec(path, []string{"etcd"}, os.Environ()))
}

// prepare decides about a data dir that is not empty: that of a member whose cluster is not healthy is kept, or replaced by the newest
// snapshot of the image; that of a member which a healthy cluster does not know is removed, and the member joins anew.
func prepare(dataDir string, initial []string) error {
	entries, err := os.ReadDir(dataDir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(entries) == 0:
		log.Print("there is no data")
		return nil
	case err != nil:
		return err
	case !isHealthy(initial) && os.Getenv("ETCD_DISASTER_RECOVERY") == "yes":
		log.Print("the cluster is not healthy: the newest snapshot replaces the data")
		return restoreSnapshot(dataDir)
	case !isHealthy(initial):
		log.Print("the cluster is not healthy: the data is kept")
		return nil
	case isMember():
		log.Print("the cluster is healthy, and this is a member of it")
		return os.Setenv("ETCD_INITIAL_CLUSTER_STATE", "existing")
	}
	log.Print("the cluster is healthy, and this is no member of it: the data is removed")
	return joinAnew(dataDir, initial)
}

// isHealthy reports whether half of the members, or more, answer.
func isHealthy(initial []string) bool {
	healthy := 0
	for _, endpoint := range endpoints(initial) {
		_, err := etcdctl("--endpoints", endpoint, "endpoint", "health")
		if err == nil {
			healthy++
		}
	}
	return healthy >= (len(initial)+1)/2
}

// endpoints returns the client URLs of the members, which have the hosts of their peer URLs.
func endpoints(initial []string) (urls []string) {
	for _, member := range initial {
		_, url, _ := strings.Cut(member, "=")
		urls = append(urls, strings.TrimSuffix(url, ":2380")+":2379")
	}
	return urls
}

func etcdctl(args ...string) (string, error) {
	out, err := exec.Command("etcdctl", append([]string{"--dial-timeout=2s", "--command-timeout=5s"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("etcdctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Lines of etcd's log that show whether its peers accept it.
var (
	accepted = regexp.MustCompile("established TCP streaming connection with remote peer")
	refused  = regexp.MustCompile(`member has been permanently removed|ignored streaming request; ID mismatch|cluster ID mismatch`)
)

// isMember starts etcd until a line of its log shows whether it is a member of its peers' cluster.
func isMember() bool {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cmd := exec.CommandContext(ctx, "etcd")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.StderrPipe()
	if err != nil {
		log.Fatal(err)
	}
	err = cmd.Start()
	if err != nil {
		log.Fatal(err)
	}
	lines, member := bufio.NewScanner(output), true
	for lines.Scan() {
		if refused.MatchString(lines.Text()) {
			member = false
			break
		}
		if accepted.MatchString(lines.Text()) {
			break
		}
	}
	stop()
	_ = cmd.Wait()
	return member
}

// restoreSnapshot replaces the data dir by the newest snapshot in /snapshots.
func restoreSnapshot(dataDir string) error {
	snapshots, err := filepath.Glob("/snapshots/db-*")
	if err != nil || len(snapshots) == 0 {
		return fmt.Errorf("there is no snapshot to restore (%w)", err)
	}
	err = os.RemoveAll(dataDir)
	if err != nil {
		return err
	}
	out, err := exec.Command("etcdutl", "snapshot", "restore", slices.Max(snapshots), "--data-dir", dataDir, "--name", os.Getenv("ETCD_NAME"),
		"--initial-cluster", os.Getenv("ETCD_INITIAL_CLUSTER"), "--initial-cluster-token", os.Getenv("ETCD_INITIAL_CLUSTER_TOKEN"),
		"--initial-advertise-peer-urls", os.Getenv("ETCD_INITIAL_ADVERTISE_PEER_URLS")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restore %s: %w: %s", slices.Max(snapshots), err, out)
	}
	return nil
}

// joinAnew removes the data dir and the member that the cluster knows by this one's URL, and adds this one as a new member.
func joinAnew(dataDir string, initial []string) error {
	err := os.RemoveAll(dataDir)
	if err != nil {
		return err
	}
	all, url := "--endpoints="+strings.Join(endpoints(initial), ","), os.Getenv("ETCD_INITIAL_ADVERTISE_PEER_URLS")
	list, err := etcdctl(all, "member", "list")
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		id, rest, _ := strings.Cut(line, ",")
		if strings.Contains(rest, url) {
			_, err = etcdctl(all, "member", "remove", id)
		}
	}
	if err != nil {
		return err
	}
	_, err = etcdctl(all, "member", "add", os.Getenv("ETCD_NAME"), "--peer-urls="+url)
	if err != nil {
		return err
	}
	return os.Setenv("ETCD_INITIAL_CLUSTER_STATE", "existing")
}
