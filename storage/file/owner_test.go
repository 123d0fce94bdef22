package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
)

// Users and a group to which nothing else on the machine belongs.
const (
	alice, bob = 54321, 54322
	team       = 54330
)

// owned returns a new directory with that owner, group and mode.
func owned(t *testing.T, uid, gid int, mode fs.FileMode) string {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "only root can act as other users")
	}
	dir := t.TempDir()
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, uid, gid), os.Chmod(dir, mode))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// as runs the child "user" as that user, and in the group team if inTeam is set.
func as(t *testing.T, dir string, uid int, inTeam bool) report {
	t.Helper()
	return runChild(t, child(t, order{Do: "user", Dir: dir, UID: uid, InTeam: inTeam}))
}

// childUser does everything with the objects of a directory that a service does, and creates an object.
func childUser(o order) report {
	groups := []int{}
	if o.InTeam {
		groups = append(groups, team)
	}
	err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(o.UID), syscall.Setuid(o.UID))
	if err != nil {
		panic(err)
	}
	syscall.Umask(0o022)
	ctx := context.Background()
	b, err := file.Open(o.Dir)
	if err != nil {
		return report{"Open the directory": denied(err)}
	}
	r := report{}
	for obj, err := range b.List(ctx, storage.ListOptions{}) {
		u, ok := errors.AsType[*storage.UnlistedError](err)
		if ok {
			r["unlisted"] += u.Prefix + " " + denied(err)
			continue
		}
		if err != nil {
			r["List"] = err.Error()
			break
		}
		r["listed"] += obj.Key + " "
		source, _, err := b.Open(ctx, obj.Key, storage.OpenOptions{})
		if err != nil {
			r["Open "+obj.Key] = denied(err)
			continue
		}
		_ = source.Close()
		_, err = b.Put(ctx, obj.Key, strings.NewReader("replaced"), storage.PutOptions{})
		if err != nil {
			r["Put "+obj.Key] = denied(err)
		}
	}
	_, err = b.Put(ctx, fmt.Sprintf("c/of-%d/key", o.UID), bytes.NewReader(nil), storage.PutOptions{})
	if err != nil {
		r["Put"] = err.Error()
	}
	return r
}

// TestRootWritesForTheOwner checks that a backup which root creates by hand, in a directory of the service's user,
// belongs to that user.
func TestRootWritesForTheOwner(t *testing.T) {
	dir := owned(t, alice, alice, 0o700)
	put(t, open(t, dir), "c/backups/key", "content")
	want := report{"listed": "c/backups/key "}
	diff := cmp.Diff(want, as(t, dir, alice, false))
	if diff != "" {
		t.Error(diff)
	}
}

// TestUsersShareByAGroup checks that agent and service can be two users with one repository.
func TestUsersShareByAGroup(t *testing.T) {
	for _, mode := range []fs.FileMode{fs.ModeSetgid | 0o770, 0o770} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := owned(t, 0, team, mode)
			diff := cmp.Diff(report{}, as(t, dir, alice, true))
			if diff != "" {
				t.Error(diff)
			}
			want := report{"listed": fmt.Sprintf("c/of-%d/key ", alice)}
			diff = cmp.Diff(want, as(t, dir, bob, true))
			if diff != "" {
				t.Error(diff)
			}
			diff = cmp.Diff(report{"Open the directory": "denied"}, as(t, dir, bob, false))
			if diff != "" {
				t.Errorf("a stranger: %s", diff)
			}
			wantMode(t, filepath.Join(dir, "c"), 0o770)
			wantMode(t, filepath.Join(dir, "c", fmt.Sprintf("of-%d", alice), "key"), 0o660)
		})
	}
}

// TestAnotherUserIsRefused checks that no file is created that the owner could not read.
func TestAnotherUserIsRefused(t *testing.T) {
	dir := owned(t, alice, alice, 0o777)
	got := as(t, dir, bob, false)["Put"]
	for _, words := range []string{dir, "belongs to user 54321", "sudo -u 54321", "chmod 2770"} {
		if !strings.Contains(got, words) {
			t.Errorf("error %q does not contain %q", got, words)
		}
	}
	names := entries(dir)
	if len(names) > 0 {
		t.Errorf("%q are left", names)
	}
}

