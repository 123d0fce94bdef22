package archive

import (
	"fmt"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
)

// rootOf returns the directory of the host that is mounted at dir; "" if dir is no mount point, or the system does not say. The kernel
// follows renames of that directory, and marks one that was removed: proc_pid_mountinfo(5).
func rootOf(dir string) string {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return ""
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	if err != nil || len(mounts) == 0 {
		return ""
	}
	return mounts[len(mounts)-1].Root // the last one covers the others
}

// moved returns an error if the directory that is mounted as the data dir was renamed or removed since the start, as by a restore: only a
// container that is started again sees the new one.
func (a *archiver) moved() error {
	if a.root == "" {
		return nil
	}
	now := rootOf(a.config.DataDir)
	if now == a.root {
		return nil
	}
	return fmt.Errorf("the data dir %s was the directory %s, which is now %s: the host has replaced it: start the agent again, in a new container",
		a.config.DataDir, a.root, now)
}
