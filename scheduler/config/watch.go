package config

import (
	"context"
	"os"
	"time"
)

// watchEvery is the interval at which the files' stamps are read.
const watchEvery = 2 * time.Second

// Watch loads the file again when it or a file that it names has changed, and on each signal from reload, until ctx ends. first
// is the result of the first Load; tell receives those of the others. After an error Watch loads again at the next change.
func Watch(
	ctx context.Context, path string, getenv func(string) string, first Config, reload <-chan os.Signal, tell func(Config, error),
) {
	read := first.read
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		case <-ticker.C:
			if !read.changed() {
				continue
			}
		}
		c, err := Load(path, getenv)
		read = c.read
		tell(c, err)
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
// replacing one.
func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}
