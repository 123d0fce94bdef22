// Package assets stores the files that a node's control plane needs besides etcd's data. Collect reads them from the node, and Take
// stores them as a new version.
package assets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of Collect.
var (
	// ErrNoFiles means that none of the paths exists.
	ErrNoFiles = fault.New(fault.NotFound, "there are no files to store")
	// ErrChanging means that a file changed each time it was read.
	ErrChanging = fault.New(fault.Busy, "the file changes while it is read")
	// ErrBounds means that the files exceed the bounds of a version.
	ErrBounds = fault.New(fault.Refused, "too much for one version of assets")
)

// Collection is the files that were read from a node.
type Collection struct {
	Files   []assets.File // by path
	Missing []string      // paths, not patterns, that do not exist
	Skipped []Skipped     // files that cannot be stored
}

// Skipped is a file that cannot be stored.
type Skipped struct {
	Path   string
	Reason string // such as "socket"
}

// Collect reads the files at the paths and everything below them, where root is the root of the node's file system. A path may be a
// pattern of path.Match. A symbolic link is stored with the file or directory to which it leads; an absolute target begins at root.
// Sockets, pipes and devices are skipped. A file that cannot be read is an error.
func Collect(root string, paths []string) (Collection, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return Collection{}, fmt.Errorf("read the files below --root: %w", err)
	}
	defer r.Close()
	c := &collector{root: r, files: map[string]assets.File{}, added: map[string]bool{}}
	for _, p := range paths {
		err := c.path(p)
		if err != nil {
			return Collection{}, err
		}
	}
	c.result.Files = needed(c.files, paths)
	return c.result, nil
}

// collector is the state of a Collect. Its paths are absolute and begin at the root.
type collector struct {
	root   *os.Root
	files  map[string]assets.File
	added  map[string]bool // files and directories that are read, with everything below them
	size   int64           // of the content so far, in bytes
	result Collection
}

// in returns the name of p for root's methods.
func in(p string) string { return "." + p }

