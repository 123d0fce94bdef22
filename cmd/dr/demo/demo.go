// Package demo destroys and restores a cluster of three embedded etcd members, and compares the data before and after. In a
// second part it undoes a mistake with the archived log.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Story holds the options of one run of the demo.
type Story struct {
	Repository  string    // URL; "": a temporary directory
	Credentials string    // folder with Repository's credentials; "": those of the environment
	Keep        bool      // keep the directory and the objects in the repository
	Out         io.Writer // receives the output
	Version     string    // of dr
}

// timeLimit bounds the whole demo, which normally takes some seconds.
const timeLimit = 5 * time.Minute

// Tell runs the demo. When it returns, no member runs, and without Keep nothing is left on the disk. Its error names the act
// that failed.
func (s Story) Tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("the demo did not end within %s", timeLimit))
	defer cancel()
	t := &demoRun{Story: s, begin: time.Now()}
	err := t.prepare(ctx)
	if err == nil {
		err = t.playAll(ctx)
	}
	err = errors.Join(err, t.cleanUp())
	if err == nil {
		t.conclude(time.Since(t.begin))
	}
	if s.Keep && t.dir != "" {
		t.printKept(err == nil)
	}
	return err
}

// demoRun is the state of one run of a Story.
type demoRun struct {
	Story
	begin      time.Time
	dir        string // contains all files of the demo
	members    members
	bucket     storage.Bucket
	repository *repository.Cluster
	keys
	data
	before holding   // the content of each member before the disaster
	lost   time.Time // when the members were stopped before the latest restore
	token  string    // of the restored cluster
	outage time.Duration

	agent        *agent // archives the log in the second part; nil before
	secondOutage time.Duration
}

func (t *demoRun) prepare(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "dr-demo-*")
	if err == nil {
		t.dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	t.members, err = newMembers(t.path("members"))
	if err != nil {
		return err
	}
	err = t.openRepository(ctx)
	if err != nil {
		return err
	}
	t.keys, err = newKeys(t.dir)
	if err != nil {
		return err
	}
	t.say("A cluster is destroyed and restored, in %s.\n\n", t.dir)
	return nil
}

func (t *demoRun) playAll(ctx context.Context) error {
	for i, act := range t.acts() {
		err := t.play(ctx, i+1, act)
		if err != nil {
			return fmt.Errorf("act %d (%s): %w", i+1, act.title, err)
		}
	}
	return nil
}

// play prints an act's title, runs it, and prints its time and results.
func (t *demoRun) play(ctx context.Context, number int, a act) error {
	t.say("%-61s", fmt.Sprintf("%d. %s", number, a.title))
	begin := time.Now()
	lines, err := a.play(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		t.say("  failed\n")
		return err
	}
	t.say("%6.2f s\n", time.Since(begin).Seconds())
	for _, line := range lines {
		t.say("   %s\n", line)
	}
	return nil
}

// cleanUp stops the agent and every member. Without Keep it also removes the directory, and the objects in the user's repository.
func (t *demoRun) cleanUp() error {
	err := t.agent.end()
	t.members.stop()
	if t.Keep || t.dir == "" {
		return err
	}
	err = errors.Join(err, t.emptyRepository())
	removed := os.RemoveAll(t.dir)
	if removed != nil {
		removed = fmt.Errorf("remove the demo's folder: %w", removed)
	}
	return errors.Join(err, removed)
}

// emptyRepository removes the demo's objects from the user's repository.
func (t *demoRun) emptyRepository() error {
	if t.Repository == "" || t.repository == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for o, err := range t.bucket.List(ctx, storage.ListOptions{Prefix: t.repository.Name() + "/"}) {
		if err == nil {
			err = t.bucket.Delete(ctx, o.Key, storage.DeleteOptions{})
		}
		if err != nil {
			return fmt.Errorf("remove the demo's cluster %s from the repository: %w", t.repository.Name(), err)
		}
	}
	return nil
}

func (t *demoRun) say(format string, args ...any) { fmt.Fprintf(t.Out, format, args...) }

// printKept prints the directory of the kept files and, if the run is complete, the use of each part.
func (t *demoRun) printKept(complete bool) {
	t.say("\nKept in %s (remove it with rm -r)\n", t.dir)
	if !complete {
		return
	}
	at := fmt.Sprintf("--repo %s --cluster %s", t.repositoryURL(), t.repository.Name())
	if t.Repository != "" && t.Credentials != "" {
		at += " --credentials " + t.Credentials
	}
	t.say("  the repository     dr list %s\n", at)
	t.say("  the key to it      dr verify %s --identity %s\n", at, t.path("key.txt"))
	t.say("  root's password    %s\n", t.path("password"))
	t.say("  the restored dirs  %s\n", t.path("restored-again"))
}
