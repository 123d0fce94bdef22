package config_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

// call contains the arguments with which Watch called its function once.
type call struct {
	c   config.Config
	err error
}

// watched watches text in a bubble. DIR in text means its directory.
func watched(t *testing.T, text string, test func(t *testing.T, dir string, ask chan<- os.Signal, tells <-chan call)) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "password", "one")
		path := write(t, dir, "dr.yaml", strings.ReplaceAll(text, "DIR", dir))
		first, err := config.Load(path, nothing)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ask, tells, ended := make(chan os.Signal, 1), make(chan call, 10), make(chan struct{})
		go func() {
			defer close(ended)
			config.Watcher{Path: path, Getenv: nothing, Reload: ask, Tell: func(c config.Config, err error) { tells <- call{c, err} }}.Watch(ctx, first)
		}()
		test(t, dir, ask, tells)
		stop()
		<-ended
	})
}

// quiet fails if Watch makes a call. It ends between two looks of Watch at the files, so that Watch does not see what the test then
// writes before it is complete.
func quiet(t *testing.T, why string, tells <-chan call) {
	t.Helper()
	time.Sleep(time.Minute + time.Second)
	if len(tells) > 0 {
		t.Errorf("%s, and it tells %+v", why, <-tells)
	}
}

func TestWatch(t *testing.T) {
	text := strings.Replace(minimal, "2379]", "2379], user: root, passwordFile: DIR/password", 1)
	watched(t, text, func(t *testing.T, dir string, ask chan<- os.Signal, tells <-chan call) {
		quiet(t, "nothing has changed", tells)
		text := strings.ReplaceAll(text, "DIR", dir)
		write(t, dir, "dr.yaml", text+"concurrency: 9\n")
		got := <-tells
		if got.err != nil || got.c.Concurrency != 9 {
			t.Errorf("the file has changed, and it tells %+v", got)
		}
		write(t, dir, "password", "another one")
		got = <-tells
		if got.err != nil || got.c.Specs[0].Etcd.Password != "another one" {
			t.Errorf("a file that it names has changed, and it tells %+v", got)
		}
		quiet(t, "nothing has changed since", tells)
		write(t, dir, "dr.yaml", "leese: 9")
		got = <-tells
		if !errors.Is(got.err, config.ErrConfig) {
			t.Errorf("the file is wrong, and it tells %+v", got)
		}
		quiet(t, "it is as wrong as it was", tells)
		err := os.Remove(dir + "/dr.yaml")
		if err != nil {
			t.Fatal(err)
		}
		got = <-tells
		if !errors.Is(got.err, os.ErrNotExist) {
			t.Errorf("the file is gone, and it tells %+v", got)
		}
		write(t, dir, "dr.yaml", text)
		got = <-tells
		if got.err != nil || got.c.Concurrency != 4 {
			t.Errorf("the file is right again, and it tells %+v", got)
		}
		ask <- os.Interrupt
		got = <-tells
		if got.err != nil {
			t.Errorf("asked, it tells %+v", got)
		}
	})
}

// Watch loads the configuration again when a missing file that it names appears.
func TestWatchWaitsForAFile(t *testing.T) {
	watched(t, minimal, func(t *testing.T, dir string, _ chan<- os.Signal, tells <-chan call) {
		write(t, dir, "dr.yaml", strings.Replace(minimal, "2379]", "2379], user: root, passwordFile: "+dir+"/later", 1))
		got := <-tells
		if got.err == nil {
			t.Errorf("it tells %+v", got)
		}
		quiet(t, "the password is not there", tells)
		write(t, dir, "later", "x")
		got = <-tells
		if got.err != nil || got.c.Specs[0].Etcd.User != "root" {
			t.Errorf("it tells %+v", got)
		}
	})
}

// TestWatchFoldersThatMatch checks that a file is noticed in a folder that is only known by a pattern.
func TestWatchFoldersThatMatch(t *testing.T) {
	watched(t, strings.Replace(fleetMain, "clusters.d/*.yaml", "clusters.d/*/*.yaml", 1), func(t *testing.T, dir string, _ chan<- os.Signal, tells <-chan call) {
		for _, name := range []string{"first/a", "first/b", "second/c"} {
			quiet(t, "nothing has changed", tells)
			_, err := fleet(t, dir, map[string]string{"clusters.d/" + name + ".yaml": like(name[len(name)-1:])})
			if err != nil {
				t.Fatal(err)
			}
			got := <-tells
			if got.err != nil || !slices.Contains(names(got.c), name[len(name)-1:]) {
				t.Errorf("%s.yaml was added, and it tells %+v", name, got)
			}
		}
	})
}
