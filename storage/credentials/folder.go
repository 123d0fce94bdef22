package credentials

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Read returns the credentials in a folder, such as a mounted Secret. Its errors name the folder.
func Read(dir string) (Credentials, error) {
	files, err := ReadFiles(dir)
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", dir, err)
	}
	c, err := Parse(files)
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

// maxFiles bounds the files of a folder.
const maxFiles = 100

// ReadFiles returns the files in a folder for Parse. It reads only those that Parse recognises: the content of the others
// is nil. Errors match ErrCredentials.
func ReadFiles(dir string) (map[string][]byte, error) {
	from := current(dir)
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, fileError(err)
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%w: more than %d files: use a folder that contains only credentials", ErrCredentials, maxFiles)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // kubelet's own, such as ..data
			continue
		}
		files[e.Name()] = nil
		_, known := fieldOf(e.Name())
		if !known {
			continue
		}
		files[e.Name()], err = readFile(filepath.Join(from, e.Name()))
		if err != nil {
			return nil, fileError(err)
		}
	}
	return files, nil
}

// current returns the folder that dir's link ..data names, else dir. kubelet replaces that link to renew all files of a
// Secret at once: reading through dir itself could mix old and new files.
func current(dir string) string {
	data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	if err != nil {
		return dir
	}
	return data
}

// readFile returns up to MaxSize+1 bytes of a file.
func readFile(path string) ([]byte, error) {
	f, err := storage.OpenRegular(path)
	if errors.Is(err, storage.ErrNotRegular) {
		return nil, fmt.Errorf("%s must be a file", filepath.Base(path))
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	return content, errors.Join(err, f.Close())
}

// fileError returns an error of the file system as ErrCredentials, without the folder's path, which Read adds.
func fileError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w: %s: %v: check the path and its permissions", ErrCredentials, filepath.Base(path.Path), path.Err)
	}
	return fmt.Errorf("%w: %w", ErrCredentials, err)
}
