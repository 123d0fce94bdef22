package objectstores

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
)

const (
	// Azurite reads some 400 packages from a disk that other tests use too: a minute was too short on a busy host.
	readyTimeout = 5 * time.Minute
	pollInterval = 20 * time.Millisecond
	startTries   = 3
)

// launch describes how to start a server.
type launch struct {
	name    string
	command func(dir string, port int) *exec.Cmd // its environment is added to that of all servers
	tls     bool
	// ready returns nil once the server serves; it is called until then.
	ready func(ctx context.Context, client *http.Client, url string) error
}

// start returns the running server's URL. Another process may take a port between the choice and the start, so it
// retries with another port.
func (l launch) start() (string, error) {
	var failed error
	for range startTries {
		url, err := l.try()
		if err == nil {
			return url, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", failed
}

func (l launch) try() (string, error) {
	dir, err := os.MkdirTemp(shared.dir, l.name+"-*")
	if err != nil {
		return "", err
	}
	port, err := process.FreePort()
	if err != nil {
		return "", err
	}
	cmd := l.command(dir, port)
	cmd.Dir = dir
	cmd.Env = append(environment(dir), cmd.Env...)
	log := filepath.Join(dir, "log")
	p, err := process.Start(log, cmd)
	if err != nil {
		return "", err
	}
	url := fmt.Sprintf("%s://127.0.0.1:%d", l.scheme(), port)
	err = l.wait(p, url)
	if err != nil {
		err = fmt.Errorf("%s did not start: %w; its log:\n%s", l.name, err, process.Excerpt(log))
		return "", errors.Join(err, p.Kill())
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.running = append(shared.running, p)
	return url, nil
}

func (l launch) scheme() string {
	if l.tls {
		return "https"
	}
	return "http"
}

// environment returns variables without the machine's settings for clouds and proxies, which servers on loopback do not
// need.
func environment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
}

func (l launch) wait(p *process.Process, url string) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(pollInterval) {
		err := l.ask(client, url)
		switch {
		case !p.Running():
			// Another server may have its port and answer in its place.
			return fmt.Errorf("it ended: %s", p.State())
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %v: %w", readyTimeout, err)
		}
	}
}

func (l launch) ask(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return l.ready(ctx, client, url)
}

// answering returns a ready function for a server that answers at path with a status.
func answering(path string, status int) func(context.Context, *http.Client, string) error {
	return func(ctx context.Context, client *http.Client, url string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != status {
			err = fmt.Errorf("%s answers %s", url+path, response.Status)
		}
		return errors.Join(err, response.Body.Close())
	}
}