// path adds the files at p, a path or a pattern.
func (c *collector) path(p string) error {
	if !strings.ContainsAny(p, `*?[\`) {
		return c.follow(p)
	}
	dir, _, err := c.resolve(path.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := c.list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		matches, err := path.Match(path.Base(p), name)
		if err != nil {
			return fmt.Errorf("path %s: %w", p, err)
		}
		if matches {
			err = c.follow(path.Join(dir, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the sorted names in a directory; none if it is a file.
func (c *collector) list(dir string) (names []string, err error) {
	entries, err := fs.ReadDir(c.root.FS(), path.Clean(in(dir)))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// follow adds the file or directory to which p leads, and the links on the way.
func (c *collector) follow(p string) error {
	real, info, err := c.resolve(p)
	if errors.Is(err, fs.ErrNotExist) {
		c.result.Missing = append(c.result.Missing, p)
		return nil
	}
	if err != nil {
		return err
	}
	return c.add(real, info)
}

const maxLinks = 40 // on the way to one file, as in Linux

// resolve returns the path without links to which p leads. It adds the directories and links on the way.
func (c *collector) resolve(p string) (real string, info fs.FileInfo, err error) {
	real, rest, links := "/", split(p), 0
	info, err = c.root.Lstat(".")
	for err == nil && len(rest) > 0 {
		next := path.Join(real, rest[0])
		rest = rest[1:]
		info, err = c.root.Lstat(in(next))
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink == 0:
			c.keep(next, info)
			real = next
		case links == maxLinks:
			err = fmt.Errorf("%s: %w", p, syscall.ELOOP)
		default:
			var target string
			target, err = c.link(next, info)
			real, rest, links = "/", append(split(target), rest...), links+1
		}
	}
	return real, info, err
}

// keep adds a directory. Files are added by content.
func (c *collector) keep(p string, info fs.FileInfo) {
	if info.IsDir() {
		c.files[p] = assets.File{Entry: entry(p, assets.Directory, info)}
	}
}

// split returns the elements of p, without "." and "..".
func split(p string) []string {
	p = path.Clean("/" + p)
	if p == "/" {
		return nil
	}
	return strings.Split(p[1:], "/")
}

// link adds the link at p, and returns the absolute path of its target.
func (c *collector) link(p string, info fs.FileInfo) (target string, err error) {
	target, err = c.root.Readlink(in(p))
	if err == nil {
		err = assets.CheckLink(p, target)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", p, err)
	}
	c.files[p] = assets.File{Entry: entry(p, assets.Link, info), Target: target}
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(p), target)
	}
	return target, nil
}

// add adds the file or directory at p, which is no link, with everything below it.
func (c *collector) add(p string, info fs.FileInfo) error {
	if c.added[p] {
		return nil
	}
	c.added[p] = true
	switch {
	case info.Mode().IsRegular():
		return c.content(p)
	case info.IsDir():
		return c.tree(p)
	}
	c.result.Skipped = append(c.result.Skipped, Skipped{p, kindOf(info.Mode())})
	return nil
}

// kindOf returns the kind of a file that cannot be stored.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "unknown kind of file"
}

// tree adds everything below the directory, except files that a restore has kept aside.
func (c *collector) tree(dir string) error {
	names, err := c.list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if assets.IsAside(name) {
			continue
		}
		err = c.follow(path.Join(dir, name))
		if err != nil {
			return err
		}
	}
	return nil
}

// tries is how often a file is read that changes meanwhile.
const tries = 3

// content adds the regular file at p.
func (c *collector) content(p string) error {
	for range tries {
		f, err := c.read(p)
		if errors.Is(err, ErrChanging) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		c.files[p], c.size = f, c.size+f.Size
		return nil
	}
	return fmt.Errorf("%s: %w: stop the program that writes it, or leave its folder out", p, ErrChanging)
}

// read reads a file once.
func (c *collector) read(p string) (assets.File, error) {
	file, err := c.root.OpenFile(in(p), os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: a pipe may have replaced the file
	if err != nil {
		return assets.File{}, err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return assets.File{}, err
	}
	left := assets.MaxBytes - c.size
	if before.Size() > left || len(c.files) > assets.MaxEntries {
		return assets.File{}, fmt.Errorf("%w: it may have %d MiB and %d files and directories: name fewer paths",
			ErrBounds, assets.MaxBytes>>20, assets.MaxEntries)
	}
	content, err := io.ReadAll(io.LimitReader(file, left+1))
	if err != nil {
		return assets.File{}, err
	}
	after, err := file.Stat()
	if err != nil {
		return assets.File{}, err
	}
	if int64(len(content)) != after.Size() || before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime()) {
		return assets.File{}, ErrChanging
	}
	f := assets.File{Entry: entry(p, assets.Regular, after), Content: content}
	f.Size = after.Size()
	return f, nil
}

// Read returns the file, directory or link at the absolute path p below root. It does not follow a link there. A file of a kind that
// cannot be stored has no content.
func Read(root *os.Root, p string) (assets.File, error) {
	info, err := root.Lstat(in(p))
	if err != nil {
		return assets.File{}, err
	}
	c := &collector{root: root, files: map[string]assets.File{}}
	switch {
	case info.Mode().IsRegular():
		err = c.content(p)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(in(p))
		return assets.File{Entry: entry(p, assets.Link, info), Target: target}, err
	case info.IsDir():
		c.keep(p, info)
	default:
		return assets.File{Entry: entry(p, assets.Kind(kindOf(info.Mode())), info)}, nil
	}
	return c.files[p], err
}

// entry returns the entry of the file at p, without its size.
func entry(p string, kind assets.Kind, info fs.FileInfo) assets.Entry {
	stat := info.Sys().(*syscall.Stat_t)
	return assets.Entry{Path: p, Kind: kind, Mode: assets.Mode(stat.Mode & 0o7777), UID: int(stat.Uid), GID: int(stat.Gid)}
}

// needed returns the files without the directories that lead to none of the others, unless the paths name them.
func needed(all map[string]assets.File, paths []string) (files []assets.File) {
	leads := map[string]bool{}
	for p, f := range all {
		if f.Kind == assets.Directory && !assets.Chosen(p, paths) {
			continue
		}
		for dir := p; dir != "/"; dir = path.Dir(dir) {
			leads[dir] = true
		}
	}
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if leads[p] {
			files = append(files, all[p])
		}
	}
	return files
}
