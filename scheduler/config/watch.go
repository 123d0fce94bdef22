package config

import (
	"context"
	"os"
	"time"
)

// watchEvery is the interval at which the files' stamps are read.
const watchEvery = 2 * time.Second

// Watcher loads a file again after changes.
type Watcher struct {
	Path   string
	Getenv func(string) string
	Reload <-chan os.Signal    // each signal loads the file
	Tell   func(Config, error) // is called with the result of each Load
}

// Watch loads the file again when it or a file that it names has changed, and on each signal from Reload, until ctx ends. first
// is the result of the first Load. After an error Watch loads again at the next change.
func (w Watcher) Watch(ctx context.Context, first Config) {
	read := first.read
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Reload:
		case <-ticker.C:
			if !read.changed() {
				continue
			}
		}
		c, err := Load(w.Path, w.Getenv)
		read = c.read
		w.Tell(c, err)
	}
}

// stamps holds each file's stamp from right before it was read, so that changes during the reading count.
type stamps map[string]stamp

// stamp differs after a file was written or replaced.
type stamp struct {
	modified time.Time
	size     int64
}

// note records the stamp of a file that is about to be read.
func (s stamps) note(file string) { s[file] = stampOf(file) }

// changed reports whether a file has another stamp than the recorded one.
func (s stamps) changed() bool {
	for file, before := range s {
		if stampOf(file) != before {
			return true
		}
	}
	return false
}

// stampOf returns a file's stamp, the zero stamp if it is missing. It follows links: Kubernetes updates mounted files by
// replacing a link.
func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}
