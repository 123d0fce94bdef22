//go:build linux

package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/mount"
)

// Files in the target may be the last copy: a restore refuses the target and changes nothing.
func TestOccupiedTargetIsRefusedAndUntouched(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	for name, occupy := range map[string]func(target string) error{
		"a data dir": func(target string) error {
			return os.MkdirAll(filepath.Join(target, "member", "snap"),
				0o700)
		},
		"a hidden file":     func(target string) error { return occupied(target, ".x") },
		"a file lost+found": func(target string) error { return occupied(target, "lost+found") },
		"something in lost+found": func(target string) error {
			return os.MkdirAll(filepath.Join(target, "lost+found", "#12"), 0o700)
		},
		"a file": func(target string) error { return os.WriteFile(target, []byte("x"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			into := one(t, "m1")
			err := occupy(into.DataDir)
			if err != nil {
				t.Fatal(err)
			}
			before := names(t, into.DataDir)
			p := s.plan(t, plan.Layout{Into: into})
			_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
			if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), into.DataDir) {
				t.Errorf("error %v", err)
			}
			after := names(t, into.DataDir)
			if !slices.Equal(before, after) {
				t.Errorf("in it are %q, before %q", after, before)
			}
			wantNoWork(t, filepath.Dir(into.DataDir))
		})
	}
}

func occupied(target, name string) error {
	err := os.Mkdir(target, 0o700)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, name), []byte("x"), 0o600)
}

// names returns all paths below dir.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A fresh file system holds lost+found, and is as good as empty, also where it is not seen to be a mount point.
func TestAFreshFileSystemIsEmpty(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	into := one(t, "m1")
	err := os.MkdirAll(filepath.Join(into.DataDir, "lost+found"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, s.plan(t, plan.Layout{Into: into}))
	for _, name := range []string{"member", "lost+found"} {
		_, err := os.Stat(filepath.Join(into.DataDir, name))
		if err != nil {
			t.Error(err)
		}
	}
	wantNoWork(t, into.DataDir)
}

func TestEmptyTargetIsTakenAndKeepsItsOwner(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	into := one(t, "m1")
	err := os.Mkdir(into.DataDir, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1234, 2345
		err := os.Chown(into.DataDir, uid, gid)
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, s, s.plan(t, plan.Layout{Into: into}))
	wantMode(t, into.DataDir)
	for _, path := range names(t, into.DataDir) {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		if int(owner.Uid) != uid || int(owner.Gid) != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, owner.Uid, owner.Gid, uid, gid)
		}
	}
	wantNoWork(t, filepath.Dir(into.DataDir))
}

// /var/lib/etcd is often a link to another disk.
func TestTargetThatIsALink(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	dir := t.TempDir()
	disk, link := filepath.Join(dir, "disk"), filepath.Join(dir, "etcd")
	err := errors.Join(os.Mkdir(disk, 0o700), os.Symlink("disk", link))
	if err != nil {
		t.Fatal(err)
	}
	r, _ := run(t, s, s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: link}}))
	if r.Members[0].DataDir != link {
		t.Errorf("result %+v", r.Members)
	}
	_, err = os.Stat(filepath.Join(disk, "member", "snap", "db"))
	if err != nil {
		t.Error(err)
	}
	leads, err := os.Readlink(link)
	if err != nil || leads != "disk" {
		t.Errorf("the link is %q, %v", leads, err)
	}
	wantNoWork(t, dir)
	_, err = restore.Run(t.Context(), s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: link}}), child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) {
		t.Errorf("again: error %v", err)
	}
}

func TestTargetThatIsALinkToNothing(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	link := filepath.Join(t.TempDir(), "etcd")
	err := os.Symlink("disk", link)
	if err != nil {
		t.Fatal(err)
	}
	_, err = restore.Run(t.Context(), s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: link}}), child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "is a dangling symbolic link") {
		t.Errorf("error %v", err)
	}
	wantNoWork(t, filepath.Dir(link))
}

// A mount point cannot be renamed over, so the work is done inside it.
func TestTargetIsAMountPoint(t *testing.T) {
	t.Parallel()
	mount.NeedRoot(t)
	if !mount.Alone(t) {
		return
	}
	s := store(t, plainDatabase(t), nil)
	for name, mounted := range map[string]func(t *testing.T, target string){
		"tmpfs": func(t *testing.T, target string) {
			mount.Do(t, "tmpfs", target, "tmpfs", 0, "size=512m,uid=1234,gid=2345")
		},
		"bind": func(t *testing.T, target string) {
			source := t.TempDir() // on the same device as the target: only the kernel's list of mounts shows it
			err := os.Chown(source, 1234, 2345)
			if err != nil {
				t.Fatal(err)
			}
			mount.Bind(t, source, target)
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := t.TempDir()
			mounted(t, target)
			err := errors.Join(os.Mkdir(filepath.Join(target, "lost+found"), 0o700), occupied(filepath.Join(target, "member.old"), "db"))
			if err != nil {
				t.Fatal(err)
			}
			err = os.Mkdir(filepath.Join(target, ".dr-restore-0123456789abcdef"),
				0o700)
			if err != nil { // of a killed run
				t.Fatal(err)
			}
			wantRestoredInside(t, s, target)
		})
	}
}

func wantRestoredInside(t *testing.T, s fixture, target string) {
	t.Helper()
	p := s.plan(t, plan.Layout{Into: plan.Into{OutputDir: target}})
	_, events := run(t, s, p)
	if !strings.Contains(messages(events), "removed the work dir of a killed restore") {
		t.Errorf("said %q", messages(events))
	}
	wantNoWork(t, target)
	wantNoWork(t, filepath.Dir(target))
	for _, name := range []string{"m1", "m2", "m3"} {
		wantMode(t, filepath.Join(target, name))
		info, err := os.Stat(filepath.Join(target, name, "member", "snap", "db"))
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		if owner.Uid != 1234 || owner.Gid != 2345 {
			t.Errorf("%s's database belongs to %d:%d", name, owner.Uid, owner.Gid)
		}
	}
	before := names(t, target)
	_, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) || !slices.Equal(before, names(t, target)) {
		t.Errorf("again: error %v", err)
	}
}

// A disk that is too small is refused before anything is fetched.
func TestTooLittleDisk(t *testing.T) {
	t.Parallel()
	mount.NeedRoot(t)
	if !mount.Alone(t) {
		return
	}
	s := store(t, plainDatabase(t), nil)
	disk := t.TempDir()
	mount.Do(t, "tmpfs", disk, "tmpfs", 0, "size=150m")
	into := plan.Into{OutputDir: filepath.Join(disk, "restored")}
	r, err := restore.Run(t.Context(), s.plan(t, plan.Layout{Into: into}), child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "MiB free") {
		t.Errorf("error %v", err)
	}
	if len(r.Phases) > 1 {
		t.Errorf("it went as far as %+v", r.Phases)
	}
	wantNothing(t, into)
	// One member fits: the limit is no larger than it has to be.
	run(t, s, s.plan(t, plan.Layout{Into: plan.Into{Name: "m1", DataDir: filepath.Join(disk, "m1")}}))
}