// TestUnlistedFolder checks that List omits only the objects of an unreadable directory.
func TestUnlistedFolder(t *testing.T) {
	dir := owned(t, alice, alice, 0o700)
	b := open(t, dir)
	put(t, b, "c/backups/a/key", "content")
	put(t, b, "c/backups/b/key", "content")
	put(t, b, "c/backups/c/key", "content")
	err := errors.Join(os.Chown(filepath.Join(dir, "c/backups/b"), 0, 0), os.Chmod(filepath.Join(dir, "c/backups/b"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	err = os.Chown(filepath.Join(dir, "c/backups/c/key"), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := report{
		"listed":   "c/backups/a/key c/backups/c/key ",
		"unlisted": "c/backups/b/ denied", "Open c/backups/c/key": "denied",
	}
	diff := cmp.Diff(want, as(t, dir, alice, false))
	if diff != "" {
		t.Error(diff)
	}
}

// swap replaces dir with another directory, as a mount does, and returns the path of the old one.
func swap(t *testing.T, dir, other string) (old string) {
	t.Helper()
	old = dir + ".old"
	err := errors.Join(os.Rename(dir, old), os.Rename(other, dir))
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// TestMountedUnderARunningProcess checks that a file system which is mounted over the directory is used from then on.
func TestMountedUnderARunningProcess(t *testing.T) {
	parent := t.TempDir()
	dir, disk := filepath.Join(parent, "repo"), filepath.Join(parent, "disk")
	put(t, open(t, disk), "on/disk", "content")
	b := open(t, dir)
	put(t, b, "below/the/mount", "content")
	old := swap(t, dir, disk)
	_, err := b.Stat(t.Context(), "on/disk")
	if err != nil {
		t.Error(err)
	}
	put(t, b, "new", "content")
	got, want := entries(dir), []string{"new", "on", "on/disk"}
	if !cmp.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	got, want = entries(old), []string{"below", "below/the", "below/the/mount"}
	if !cmp.Equal(got, want) {
		t.Errorf("in the old directory there is %q, want %q", got, want)
	}
}

// TestUnmountedUnderARunningProcess checks that an empty directory in place of the repository does not count as a new
// one.
func TestUnmountedUnderARunningProcess(t *testing.T) {
	parent := t.TempDir()
	dir, empty := filepath.Join(parent, "repo"), filepath.Join(parent, "empty")
	b := open(t, dir)
	put(t, b, "key", "content")
	err := os.Mkdir(empty, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	old := swap(t, dir, empty)
	wantNone(t, b, "mount its file system")
	names := entries(dir)
	if len(names) > 0 {
		t.Errorf("%q was written there", names)
	}
	err = os.Remove(dir)
	if err != nil {
		t.Fatal(err)
	}
	wantNone(t, b, "is missing")
	err = os.Rename(old, dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), "key")
	if err != nil {
		t.Error(err)
	}
}

// wantNone fails unless each method returns storage.ErrNoBucket with the words.
func wantNone(t *testing.T, b *file.Bucket, words string) {
	t.Helper()
	_, put := b.Put(t.Context(), "new", strings.NewReader(""), storage.PutOptions{})
	_, stat := b.Stat(t.Context(), "key")
	_, _, open := b.Open(t.Context(), "key", storage.OpenOptions{})
	var list error
	for _, err := range b.List(t.Context(), storage.ListOptions{}) {
		list = err
	}
	for verb, err := range map[string]error{
		"Put": put, "Stat": stat, "Open": open, "List": list, "Delete": b.Delete(t.Context(), "key", storage.DeleteOptions{}),
	} {
		if !errors.Is(err, storage.ErrNoBucket) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want ErrNoBucket with %q", verb, err, words)
		}
	}
}
