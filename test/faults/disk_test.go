package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/mount"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// inOwnMounts is mount.Alone for a test that runs dr.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	return mount.Alone(t, command.Variable+"="+command.Path())
}

// disk is a small file system in memory.
type disk string

func newDisk(t *testing.T, size string) disk {
	t.Helper()
	dir := t.TempDir()
	mount.Do(t, "tmpfs", dir, "tmpfs", 0, "size="+size)
	return disk(dir)
}

// resize sets the size in bytes, which may not be less than what is used.
func (d disk) resize(t *testing.T, size int64) {
	t.Helper()
	err := unix.Mount("tmpfs", string(d), "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size))
	if err != nil {
		t.Fatal(err)
	}
}

// fill uses all free space except so many bytes.
func (d disk) fill(t *testing.T, but int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(string(d), "filler"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	free, at := d.free(t)-but, int64(0)
	for step := free; step >= pageSize; { // other processes write too
		switch err := unix.Fallocate(int(f.Fd()), 0, at, step); {
		case err == nil:
			at += step
			step = min(step, d.free(t)-but)
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINTR):
			step /= 2
		default:
			t.Fatal(err)
		}
	}
}

func (d disk) free(t *testing.T) int64 {
	t.Helper()
	var s unix.Statfs_t
	err := unix.Statfs(string(d), &s)
	if err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

// empty frees the space that fill has used, and fails the test if any other file exists.
func (d disk) empty(t *testing.T) {
	t.Helper()
	err := os.Remove(filepath.Join(string(d), "filler"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	nothingIn(t, string(d))
}

const noSpace = "no space left on device"

func TestFullDiskUnderTheRepository(t *testing.T) {
	if testing.Short() || !inOwnMounts(t) {
		return
	}
	source := servers.Start(t, servers.Options{})
	fillRandom(t, source.Client(t), 1, 48<<20, 8000)
	key := newKey(t, filepath.Join(t.TempDir(), "key.txt"))

	d := newDisk(t, "32m")
	r := repo(d)
	run(t, backupArgs(r, key, source.Endpoints())...).Failed(t, 1, noSpace)
	list := r.list(t)
	if len(list.Backups)+len(list.Damaged) > 0 {
		t.Errorf("dr list shows %+v", list)
	}
	d.empty(t)

	spool := newDisk(t, "32m")
	elsewhere := repo(filepath.Join(t.TempDir(), "repo"))
	run(t, backupArgs(elsewhere, key, source.Endpoints(), "--spool", string(spool))...).Failed(t, 1, noSpace)
	spool.empty(t)
	nothingIn(t, string(elsewhere))
}

// restoreSize is the space for a restore of the large server's backup, in bytes: a database, and a log of 64 MiB and its
// next file.
const restoreSize = 208 << 20

func TestFullDiskUnderARestore(t *testing.T) {
	if testing.Short() || !inOwnMounts(t) {
		return
	}
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	b := backUp(t, r, l.key, l.server.Endpoints())
	l.server.Stop(t, 0)
	identity := []string{"--identity", l.key.file}

	t.Run("refused", func(t *testing.T) {
		d := newDisk(t, "32m")
		for _, target := range []string{string(d), filepath.Join(string(d), "restored")} { // a mount point, and a directory in one
			run(t, r.flags("restore", append(identity, "--output-dir", target)...)...).Failed(t, 4, string(d), "MiB free")
			d.empty(t)
		}
		// This is no finding about the backup.
		for _, verb := range []string{"verify", "drill"} {
			run(t, r.flags(verb, append(identity, "--scratch-dir", string(d))...)...).Failed(t, 4, "MiB free")
			d.empty(t)
		}
		run(t, r.flags("fetch", append(identity, "--to", filepath.Join(string(d), "snapshot.db"))...)...).Failed(t, 1, noSpace)
		d.empty(t)
		b := r.list(t).Backups[0]
		if b.Proven != "stored" || len(b.Proofs) != 2 || b.Proofs[0].Verdict != "not run" || b.Proofs[1].Verdict != "not run" {
			t.Errorf("dr list shows %+v", b)
		}
	})
	t.Run("fits", func(t *testing.T) { fits(t, b.Plain.Size, r.flags("restore", identity...)) })
	store := objectstores.S3Plain(t)
	objectstores.Setenv(t, store.Env())
	bucket := store.Bucket(t)
	run(t, "copy", "--from", "file://"+string(r), "--to", store.URL(bucket, "repo"), "--cluster", clusterName).Succeeded(t, nil)
	for _, full := range []struct {
		stage string
		size  int64 // of the disk
	}{{"fetch", b.Plain.Size * 3 / 4}, {"build", b.Plain.Size + 16<<20}} {
		for _, dir := range []string{"", "restored"} {
			t.Run("full at "+full.stage, func(t *testing.T) {
				d := newDisk(t, strconv.Itoa(restoreSize))
				gate := newGate(t, store.Endpoint, b.Stored.Size/2)
				through := *store
				through.Endpoint = gate.url
				args := append(identity, "--cluster", clusterName, "--output-dir", filepath.Join(string(d), dir))
				p := start(t, append([]string{"restore", "--repo", through.URL(bucket, "repo")}, args...)...)
				<-gate.reached // in the middle of the fetch, which comes after the look at the free space
				d.resize(t, full.size)
				gate.open()
				o := p.Wait(t)
				o.Failed(t, 1, noSpace)
				if o.Stage != full.stage {
					t.Errorf("the disk was full at stage %s\n%s", o.Stage, o)
				}
				nothingIn(t, string(d))
				d.resize(t, restoreSize)
				run(t, append([]string{"restore", "--repo", store.URL(bucket, "repo")}, args...)...).Succeeded(t, nil)
			})
		}
	}
}

// fits fails the test unless a restore that is not refused for lack of space has enough. Besides the database and the
// first file of the log, 64 MiB, there is for a moment the next one: etcd allocates it while the first is written.
func fits(t *testing.T, plain int64, args []string) {
	t.Helper()
	d := newDisk(t, "32m")
	args = append(args, "--output-dir", filepath.Join(string(d), "restored"))
	o := run(t, args...)
	_, after, _ := strings.Cut(o.Stderr, "needs up to ")
	text, _, _ := strings.Cut(after, " MiB")
	o.Failed(t, 4, text)
	need, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if need < plain>>20+2*64 {
		t.Errorf("a database of %d MiB is said to need %d", plain>>20, need)
	}
	d.resize(t, need<<20)
	run(t, args...).Succeeded(t, nil)
}
