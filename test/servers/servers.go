// Package servers starts real etcd servers on loopback for tests, fills them with data and compares the contents of two
// of them.
//
// A cluster belongs to the test that started it: its processes are killed and its directories removed when that test
// ends, and the kernel kills them when the test binary dies. The methods of one Cluster are for one goroutine at a
// time.
package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
)

const (
	readyTimeout = 3 * time.Minute
	stopTimeout  = 3 * time.Minute
	startTries   = 3
)

// Options describe a cluster. The zero value is one member of the newest version, without TLS and authentication.
type Options struct {
	Version string // one of Versions; empty: the newest
	Members int    // 0: one

	// TLS makes clients and peers present a certificate of the cluster's own authority. Certificates are created unless
	// they are given.
	TLS          bool
	Certificates *Certificates

	// Auth turns authentication on, with the users root and User. With Boot it means that the data already has them.
	Auth bool

	QuotaBytes int64    // 0: etcd's default
	ExtraArgs  []string // additional flags for every member
}

// Cluster is a running etcd cluster.
type Cluster struct {
	Version      string
	Members      []*Member
	Certificates *Certificates // nil without TLS
	RootPassword string        // empty without authentication
	UserPassword string        // of User; empty without authentication

	options Options
}

// Member is one server of a cluster.
type Member struct {
	Name      string
	ClientURL string
	PeerURL   string
	DataDir   string
	LogFile   string
	ExtraArgs []string // flags of this member alone, used from its next Restart on

	process *process.Process
	paused  bool
}

// Existing is a data dir to boot. Its name and peer URL must be those that the restore wrote into it.
type Existing struct {
	Name      string
	DataDir   string
	PeerURL   string
	ClientURL string // empty: a free port is chosen
}

// Start starts a new cluster and waits until every member knows a leader.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := newCluster(t, o)
	c.launch(t, func() []*Member { return c.newMembers(t) })
	if o.Auth {
		c.enableAuth(t)
	}
	return c
}

// Boot starts a cluster on data dirs that exist, such as restored ones, and waits until every member knows a leader.
// Options.Members is not used. It refuses a dir without a member, on which etcd would silently begin an empty cluster.
func Boot(t testing.TB, o Options, dirs ...Existing) *Cluster {
	t.Helper()
	for _, dir := range dirs {
		err := holdsMember(dir.DataDir)
		if err != nil {
			t.Fatalf("boot %s: %v", dir.Name, err)
		}
	}
	c := newCluster(t, o)
	c.launch(t, func() []*Member { return c.existingMembers(t, dirs) })
	return c
}

// holdsMember returns an error unless dir has a log and a database.
func holdsMember(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return fmt.Errorf("%s has no log in member/wal", dir)
	}
	_, err = os.Stat(filepath.Join(dir, "member", "snap", "db"))
	return err
}

func newCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Version == "" {
		o.Version = Versions[len(Versions)-1]
	}
	o.Members = max(o.Members, 1)
	c := &Cluster{Version: o.Version, options: o}
	if o.TLS {
		c.Certificates = o.Certificates
		if c.Certificates == nil {
			c.Certificates = NewCertificates(t)
		}
	}
	if o.Auth {
		c.RootPassword, c.UserPassword = rootPassword, userPassword
	}
	return c
}

// launch starts the members that place returns. Another process may take a port between the choice and the start, so it
// retries with another port.
func (c *Cluster) launch(t testing.TB, place func() []*Member) {
	t.Helper()
	t.TempDir() // registers its removal, which then comes after the processes' end
	t.Cleanup(func() { c.cleanUp(t) })
	for try := 1; ; try++ {
		c.Members = place()
		err := c.start(t, c.Members)
		if err == nil {
			return
		}
		if try == startTries || !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("etcd %s did not start: %v", c.Version, err)
		}
		c.killAll(t)
	}
}

func (c *Cluster) newMembers(t testing.TB) []*Member {
	t.Helper()
	dir := t.TempDir()
	peers := freeURLs(t, c.scheme(), c.options.Members)
	var members []*Member
	for i, peer := range peers {
		name := fmt.Sprintf("m%d", i+1)
		members = append(members, &Member{
			Name:      name,
			ClientURL: freeURLs(t, c.scheme(), 1)[0],
			PeerURL:   peer,
			DataDir:   filepath.Join(dir, name),
			LogFile:   filepath.Join(dir, name+".log"),
		})
	}
	return members
}

func (c *Cluster) existingMembers(t testing.TB, dirs []Existing) []*Member {
	t.Helper()
	logs := t.TempDir()
	var members []*Member
	for _, dir := range dirs {
		client := dir.ClientURL
		if client == "" {
			client = freeURLs(t, c.scheme(), 1)[0]
		}
		members = append(members, &Member{
			Name:      dir.Name,
			ClientURL: client,
			PeerURL:   dir.PeerURL,
			DataDir:   dir.DataDir,
			LogFile:   filepath.Join(logs, dir.Name+".log"),
		})
	}
	return members
}

func (c *Cluster) scheme() string {
	if c.options.TLS {
		return "https"
	}
	return "http"
}

// start runs members that are not running and waits for them.
func (c *Cluster) start(t testing.TB, members []*Member) error {
	t.Helper()
	program := Tool(t, c.Version, "etcd")
	for _, m := range members {
		p, err := startProcess(m.LogFile, program, c.args(m)...)
		if err != nil {
			return err
		}
		m.process = p
	}
	return c.waitReady(t, members)
}

