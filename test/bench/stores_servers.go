package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// serverRun is a testing.TB for package objectstores in a program that is no test. Where a test would end at Fatal, it
// panics, and attempt converts that to an error.
type serverRun struct {
	testing.TB // nil: a call of any other method would show at once
	ctx        context.Context
	dir        string
	do         func(testing.TB) error
	cleanups   []func()
	failed     []error
}

// fatal is the panic value of serverRun.
type fatal struct{ error }

// withServers calls do, in which the functions of package objectstores may be used, and ends the servers that were
// started. While they run, their data is in a directory below dir.
func withServers(ctx context.Context, dir string, do func(testing.TB) error) error {
	testing.Init() // testing.Short reads a flag; registered after flag.Parse, it is none of this program's
	err := os.Setenv("TMPDIR", dir)
	if err != nil {
		return err
	}
	r := &serverRun{ctx: ctx, dir: dir, do: do}
	code := objectstores.Main(r)
	if code != 0 && len(r.failed) == 0 {
		return errors.New("the object stores did not end well")
	}
	return errors.Join(r.failed...)
}

// Run is called by objectstores.Main while servers can be started.
func (r *serverRun) Run() int {
	r.attempt(func() {
		err := r.do(r)
		if err != nil {
			r.Fatal(err)
		}
	})
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.attempt(r.cleanups[i])
	}
	return min(len(r.failed), 1)
}

// attempt is the only place where the panic of Fatal ends.
func (r *serverRun) attempt(do func()) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fatal:
			r.failed = append(r.failed, v.error)
		default:
			panic(v)
		}
	}()
	do()
}

func (r *serverRun) Helper()                  {}
func (r *serverRun) Name() string             { return "bench" }
func (r *serverRun) Context() context.Context { return r.ctx }
func (r *serverRun) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *serverRun) TempDir() string {
	dir, err := os.MkdirTemp(r.dir, "files-*")
	if err != nil {
		r.Fatal(err)
	}
	return dir
}

func (r *serverRun) Log(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }
func (r *serverRun) Logf(format string, args ...any) { r.Log(fmt.Sprintf(format, args...)) }

func (r *serverRun) Error(args ...any) { r.failed = append(r.failed, asError(args)) }
func (r *serverRun) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Errorf(format, args...))
}
func (r *serverRun) Fatal(args ...any)                 { panic(fatal{asError(args)}) }
func (r *serverRun) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

// Skip fails: a missing server was not measured.
func (r *serverRun) Skip(args ...any) { r.Fatal(args...) }

// asError returns an argument that is an error unchanged, for errors.Is.
func asError(args []any) error {
	if len(args) == 1 {
		err, ok := args[0].(error)
		if ok {
			return err
		}
	}
	return errors.New(fmt.Sprint(args...))
}
