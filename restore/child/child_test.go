package child_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

var (
	errBad    = fault.New(fault.Damaged, "bad")
	errAbsent = fault.New(fault.NotFound, "absent")
	errOther  = errors.New("of no kind")
)

// TestMain is also the main function of the child.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		serve := func() error { return child.Serve(context.Background(), verbs[os.Args[2]], os.Stdin, os.Stdout) }
		if os.Args[2] == "count" {
			serve = func() error { return child.ServeItems(context.Background(), count, os.Stdin, os.Stdout) }
		}
		err := serve()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	parent := os.Getenv(dirEnv)
	if parent != "" {
		holdDir(parent)
	}
	fifo := os.Getenv(middleEnv)
	if fifo != "" {
		err := child.Call{Verb: "watch", Job: fifo}.Run(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1) // it must be killed before
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // under -race a child would wait a second before it ends
	os.Exit(m.Run())
}

// job is the job of the verbs in these tests.
type job struct {
	Text   string
	Number int
}

// seen describes the child's own process.
type seen struct {
	Job     job
	Argv    string
	Environ string
}

var verbs = map[string]child.Verb{
	"echo":    echo,
	"nothing": func(context.Context, []byte, storage.Report) (any, error) { return nil, nil },
	"large":   func(context.Context, []byte, storage.Report) (any, error) { return strings.Repeat("x", 1<<20), nil },
	"unencodable": func(context.Context, []byte, storage.Report) (any, error) {
		return func() {}, nil
	},
	"bad": func(context.Context, []byte, storage.Report) (any, error) {
		return nil, fmt.Errorf("object x is %w: see\ny", errBad)
	},
	"both":  func(context.Context, []byte, storage.Report) (any, error) { return nil, errors.Join(errAbsent, errBad) },
	"other": func(context.Context, []byte, storage.Report) (any, error) { return nil, errOther },
	"panic": staged(func() { panic("page 7 is not there\nsecond line") }),
	"panic of an error": staged(func() {
		panic(fmt.Errorf("page 8: %w", errBad))
	}),
	"panic elsewhere": staged(func() {
		go func() { panic("page 9 is not there") }()
		select {}
	}),
	"fault": staged(unmapped),
	"exit":  staged(func() { os.Exit(0) }),
	"words": staged(func() { fmt.Fprintln(os.Stderr, "\n\n  last words \nmore"); os.Exit(3) }),
	"flood": staged(func() {
		fmt.Fprintln(os.Stderr,
			"panic: first\n"+strings.Repeat("goroutine 1\n", 1<<17))
		os.Exit(2)
	}),
	"kill":    staged(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }),
	"garbage": garbage,
	"garbage and exit": func(ctx context.Context, input []byte, report storage.Report) (any, error) {
		_, _ = garbage(ctx, input, report)
		os.Exit(0)
		return nil, nil
	},
	"kept": func(_ context.Context, input []byte, report storage.Report) (any, error) {
		err := leaveBehind(input)
		report.Say(storage.Event{Stage: "here"})
		time.Sleep(time.Hour)
		return nil, err
	},
	"kept, answered": func(_ context.Context, input []byte, _ storage.Report) (any, error) {
		return "done", leaveBehind(input)
	},
	"watch":    watch,
	"polite":   polite,
	"finished": finished,
	"stubborn": func(_ context.Context, _ []byte, report storage.Report) (any, error) {
		report.Say(storage.Event{Stage: "here"})
		time.Sleep(time.Hour) // ignores ctx; with select{} the runtime would report a deadlock
		return nil, nil
	},
}

func echo(_ context.Context, input []byte, report storage.Report) (any, error) {
	var s seen
	err := json.Unmarshal(input, &s.Job)
	if err != nil {
		return nil, err
	}
	argv, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return nil, err
	}
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return nil, err
	}
	s.Argv, s.Environ = string(argv), string(environ)
	report.Say(storage.Event{Stage: "one", Message: "first", Done: 1, Total: 2})
	report.Say(storage.Event{Stage: "two", Level: storage.Warning, Object: "x"})
	return s, nil
}

