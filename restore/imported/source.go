package imported

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Source is a file, or an object in a bucket, that may be a snapshot.
type Source struct {
	Place    string // its path or URL
	Size     int64  // bytes
	Modified time.Time
	Name     Name // what its name reveals

	relative string                                                       // its path below the directory or bucket that was named
	open     func(context.Context) (io.ReadCloser, storage.Object, error) // nil: Place is a file
	err      error                                                        // why it cannot be read; nil: it may be
}

// ofDR matches the databases of dr's own backups.
var ofDR = regexp.MustCompile(`(^|/)backups/[^/]+/snapshot\.db[^/]*$`)

// newSource returns the source of a place. relative is its path below what was named. Hidden files are unusable, and
// empty ones without the name of a snapshot: other tools keep their notes in them.
func newSource(place, relative string, size int64, modified time.Time) Source {
	s := Source{Place: place, Size: size, Modified: modified.UTC(), relative: relative}
	s.Name = ParseName(path.Base(relative)).believed(modified)
	switch {
	case isHidden(relative):
		s.Name.Unusable = "it is hidden"
	case ofDR.MatchString(relative):
		s.Name.Unusable = "it is a backup of dr: dr copy copies it"
	case size == 0 && s.Name.Tool == "":
		s.Name.Unusable = "it is empty"
	}
	return s
}

// written returns the time in the name or, if it has none, when the object was last modified.
func (s Source) written() time.Time {
	if s.Name.Written.IsZero() {
		return s.Modified
	}
	return s.Name.Written
}

// isHidden reports whether a part of a path begins with a dot.
func isHidden(relative string) bool {
	return strings.HasPrefix(relative, ".") || strings.Contains(relative, "/.")
}

// Files returns the sources in a file, or in a directory and those below it, in the order of their names. Entries that are not regular
// files are unusable, and a folder that cannot be read fails. No file at all, or more than records.MaxListed, is an error.
func Files(named string) (all []Source, err error) {
	root, err := filepath.Abs(named)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return nil
		}
		s, ok := fileSource(root, path, e, err)
		if ok {
			all, err = added(all, s, root)
			return err
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: there is no file in %s: check the path", catalog.ErrNotFound, named)
	}
	leaveOutRepositories(all)
	return all, err
}

// leaveOutRepositories makes everything unusable that is in a folder with the marker of one of dr's repositories.
func leaveOutRepositories(all []Source) {
	folders := map[string]bool{}
	for _, s := range all {
		folder, ok := records.MarkedFolder(s.relative)
		if ok {
			folders[folder] = true
		}
	}
	for i := range all {
		relative := all[i].relative
		for folder := range folders {
			if strings.HasPrefix(relative, folder) {
				all[i].Name.Unusable = "it is in a repository of dr: dr copy copies it"
			}
		}
	}
}

// fileSource returns the source at a path below root. e may be nil if there is an error. It is not ok if the file has gone.
func fileSource(root, path string, e fs.DirEntry, err error) (s Source, ok bool) {
	var info fs.FileInfo
	if err == nil {
		info, err = e.Info()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s, false
	}
	if err != nil {
		return Source{Place: path, err: fmt.Errorf("%w: %w: run dr import as a user that may read it", fault.Refused, err)}, true
	}
	relative := filepath.Base(path)
	if path != root {
		relative, _ = filepath.Rel(root, path) // path is below root
	} else {
		relative = strings.TrimLeft(relative, ".") // it was named
	}
	s = newSource(path, filepath.ToSlash(relative), info.Size(), info.ModTime())
	if !info.Mode().IsRegular() {
		s.Name.Unusable = "it is not a regular file: name the file itself"
	}
	return s, true
}

// Objects returns the sources in a bucket at an address, in the order of their keys. No object at all, or more than records.MaxListed, is an
// error.
func Objects(ctx context.Context, b storage.Bucket, at address.Address) (all []Source, err error) {
	shown := at.String()
	for o, err := range b.List(ctx, storage.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", shown, err)
		}
		all, err = added(all, objectSource(b, at, o), shown)
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is no object in %s: check the URL", catalog.ErrNotFound, shown)
	}
	leaveOutRepositories(all)
	return all, nil
}

// Named returns the sources in a bucket at an address whose key is name, or name with what coreos' operator appends to it with each
// interval. More than records.MaxListed are an error.
func Named(ctx context.Context, b storage.Bucket, at address.Address, name string) (all []Source, err error) {
	shown := at.String()
	o, err := b.Stat(ctx, name)
	switch {
	case err == nil:
		all = append(all, objectSource(b, at, o))
	case !errors.Is(err, storage.ErrNotExist):
		return nil, fmt.Errorf("look for %s in %s: %w", name, shown, err)
	}
	for o, err := range b.List(ctx, storage.ListOptions{Prefix: name + "_v"}) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", shown, err)
		}
		suffix := coreosForm.FindStringIndex(o.Key)
		if suffix == nil || suffix[0] != len(name) {
			continue
		}
		all, err = added(all, objectSource(b, at, o), shown)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// objectSource returns the source that an object in a bucket at an address is.
func objectSource(b storage.Bucket, at address.Address, o storage.Object) Source {
	s := newSource(at.Object(o.Key), o.Key, o.Size, o.ModTime)
	s.open = func(ctx context.Context) (io.ReadCloser, storage.Object, error) {
		return b.Open(ctx, o.Key, storage.OpenOptions{})
	}
	return s
}

// added returns all with s, unless there are too many.
func added(all []Source, s Source, in string) ([]Source, error) {
	if len(all) >= records.MaxListed {
		return nil, fmt.Errorf("%w: %s has more than %d objects: name a folder of it", fault.Refused, in, records.MaxListed)
	}
	return append(all, s), nil
}

// download copies an object into a directory, and returns the path of the copy, which has the suffix of the object. It reads no more than the
// beginning of one that is no snapshot.
func (s Source) download(ctx context.Context, dir string) (file string, err error) {
	body, now, err := s.open(ctx)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", s.Place, err)
	}
	defer body.Close()
	if now.Size != s.Size || !now.ModTime.Equal(s.Modified) {
		return "", fmt.Errorf("%w: %s was changed since it was listed: run dr import again", fault.Refused, s.Place)
	}
	in := bufio.NewReaderSize(body, 1<<20)
	begin, err := in.Peek(magicEnd)
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read %s: %w", s.Place, err)
	}
	if !mayBeSnapshot(begin, s.Place) {
		return "", fmt.Errorf("%w: %s is neither a database nor compressed: it is no snapshot", catalog.ErrDamaged, s.Place)
	}
	file = filepath.Join(dir, "object"+suffixOf(s.Place))
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", s.Place, err)
	}
	_, err = io.Copy(f, in)
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", s.Place, refusedIfFull(err))
	}
	return file, nil
}
