package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage"
)

// owner holds the owner, group and rights of new files and directories.
type owner struct {
	uid, gid int
	mode     fs.FileMode // of directories: the owner's rights, and the group's if they apply
}

// shared reports whether the group may read.
func (o owner) shared() bool { return o.mode&0o040 != 0 }

func (o owner) fileMode() fs.FileMode { return o.mode & 0o660 }

// owner returns the owner, group and rights for new files, from those of the root. The group's rights apply only if the
// root excludes all other users or has the setgid bit: with the usual umask a directory gives rights to its group by
// accident.
func (b *tree) owner() (owner, error) {
	info, err := b.root.Stat(".")
	if err != nil {
		return owner{}, err
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, errors.New("the directory's owner is unknown on this system")
	}
	o := owner{uid: int(sys.Uid), gid: int(sys.Gid), mode: 0o700}
	if info.Mode()&0o007 == 0 || info.Mode()&fs.ModeSetgid != 0 {
		o.mode |= info.Mode() & 0o070
	}
	return o, nil
}

// makeDirs is like Root.MkdirAll, and gives each new directory to the root's owner.
func (b *tree) makeDirs(dir string) error {
	info, err := b.root.Lstat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	o, err := b.owner()
	if err != nil {
		return err
	}
	made := "."
	for element := range strings.SplitSeq(dir, "/") {
		made = path.Join(made, element)
		err := b.root.Mkdir(made, o.mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = b.shareDir(made)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *tree) shareDir(dir string) error {
	d, err := b.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(b.share(d, true), d.Close())
}

// share gives f, which this process has just created, to the root's owner and group. It returns an error if the owner
// could not read f: then no other user of the directory could read the object.
func (b *tree) share(f *os.File, isDir bool) error {
	o, err := b.owner()
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := o.mode
	if !isDir {
		mode = o.fileMode()
	}
	if mode.Perm()&^info.Mode() != 0 { // the umask has removed some
		err := f.Chmod(mode.Perm() | info.Mode()&fs.ModeSetgid)
		if err != nil && info.Mode()&fs.ModeSetgid != 0 { // systemd's RestrictSUIDSGID
			err = f.Chmod(mode.Perm())
		}
		if err != nil {
			return denied(err)
		}
	}
	uid, gid := ids(info)
	if uid == o.uid && gid == o.gid {
		return nil
	}
	if f.Chown(o.uid, o.gid) == nil {
		return nil
	}
	if gid != o.gid && f.Chown(-1, o.gid) == nil {
		gid = o.gid
	}
	if uid == o.uid || o.uid == 0 || o.shared() && gid == o.gid {
		return nil
	}
	name := userName(o.uid)
	return fmt.Errorf("%w: the directory belongs to user %s, who could not read the files that user %s creates there: "+
		"run dr as %s (sudo -u %s dr ...), or let a group share it (chgrp GROUP %s; chmod 2770 %s)",
		storage.ErrDenied, name, userName(uid), name, name, b.dir, b.dir)
}

func ids(info fs.FileInfo) (uid, gid int) {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		return int(sys.Uid), int(sys.Gid)
	}
	return -1, -1
}

// userName returns the name of a user, or its number if it has no name.
func userName(uid int) string {
	text := strconv.Itoa(uid)
	u, err := user.LookupId(text)
	if err != nil {
		return text
	}
	return u.Username
}