// staged returns a verb that calls do at the stage "check".
func staged(do func()) child.Verb {
	return func(_ context.Context, _ []byte, report storage.Report) (any, error) {
		report.Say(storage.Event{Stage: "fetch"})
		report.Say(storage.Event{Stage: "check"})
		do()
		return nil, nil
	}
}

// unmapped reads after the end of a mapped file, as bbolt does in a truncated file.
func unmapped() {
	f, err := os.CreateTemp("", "child-fault-*")
	if err != nil {
		panic(err)
	}
	os.Remove(f.Name())
	page, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	fmt.Fprint(io.Discard, page[17])
}

// garbage prints lines as a library might, some of them JSON.
func garbage(_ context.Context, _ []byte, report storage.Report) (any, error) {
	for _, line := range []string{"WARNING: x", "", "{", `{"level":"info"}`, "null", "[1]", `{"event":null}`,
		`{"result":`, `"text"`, strings.Repeat("x", 1<<20)} {
		fmt.Println(line)
	}
	report.Say(storage.Event{Stage: "check"})
	return "an answer", nil
}

// watch writes its start and the cause of its end to a named pipe. The reader of the pipe also sees the end of this process.
func watch(ctx context.Context, input []byte, _ storage.Report) (any, error) {
	var fifo string
	err := json.Unmarshal(input, &fifo)
	if err != nil {
		return nil, err
	}
	pipe, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(pipe, "here")
	<-ctx.Done()
	fmt.Fprintln(pipe, context.Cause(ctx), errors.Is(context.Cause(ctx), child.ErrOrphaned))
	return nil, nil
}

func polite(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var path string
	err := json.Unmarshal(input, &path)
	if err != nil {
		return nil, err
	}
	report.Say(storage.Event{Stage: "here"})
	<-ctx.Done()
	return nil, errors.Join(context.Cause(ctx), os.WriteFile(path, []byte("tidied"), 0o600))
}

// finished completes its work when it is asked to end.
func finished(ctx context.Context, _ []byte, report storage.Report) (any, error) {
	report.Say(storage.Event{Stage: "here"})
	<-ctx.Done()
	return "done", nil
}

func TestAnswer(t *testing.T) {
	var got seen
	var events []storage.Event
	want := job{Text: "AGE-SECRET-KEY-1 is in here", Number: 7}
	err := child.Call{Verb: "echo", Job: want, Result: &got, Report: func(e storage.Event) { events = append(events, e) }}.Run(t.Context())
	if err != nil || got.Job != want {
		t.Fatalf("job %+v, error %v", got.Job, err)
	}
	if len(events) != 2 || events[0].Stage != "one" || events[0].Done != 1 || events[0].Total != 2 ||
		events[0].Message != "first" ||
		events[1].Level != storage.Warning || events[1].Object != "x" || events[0].Time.IsZero() {
		t.Errorf("events %+v", events)
	}
	// Every user of a machine can read a process's arguments, and its owner the environment: neither contains the job.
	if strings.Contains(got.Argv, "SECRET") || strings.Contains(got.Environ, "AGE-SECRET-KEY-1") {
		t.Errorf("the secret is in argv or environment: %q", got.Argv)
	}
	args := strings.Split(strings.TrimSuffix(got.Argv, "\x00"), "\x00")
	if len(args) != 3 || args[1] != "child" ||
		args[2] != "echo" {
		t.Errorf("arguments %q", args)
	}
}

func TestAnswerThatIsNull(t *testing.T) {
	result := new(int)
	err := child.Call{Verb: "nothing", Result: &result}.Run(t.Context())
	if err != nil || result != nil {
		t.Errorf("result %v, error %v", result, err)
	}
}

func TestLargeJobAndAnswer(t *testing.T) {
	var got seen
	want := job{Text: strings.Repeat("ä", 1<<20)}
	err := child.Call{Verb: "echo", Job: want, Result: &got}.Run(t.Context())
	if err != nil || got.Job != want {
		t.Errorf("%d bytes came back, error %v", len(got.Job.Text), err)
	}
	var large string
	err = child.Call{Verb: "large", Result: &large}.Run(t.Context())
	if err != nil || len(large) != 1<<20 {
		t.Errorf("%d bytes, error %v", len(large), err)
	}
}

