package imported

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Source is a file, or an object in a bucket, that may be a snapshot.
type Source struct {
	Place    string // its path or URL
	Size     int64  // bytes
	Modified time.Time
	Name     Name // what its name tells

	open func(context.Context) (io.ReadCloser, error) // nil: Place is a file
}

// newSource returns the source of a place. relative is its path below the directory or bucket that was named. Hidden files and empty objects are
// unusable: other tools keep their notes in them.
func newSource(place, relative string, size int64, modified time.Time) Source {
	s := Source{Place: place, Size: size, Modified: modified.UTC(), Name: ParseName(path.Base(relative))}
	switch {
	case isHidden(relative):
		s.Name.Unusable = "it is hidden"
	case size == 0:
		s.Name.Unusable = "it is empty"
	}
	return s
}

// isHidden reports whether a part of a path begins with a dot.
func isHidden(relative string) bool {
	return strings.HasPrefix(relative, ".") || strings.Contains(relative, "/.")
}

// Files returns the sources in a file, or in a directory and those below it, in the order of their names. It returns only regular files. More
// than records.MaxListed files are an error.
func Files(root string) (all []Source, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		relative := e.Name()
		if path != root {
			relative, err = filepath.Rel(root, path)
		}
		if err == nil {
			all, err = added(all, newSource(path, filepath.ToSlash(relative), info.Size(), info.ModTime()), root)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotFound, err)
	}
	return all, err
}

// Objects returns the sources in a bucket that shown is the URL of, in the order of their keys. More than records.MaxListed objects are an
// error.
func Objects(ctx context.Context, b storage.Bucket, shown string) (all []Source, err error) {
	base, _, _ := strings.Cut(shown, "?")
	for o, err := range b.List(ctx, storage.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", shown, err)
		}
		s := newSource(strings.TrimSuffix(base, "/")+"/"+o.Key, o.Key, o.Size, o.ModTime)
		s.open = func(ctx context.Context) (io.ReadCloser, error) {
			body, _, err := b.Open(ctx, o.Key, storage.OpenOptions{})
			return body, err
		}
		all, err = added(all, s, shown)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// added returns all with s, unless there are too many.
func added(all []Source, s Source, in string) ([]Source, error) {
	if len(all) >= records.MaxListed {
		return nil, fmt.Errorf("%w: %s has more than %d objects: name a folder of it", fault.Refused, in, records.MaxListed)
	}
	return append(all, s), nil
}

// download copies an object into a directory, and returns the path of the copy, which has the name of the object.
func (s Source) download(ctx context.Context, dir, name string) (file string, err error) {
	body, err := s.open(ctx)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", s.Place, err)
	}
	defer body.Close()
	file = filepath.Join(dir, name)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", s.Place, err)
	}
	_, err = io.Copy(f, body)
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", s.Place, err)
	}
	return file, nil
}
