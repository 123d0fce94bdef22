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
	d := &demoRun{Story: s, begin: time.Now()}
	err := d.prepare(ctx)
	if err == nil {
		err = d.playAll(ctx)
	}
	err = errors.Join(err, d.cleanUp())
	if err == nil {
		d.conclude(time.Since(d.begin))
	}
	if s.Keep && d.dir != "" {
		d.printKept(err == nil)
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

func (d *demoRun) prepare(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "dr-demo-*")
	if err == nil {
		d.dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	d.members, err = newMembers(d.path("members"))
	if err != nil {
		return err
	}
	err = d.openRepository(ctx)
	if err != nil {
		return err
	}
	d.keys, err = newKeys(d.dir)
	if err != nil {
		return err
	}
	d.say("A cluster is destroyed and restored, in %s.\n\n", d.dir)
	return nil
}

func (d *demoRun) playAll(ctx context.Context) error {
	for i, act := range d.acts() {
		err := d.play(ctx, i+1, act)
		if err != nil {
			return fmt.Errorf("act %d (%s): %w", i+1, act.title, err)
		}
	}
	return nil
}

// play prints an act's title, runs it, and prints its time and results.
func (d *demoRun) play(ctx context.Context, number int, a act) error {
	d.say("%-61s", fmt.Sprintf("%d. %s", number, a.title))
	begin := time.Now()
	lines, err := a.play(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		d.say("  failed\n")
		return err
	}
	d.say("%6.2f s\n", time.Since(begin).Seconds())
	for _, line := range lines {
		d.say("   %s\n", line)
	}
	return nil
}

// cleanUp stops the agent and every member. Without Keep it also removes the directory, and the objects in the user's repository.
func (d *demoRun) cleanUp() error {
	err := d.agent.end()
	d.members.stop()
	if d.Keep || d.dir == "" {
		return err
	}
	err = errors.Join(err, d.emptyRepository())
	removed := os.RemoveAll(d.dir)
	if removed != nil {
		removed = fmt.Errorf("remove the demo's folder: %w", removed)
	}
	return errors.Join(err, removed)
}

// emptyRepository removes the demo's objects from the user's repository.
func (d *demoRun) emptyRepository() error {
	if d.Repository == "" || d.repository == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for o, err := range d.bucket.List(ctx, storage.ListOptions{Prefix: d.repository.Name() + "/"}) {
		if err == nil {
			err = d.bucket.Delete(ctx, o.Key, storage.DeleteOptions{})
		}
		if err != nil {
			return fmt.Errorf("remove the demo's cluster %s from the repository: %w", d.repository.Name(), err)
		}
	}
	return nil
}

func (d *demoRun) say(format string, args ...any) { fmt.Fprintf(d.Out, format, args...) }

// printKept prints the directory of the kept files and, if the run is complete, the use of each part.
func (d *demoRun) printKept(complete bool) {
	d.say("\nKept in %s (remove it with rm -r)\n", d.dir)
	if !complete {
		return
	}
	at := fmt.Sprintf("--repo %s --cluster %s", d.repositoryURL(), d.repository.Name())
	if d.Repository != "" && d.Credentials != "" {
		at += " --credentials " + d.Credentials
	}
	d.say("  the repository     dr list %s\n", at)
	d.say("  the key to it      dr verify %s --identity %s\n", at, d.path("key.txt"))
	d.say("  root's password    %s\n", d.path("password"))
	d.say("  the restored dirs  %s\n", d.path("restored-again"))
}