func TestErrorsKeepMessageAndKind(t *testing.T) {
	for verb, want := range map[string]struct {
		message string
		is, not []error
	}{
		"bad":   {"object x is bad: see\ny", []error{errBad}, []error{errAbsent, context.Canceled}},
		"both":  {"absent\nbad", []error{errBad, errAbsent}, []error{context.Canceled}},
		"other": {"of no kind", nil, []error{errOther, errBad, errAbsent}},
	} {
		err := child.Call{Verb: verb}.Run(t.Context())
		if err == nil || err.Error() != want.message {
			t.Errorf("%s: error %q, want %q", verb, err, want.message)
		}
		for _, is := range want.is {
			if !errors.Is(err, is) {
				t.Errorf("%s: error %v is not %v", verb, err, is)
			}
		}
		for _, not := range want.not {
			if errors.Is(err, not) {
				t.Errorf("%s: error %v is %v", verb, err, not)
			}
		}
	}
}

func TestDeaths(t *testing.T) {
	for verb, want := range map[string]child.DiedError{
		"panic":             {Stage: "check", Words: "page 7 is not there"},
		"panic of an error": {Stage: "check", Words: "page 8: bad"},
		"panic elsewhere":   {Stage: "check", Words: "page 9 is not there"},
		"exit":              {Stage: "check", Words: "it printed nothing"},
		"words":             {Stage: "check", Words: "last words"},
		"flood":             {Stage: "check", Words: "first"},
		"kill":              {Stage: "check", Words: "it printed nothing", Killed: true},
		"garbage and exit":  {Stage: "check", Words: "it printed nothing"},
	} {
		t.Run(verb, func(t *testing.T) {
			err := child.Call{Verb: verb}.Run(t.Context())
			died, ok := errors.AsType[*child.DiedError](err)
			if !ok || *died != want {
				t.Fatalf("error %+v (%v), want %+v", died, err, want)
			}
			text := err.Error()
			if strings.Contains(text, "\n") || !strings.Contains(text, "stage "+want.Stage) ||
				want.Killed != strings.Contains(text, "killed") {
				t.Errorf("it says %q", text)
			}
		})
	}
}

func TestAnswerThatCannotBeEncoded(t *testing.T) {
	err := child.Call{Verb: "unencodable"}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unsupported type: func()") {
		t.Errorf("error %v", err)
	}
}

// A verb that hangs and ignores the end of its parent does not keep its process alive.
func TestHangingOrphanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdin, parent := io.Pipe()
		released := make(chan struct{})
		hang := func(context.Context, []byte, storage.Report) (any, error) {
			<-released
			return nil, nil
		}
		served := make(chan error)
		go func() { served <- child.Serve(t.Context(), hang, stdin, io.Discard) }()
		fmt.Fprintln(parent, "{}")
		synctest.Wait()
		select {
		case err := <-served:
			t.Fatalf("it ended while its parent lived: %v", err)
		default:
		}
		parent.Close()
		err := <-served
		if !errors.Is(err, child.ErrOrphaned) {
			t.Errorf("error %v", err)
		}
		close(released)
	})
}

func TestDeathByAFault(t *testing.T) {
	err := child.Call{Verb: "fault"}.Run(t.Context())
	died, ok := errors.AsType[*child.DiedError](err)
	if !ok || died.Killed || died.Stage != "check" || !strings.HasPrefix(died.Words, "unexpected fault address") {
		t.Errorf("error %+v (%v)", died, err)
	}
}

func TestGarbageOnStdoutIsSkipped(t *testing.T) {
	var got string
	err := child.Call{Verb: "garbage", Result: &got}.Run(t.Context())
	if err != nil || got != "an answer" {
		t.Errorf("result %q, error %v", got, err)
	}
}

func TestJobThatCannotBeDescribed(t *testing.T) {
	err := child.Call{Verb: "echo", Job: func() {}}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the job of echo") {
		t.Errorf("error %v", err)
	}
}

func TestCancelIsPolite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tidied")
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := child.Call{Verb: "polite", Job: path, Report: func(storage.Event) { cancel(stop) }}.Run(ctx)
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	_, err = os.Stat(path)
	if err != nil {
		t.Errorf("the child could not tidy up: %v", err)
	}
}

