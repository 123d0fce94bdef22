package assets

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
)

// typeOf contains the type of each kind in a tar archive.
var typeOf = map[Kind]byte{Regular: tar.TypeReg, Directory: tar.TypeDir, Link: tar.TypeSymlink}

// Pack returns the files as a tar archive, with paths relative to the root. It returns an error for files that Unpack would refuse.
func Pack(files []File) ([]byte, error) {
	err := checkFiles(files)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		err := w.WriteHeader(header(f))
		if err == nil {
			_, err = w.Write(f.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Path, err)
		}
	}
	return archive.Bytes(), w.Close()
}

func header(f File) *tar.Header {
	name := strings.TrimPrefix(f.Path, "/")
	if f.Kind == Directory {
		name += "/"
	}
	return &tar.Header{
		Typeflag: typeOf[f.Kind], Name: name, Linkname: f.Target, Size: f.Size, Mode: int64(f.Mode), Uid: f.UID, Gid: f.GID,
		Format: tar.FormatPAX,
	}
}

// Unpack returns the files in an archive of Pack. Errors match storage.ErrDamaged. It refuses an archive that could write out of the
// root.
func Unpack(archive []byte) ([]File, error) {
	files, err := unpack(tar.NewReader(bytes.NewReader(archive)))
	if err == nil {
		err = checkFiles(files)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the archive: %w", storage.ErrDamaged, err)
	}
	return files, nil
}

func unpack(r *tar.Reader) (files []File, err error) {
	for left := int64(MaxBytes); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		f, err := fileOf(h)
		if err == nil && (f.Size > left || len(files) == MaxEntries) {
			err = errors.New("it exceeds the bounds of a version")
		}
		if err == nil && f.Kind == Regular {
			f.Content, err = io.ReadAll(r)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", h.Name, err)
		}
		files, left = append(files, f), left-f.Size
	}
}

// fileOf returns the file of a header, without its content.
func fileOf(h *tar.Header) (File, error) {
	for kind, flag := range typeOf {
		if h.Typeflag != flag || h.Mode < 0 || h.Mode > int64(maxMode) {
			continue
		}
		name := h.Name
		if kind == Directory {
			name = strings.TrimSuffix(name, "/")
		}
		return File{Entry: Entry{Path: "/" + name, Kind: kind, Mode: Mode(h.Mode), UID: h.Uid, GID: h.Gid, Size: h.Size}, Target: h.Linkname}, nil
	}
	return File{}, errors.New("it is neither a file nor a directory nor a symbolic link")
}

// checkFiles is checkEntries for files, whose content must have the size of the entry.
func checkFiles(files []File) error {
	for _, f := range files {
		err := f.checkContent()
		if err != nil {
			return fmt.Errorf("%q: %w", f.Path, err)
		}
	}
	return checkEntries(Entries(files))
}

func (f File) checkContent() error {
	if int64(len(f.Content)) != f.Size {
		return fmt.Errorf("it has %d bytes, its entry %d", len(f.Content), f.Size)
	}
	if f.Kind == Link {
		return CheckLink(f.Path, f.Target)
	}
	if f.Target != "" {
		return errors.New("only a link has a target")
	}
	return nil
}
