// Package stores opens a Bucket by its URL. It is the only package that links every store.
package stores

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
)

// ErrURL: a repository's URL cannot be used as written.
var ErrURL = errors.New("bad repository URL")

// Open opens the bucket at text: file:///absolute/path. An absent directory gives ErrURL.
func Open(text string) (storage.Bucket, error) {
	dir, err := directory(text)
	if err != nil {
		return nil, err
	}
	bucket, err := file.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no directory %s: look twice, or take the first backup there", ErrURL, dir)
	}
	return bucket, err
}

// Create is Open for whoever is going to write: an absent directory is made.
func Create(text string) (storage.Bucket, error) {
	dir, err := directory(text)
	if err != nil {
		return nil, err
	}
	return file.Create(dir)
}

func directory(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("%w: none given: use --repo file:///path or DR_REPO", ErrURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w: it does not parse: use file:///path", ErrURL) // err would repeat what may hold a password
	}
	if u.User != nil {
		return "", fmt.Errorf("%w: it holds credentials, which others can read in the command line", ErrURL)
	}
	if u.Scheme != "file" {
		return "", fmt.Errorf("%w: %s: only file:///path is known", ErrURL, u.Redacted())
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%w: %s: a directory is written file:///absolute/path, with three slashes", ErrURL, u.Redacted())
	}
	return filepath.FromSlash(u.Path), nil
}