// A cancellation after the work returns the result: a completed restore must not look like a failed one.
func TestCancelAfterTheWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var got string
	err := child.Call{Verb: "finished", Result: &got, Report: func(storage.Event) { cancel() }}.Run(ctx)
	if err != nil || got != "done" {
		t.Errorf("result %q, error %v", got, err)
	}
}

func TestCancelBeforeTheStart(t *testing.T) {
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	err := child.Call{Verb: "echo", Job: job{}}.Run(ctx)
	if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the ten seconds that a child has")
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := child.Call{Verb: "stubborn", Report: func(storage.Event) { cancel() }}.Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Run waits only some seconds for a child that does not end after it was killed or has answered: the kernel keeps a process
// that waits for a hanging file system, and its end of the pipe. In this test a grandchild keeps the pipe open.
func TestChildThatDoesNotEndIsAbandoned(t *testing.T) {
	child.Hasten(t)
	for verb, want := range map[string]error{"kept": context.Canceled, "kept, answered": nil} {
		fifo := filepath.Join(t.TempDir(), "released")
		err := syscall.Mkfifo(fifo, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var text string
		err = child.Call{Verb: verb, Job: fifo, Result: &text, Report: func(storage.Event) {
			if want != nil {
				cancel()
			}
		}}.Run(ctx)
		cancel()
		if !errors.Is(err, want) || want == nil && text != "done" {
			t.Errorf("%s: %q, error %v", verb, text, err)
		}
		release, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		release.Close()
	}
}

// leaveBehind starts a process that keeps this one's stdout open until the fifo in the job is opened.
func leaveBehind(input []byte) error {
	var fifo string
	err := json.Unmarshal(input, &fifo)
	if err != nil {
		return err
	}
	keeper := exec.Command("cat", fifo)
	keeper.Stdout = os.Stdout
	return keeper.Start()
}

const middleEnv = "ETCD_DR_CHILD_TEST_MIDDLE"

// A killed parent cannot ask its child to end; the end of stdin does.
func TestChildEndsWithItsParent(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	err := syscall.Mkfifo(fifo, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	middle := exec.CommandContext(t.Context(), os.Args[0])
	middle.Env = append(os.Environ(), middleEnv+"="+fifo)
	err = middle.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = middle.Process.Kill() }()
	pipe, err := os.OpenFile(fifo, os.O_RDONLY, 0) // until the child has opened its end
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	err = pipe.SetReadDeadline(time.Now().Add(30 * time.Second))
	if err != nil {
		t.Logf("no deadline on a pipe: %v", err)
	}
	lines := bufio.NewReader(pipe)
	line, err := lines.ReadString('\n')
	if err != nil || line != "here\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	err = middle.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	_ = middle.Wait()
	rest, err := io.ReadAll(lines) // ends when no process has the pipe open
	if err != nil || string(rest) != "the parent process has ended true\n" {
		t.Errorf("the child said %q, %v", rest, err)
	}
}

func TestServeWithoutAJob(t *testing.T) {
	var out strings.Builder
	err := child.Serve(t.Context(), verbs["echo"], strings.NewReader("{"), &out)
	if err == nil || !strings.Contains(err.Error(), "job") || out.Len() > 0 {
		t.Errorf("error %v, said %q", err, out.String())
	}
}

// Events of many goroutines arrive as whole lines.
func TestReportsFromManyGoroutines(t *testing.T) {
	in, hold := io.Pipe()
	defer hold.Close()
	go func() { _, _ = hold.Write([]byte("{}\n")) }()
	var out strings.Builder
	verb := func(_ context.Context, _ []byte, report storage.Report) (any, error) {
		done := make(chan bool)
		for range 8 {
			go func() {
				for range 50 {
					report.Say(storage.Event{Stage: strings.Repeat("s", 300)})
				}
				done <- true
			}()
		}
		for range 8 {
			<-done
		}
		return "end", nil
	}
	err := child.Serve(t.Context(), verb, in, &out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 401 || lines[400] != `{"result":"end"}` {
		t.Fatalf("%d lines, the last %s", len(lines), lines[len(lines)-1])
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("line %s", line)
		}
	}
}
