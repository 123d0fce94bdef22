package assets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Request is the request to put a version back.
type Request struct {
	Version assets.Manifest
	Keys    seal.Keys
	Root    string // directory at which the version's paths begin
	Replace bool   // replace files that differ; the old ones are kept under other names
	DryRun  bool   // change nothing: return the plan, and the error for which Restore would refuse it
	Stamp   string // part of those names, such as the time
}

// Result is the result of a Restore.
type Result struct {
	Plan  Plan
	Aside []string // paths of the old files that were kept
}

// Restore makes the node's files equal to the version's. Before the first write it has checked the signature, the digest and every
// path of the version, and compared all files. Each file is written under another name, made durable and renamed. Restore deletes and
// overwrites nothing. A repeated Restore continues where an interrupted one stopped.
func Restore(ctx context.Context, c *repository.Cluster, r Request) (Result, error) {
	files, err := c.Assets().Fetch(ctx, r.Version, r.Keys)
	if err != nil {
		return Result{}, err
	}
	root, err := os.OpenRoot(r.Root)
	if err != nil {
		return Result{}, fmt.Errorf("restore the assets: %w", err)
	}
	defer root.Close()
	present, err := presentAt(root, files)
	if err != nil {
		return Result{}, err
	}
	plan := NewPlan(files, present, r.Version.Paths, r.Replace)
	plan.leaveStopped(root)
	err = plan.Refuse(r.Replace, os.Geteuid())
	if r.DryRun || err != nil {
		return Result{Plan: plan}, err
	}
	w := &writer{root: root, stamp: r.Stamp, files: map[string]assets.File{}}
	for _, f := range files {
		w.files[f.Path] = f
	}
	err = w.run(ctx, plan)
	return Result{Plan: plan, Aside: w.aside}, err
}

// presentAt returns the node's files at the paths of the version. Its error matches ErrLeads if a directory of the version is a link
// on the node: no file is written through a link.
func presentAt(root *os.Root, version []assets.File) (files []assets.File, err error) {
	for _, f := range version {
		node, err := taken.Read(root, f.Path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", f.Path, err)
		}
		if f.Kind == assets.Directory && node.Kind == assets.Link {
			return nil, fmt.Errorf("%s: %w: move the link away, or restore below another --root", f.Path, ErrLeads)
		}
		files = append(files, node)
	}
	return files, nil
}

// writer carries out a plan.
type writer struct {
	root  *os.Root
	stamp string
	files map[string]assets.File // of the version, by path
	aside []string
}

func (w *writer) run(ctx context.Context, plan Plan) error {
	for _, s := range plan {
		err := ctx.Err()
		if err == nil {
			err = w.step(s)
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", s.Path, err)
		}
	}
	return nil
}

// in returns the name of p for root's methods.
func in(p string) string { return "." + p }

func (w *writer) step(s Step) error {
	switch s.Act {
	case Keep, Leave:
		return nil
	case Adjust:
		return w.own(s.Path, s.Entry)
	}
	return w.create(s)
}

// create creates a file, a link or an empty directory: under another name, made durable, then renamed.
func (w *writer) create(s Step) error {
	created := assets.NewName(s.Path)
	err := w.root.Remove(in(created)) // of an interrupted restore
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = w.write(created, w.files[s.Path])
	if err == nil && s.Act == Replace {
		err = w.keepOld(s)
	}
	if err == nil {
		err = w.root.Rename(in(created), in(s.Path))
	}
	if err == nil {
		err = w.sync(path.Dir(s.Path))
	}
	return err
}

// write creates f at p, with its content, owner and mode.
func (w *writer) write(p string, f assets.File) error {
	switch f.Kind {
	case assets.Link:
		err := w.root.Symlink(f.Target, in(p))
		if err != nil {
			return err
		}
		return w.root.Lchown(in(p), f.UID, f.GID)
	case assets.Directory:
		err := w.root.Mkdir(in(p), 0o700)
		if err != nil {
			return err
		}
		return w.own(p, f.Entry)
	}
	file, err := w.root.OpenFile(in(p), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(f.Content)
	if err == nil {
		err = w.own(p, f.Entry)
	}
	if err == nil {
		err = file.Sync()
	}
	return err
}

// own gives the file or directory at p the owner and the mode of e. The owner comes first, since chown(2) clears setuid and setgid.
func (w *writer) own(p string, e assets.Entry) error {
	err := w.root.Lchown(in(p), e.UID, e.GID)
	if err != nil {
		return err
	}
	return w.root.Chmod(in(p), fileMode(e.Mode))
}

// fileMode returns m as package os has it.
func fileMode(m assets.Mode) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	for bit, special := range map[assets.Mode]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= special
		}
	}
	return mode
}

// keepOld gives the old file at the step's path a second name, so that at no time the path is missing. A directory can have only one
// name and is renamed, and so is a file in place of which a directory is created.
func (w *writer) keepOld(s Step) error {
	info, err := w.root.Lstat(in(s.Path))
	if err != nil {
		return err
	}
	old, keep := assets.OldName(s.Path, w.stamp), w.root.Link
	if info.IsDir() || s.Kind == assets.Directory {
		keep = w.root.Rename
	}
	err = keep(in(s.Path), in(old))
	if err == nil {
		w.aside = append(w.aside, old)
	}
	return err
}

// sync makes the names in a directory durable.
func (w *writer) sync(dir string) error {
	d, err := w.root.Open(in(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
