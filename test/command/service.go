package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/process"
)

const (
	patience      = 3 * time.Minute // far beyond the time of any step
	statusTimeout = time.Second
	pollInterval  = 50 * time.Millisecond
	logInterval   = 5 * time.Millisecond
)

// Service is one running dr that listens: dr serve or dr archive. It is killed when the test ends. If the test failed,
// its log is shown.
type Service struct {
	URL     string
	process *process.Process
	log     string
	read    int // bytes of the log that UntilLogged has read
}

// Serve starts dr serve with a configuration file.
func Serve(t testing.TB, env []string, config string) *Service {
	t.Helper()
	return Listen(t, env, "serve", "--config", config)
}

// Config writes the configuration of a service to a file, and returns its path.
func Config(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "dr.yaml")
	Reconfigure(t, path, text)
	return path
}

// Reconfigure replaces a configuration file by rename, so that a service reads the old one or the new one.
func Reconfigure(t testing.TB, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	err = os.Rename(path+".new", path)
	if err != nil {
		t.Fatal(err)
	}
}

// Listen starts dr with a --listen flag.
func Listen(t testing.TB, env []string, args ...string) *Service {
	t.Helper()
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	s := &Service{URL: "http://" + address, log: filepath.Join(t.TempDir(), "dr.log")}
	s.process, err = process.Start(s.log, prepare(t, env, append(args, "--listen", address)...))
	if err != nil {
		t.Fatalf("start dr %s: %v", args[0], err)
	}
	t.Cleanup(func() {
		_ = s.process.Kill() // it may have ended
		if t.Failed() {
			t.Logf("the log of dr %s at %s:\n%s", args[0], s.URL, s.Log())
		}
	})
	return s
}

// PID returns the process id.
func (s *Service) PID() int { return s.process.ID() }

// Running reports whether the service has not ended yet.
func (s *Service) Running() bool { return s.process.Running() }

// Log returns everything that the service has written to its outputs.
func (s *Service) Log() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// UntilLogged waits for a line of the log that contains the words, after the line that the last call found.
func (s *Service) UntilLogged(t testing.TB, words string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(logInterval) {
		running := s.Running()
		log, err := os.ReadFile(s.log)
		if err != nil {
			t.Fatal(err)
		}
		unread := string(log[s.read:])
		place := strings.Index(unread, words)
		if place >= 0 {
			length := strings.IndexByte(unread[place:], '\n')
			s.read += place + max(length, len(words))
			return
		}
		if !running || time.Now().After(deadline) {
			t.Fatalf("dr has not logged %q", words)
		}
	}
}

// Get returns the status code and the body of the answer at a path.
func (s *Service) Get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	code, data, err := s.get(path, patience)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(data)
}

// get returns the answer at a path. A service limits the requests per second: get repeats a request that was refused for
// that reason, and returns an error if that lasts for the timeout.
func (s *Service) get(path string, timeout time.Duration) (code int, body []byte, err error) {
	for deadline := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
		code, body, err = s.getOnce(path, timeout)
		if err != nil || code != http.StatusTooManyRequests {
			return code, body, err
		}
		if time.Now().After(deadline) {
			return code, nil, fmt.Errorf("%s: status code %d for %v", path, code, timeout)
		}
	}
}

func (s *Service) getOnce(path string, timeout time.Duration) (code int, body []byte, err error) {
	client := http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	response, err := client.Get(s.URL + path)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// DecodeStatus decodes the status of dr serve or dr archive. It waits for a second at most, for callers that repeat it.
func (s *Service) DecodeStatus(status any) error { return s.decodeStatus(status, statusTimeout) }

func (s *Service) decodeStatus(status any, timeout time.Duration) error {
	code, body, err := s.get("/status", timeout)
	if err != nil {
		return err
	}
	err = json.Unmarshal(body, status)
	if err != nil {
		return fmt.Errorf("status code %d: %w", code, err)
	}
	return nil
}

// Status returns the status of dr serve, also of one that is slow to answer.
func (s *Service) Status() (status document.ServeStatus, err error) {
	err = s.decodeStatus(&status, patience)
	return status, err
}

// Until waits until wanted accepts the status of dr serve.
func (s *Service) Until(t testing.TB, what string, wanted func(document.ServeStatus) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		running := s.Running()
		var status document.ServeStatus
		err := s.DecodeStatus(&status)
		if err == nil && wanted(status) {
			return
		}
		if !running || time.Now().After(deadline) {
			t.Fatalf("waited for: %s; dr is %s, its last status %+v, %v", what, s.process.State(), status, err)
		}
	}
}

// Signal sends a signal to the service, which must not have ended.
func (s *Service) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	err := s.process.Signal(signal)
	if err != nil {
		t.Fatalf("signal %v to dr: %v", signal, err)
	}
}

// Kill ends the service as a crash would.
func (s *Service) Kill(t testing.TB) {
	t.Helper()
	s.Signal(t, syscall.SIGKILL)
	s.Wait(t)
}

// Stop ends the service with SIGTERM. The test fails unless its exit code is 0.
func (s *Service) Stop(t testing.TB) {
	t.Helper()
	s.Signal(t, syscall.SIGTERM)
	code := s.Wait(t)
	if code != 0 {
		t.Errorf("dr was stopped, exit code %d", code)
	}
}

// Wait waits until the service has ended, and returns its exit code.
func (s *Service) Wait(t testing.TB) int {
	t.Helper()
	code, ended := s.process.Wait(patience)
	if !ended {
		t.Fatalf("dr still runs")
	}
	return code
}