func (c *Cluster) args(m *Member) []string {
	var peers []string
	for _, member := range c.Members {
		peers = append(peers, member.Name+"="+member.PeerURL)
	}
	args := []string{
		"--name", m.Name,
		"--data-dir", m.DataDir,
		"--listen-client-urls", m.ClientURL,
		"--advertise-client-urls", m.ClientURL,
		"--listen-peer-urls", m.PeerURL,
		"--initial-advertise-peer-urls", m.PeerURL,
		"--initial-cluster", strings.Join(peers, ","),
		"--initial-cluster-token", "etcd-dr-test",
		"--initial-cluster-state", "new",
		"--logger", "zap",
		"--log-outputs", "stderr",
		// The cheapest hash: a login costs a tenth of a second otherwise, on every member.
		"--bcrypt-cost", "4",
	}
	if c.Version != "3.4" {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.options.TLS {
		args = append(args, c.tlsArgs()...)
	}
	if c.options.QuotaBytes != 0 {
		args = append(args, "--quota-backend-bytes", fmt.Sprint(c.options.QuotaBytes))
	}
	return slices.Concat(args, c.options.ExtraArgs, m.ExtraArgs)
}

func (c *Cluster) tlsArgs() []string {
	files := c.Certificates
	return []string{
		"--client-cert-auth", "--trusted-ca-file", files.CA, "--cert-file", files.ServerCert, "--key-file", files.ServerKey,
		"--peer-client-cert-auth", "--peer-trusted-ca-file", files.CA, "--peer-cert-file", files.ServerCert, "--peer-key-file", files.ServerKey,
	}
}

// Endpoints returns the client URLs of all members, running or not.
func (c *Cluster) Endpoints() []string {
	var urls []string
	for _, m := range c.Members {
		urls = append(urls, m.ClientURL)
	}
	return urls
}

// PID returns the process id of the running member, 0 if it does not run.
func (m *Member) PID() int {
	if !m.running() {
		return 0
	}
	return m.process.ID()
}

func (m *Member) running() bool {
	return m.process != nil && m.process.Running()
}

// Kill ends member i as a crash would, with SIGKILL.
func (c *Cluster) Kill(t testing.TB, i int) {
	t.Helper()
	c.kill(t, c.Members[i])
}

func (c *Cluster) kill(t testing.TB, m *Member) {
	t.Helper()
	m.paused = false
	if m.process == nil {
		return
	}
	err := m.process.Kill()
	if err != nil {
		t.Errorf("kill %s: %v", m.Name, err)
	}
}

func (c *Cluster) killAll(t testing.TB) {
	t.Helper()
	for _, m := range c.Members {
		c.kill(t, m)
	}
}

// Stop ends member i with SIGTERM, and waits until it is gone.
func (c *Cluster) Stop(t testing.TB, i int) {
	t.Helper()
	m := c.Members[i]
	if !m.running() {
		return
	}
	if m.paused {
		c.Resume(t, i)
	}
	late := time.AfterFunc(stopTimeout, func() { _ = m.process.Signal(syscall.SIGKILL) })
	err := m.process.End(syscall.SIGTERM)
	if err != nil {
		t.Fatalf("stop %s: %v", m.Name, err)
	}
	if !late.Stop() {
		t.Errorf("%s did not stop within %v and was killed", m.Name, stopTimeout)
	}
}

// StopAll stops every member, one after the other.
func (c *Cluster) StopAll(t testing.TB) {
	t.Helper()
	for i := range c.Members {
		c.Stop(t, i)
	}
}

// Restart starts members that were killed or stopped, on the same data and ports, and waits until each knows a leader.
// Without a number it starts all that do not run. Members that are a majority only together must be started by one
// call.
func (c *Cluster) Restart(t testing.TB, numbers ...int) {
	t.Helper()
	var members []*Member
	for i, m := range c.Members {
		if !m.running() && (len(numbers) == 0 || slices.Contains(numbers, i)) {
			members = append(members, m)
		}
	}
	err := c.start(t, members)
	if err != nil {
		t.Fatalf("restart: %v", err)
	}
}

// Launch starts member i, which is down, and does not wait for it: it may never find a leader.
func (c *Cluster) Launch(t testing.TB, i int) {
	t.Helper()
	m := c.Members[i]
	p, err := startProcess(m.LogFile, Tool(t, c.Version, "etcd"), c.args(m)...)
	if err != nil {
		t.Fatalf("launch %s: %v", m.Name, err)
	}
	m.process = p
}

// Pause freezes member i: its connections stay open and nothing answers.
func (c *Cluster) Pause(t testing.TB, i int) {
	t.Helper()
	m := c.Members[i]
	if !m.running() {
		t.Fatalf("%s does not run", m.Name)
	}
	err := process.Freeze(m.PID())
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	m.paused = true
}

// Resume lets a paused member continue.
func (c *Cluster) Resume(t testing.TB, i int) {
	t.Helper()
	c.signal(t, i, syscall.SIGCONT)
	c.Members[i].paused = false
}

func (c *Cluster) signal(t testing.TB, i int, signal os.Signal) {
	t.Helper()
	m := c.Members[i]
	if !m.running() {
		t.Fatalf("%s does not run", m.Name)
	}
	err := m.process.Signal(signal)
	if err != nil {
		t.Fatalf("signal %v to %s: %v", signal, m.Name, err)
	}
}

// cleanUp shows the servers' output if the test failed, which often has the reason.
func (c *Cluster) cleanUp(t testing.TB) {
	c.killAll(t)
	if !t.Failed() {
		return
	}
	for _, m := range c.Members {
		if m.process == nil {
			continue
		}
		t.Logf("the log of %s (etcd %s):\n%s", m.Name, c.Version, process.Excerpt(m.LogFile))
	}
}
