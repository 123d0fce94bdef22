package assets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Request is the request to store the assets of one node.
type Request struct {
	Node  string          // name of the node
	Root  string          // directory at which the node's paths begin: "/" on the node itself
	Paths []string        // absolute paths besides the defaults; each must exist
	To    seal.Recipients // at least one
	Keys  seal.Keys       // to compare with the newest version; without a key the files are stored in any case
	Now   time.Time
}

// Result is the result of Take.
type Result struct {
	Version   assets.Manifest // the new version, or the newest one if nothing has changed
	Unchanged bool            // nothing was stored, since the newest version is equal
	Missing   []string        // files that the static pods' flags name, or to which links lead, and that do not exist
	Skipped   []Skipped       // sockets, pipes and devices
}

// Take stores the node's files as a new version. With a key it stores nothing if the newest version has the same paths and files.
func Take(ctx context.Context, c *repository.Cluster, r Request) (Result, error) {
	err := errors.Join(assets.ValidNode(r.Node), assets.RefusePlain(r.To))
	if err != nil {
		return Result{}, err
	}
	collected, paths, err := r.collect()
	if err == nil {
		err = r.refuseStopped()
	}
	if err != nil {
		return Result{}, err
	}
	result := Result{Missing: unexpected(collected.Missing), Skipped: collected.Skipped}
	result.Version, result.Unchanged, err = r.equal(ctx, c.Assets(), paths, collected.Files)
	if err != nil || result.Unchanged {
		return result, err
	}
	m := assets.Manifest{Node: r.Node, Time: r.Now, Paths: paths}
	result.Version, err = c.Assets().Store(ctx, m, collected.Files, r.To)
	return result, err
}

// refuseStopped refuses a node whose control plane a restore of etcd has stopped: a version without its manifests would start nothing.
func (r Request) refuseStopped() error {
	folder := path.Join(path.Dir(manifestsDir), assets.Stopped)
	found, err := filepath.Glob(filepath.Join(r.Root, folder, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range found {
		_, err = os.Lstat(filepath.Join(r.Root, manifestsDir, filepath.Base(file)))
		if errors.Is(err, fs.ErrNotExist) { // one that is in use again was only forgotten there
			return fmt.Errorf("%w: a restore has stopped the control plane of this node, its manifests are in %s: store the files when it has ended",
				fault.Busy, folder)
		}
	}
	return nil
}

// collect reads the files at the defaults, at r.Paths and at those that static pods name. It returns all these paths too.
func (r Request) collect() (Collection, []string, error) {
	for _, p := range r.Paths {
		if !path.IsAbs(p) || path.Clean(p) != p {
			return Collection{}, nil, fmt.Errorf("%w: path %q: use an absolute path without \"..\"", catalog.ErrName, p)
		}
	}
	paths := slices.Concat(Defaults(), r.Paths)
	first, err := Collect(r.Root, paths)
	if err != nil {
		return Collection{}, nil, err
	}
	for _, p := range r.Paths {
		if slices.Contains(first.Missing, p) {
			return Collection{}, nil, fmt.Errorf("%s does not exist: %w: name paths that exist", p, ErrNoFiles)
		}
	}
	for _, p := range Named(first.Files) {
		if !assets.Chosen(p, paths) {
			paths = append(paths, p)
		}
	}
	all, err := Collect(r.Root, paths)
	if err == nil && !slices.ContainsFunc(all.Files, func(f assets.File) bool { return f.Kind == assets.Regular }) {
		err = fmt.Errorf("%w: none of the default paths exists below %s: name the paths of this node's files", ErrNoFiles, r.Root)
	}
	return all, paths, err
}

// unexpected returns the missing paths that are no defaults.
func unexpected(missing []string) []string {
	return slices.DeleteFunc(missing, func(p string) bool { return slices.Contains(Defaults(), p) })
}

// equal returns the node's newest version, and reports whether it has the same paths and files. Without a key, and without a version
// that can be read, it reports false, so that a version is stored.
func (r Request) equal(ctx context.Context, stored *assets.Access, paths []string, files []assets.File) (assets.Manifest, bool, error) {
	if r.Keys.None() {
		return assets.Manifest{}, false, nil
	}
	newest, _, err := stored.Find(ctx, r.Node, "")
	var old []assets.File
	if err == nil {
		old, err = stored.Fetch(ctx, newest, r.Keys)
	}
	switch {
	case errors.Is(err, catalog.ErrNotFound), errors.Is(err, catalog.ErrDamaged), errors.Is(err, seal.ErrWrongKey):
		return assets.Manifest{}, false, nil
	case err != nil:
		return assets.Manifest{}, false, err
	}
	return newest, slices.Equal(newest.Paths, paths) && len(assets.Compare(old, files, paths)) == 0, nil
}
