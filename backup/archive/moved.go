package archive

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// rootOf returns the directory of the host that is mounted at dir; "" if dir is no mount point. The kernel follows renames of that
// directory, and marks one that was removed: proc_pid_mountinfo(5).
func rootOf(dir string) (string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return mounts[len(mounts)-1].Root, nil // the last one covers the others
}

// moved returns an error if the directory that is mounted as the data dir was renamed or removed since the start, as by a restore: only a
// container that is started again sees the new one.
func (a *archiver) moved() error {
	if a.root == "" {
		return nil
	}
	now, err := rootOf(a.config.DataDir)
	if err != nil || now == "" || now == a.root {
		return nil
	}
	where := "is now " + now
	if strings.HasSuffix(now, "//deleted") {
		where = "was removed"
	}
	return fmt.Errorf("--data-dir %s is the host's %s, which %s: start the container again: then it sees the new directory", a.config.DataDir, a.root, where)
}
