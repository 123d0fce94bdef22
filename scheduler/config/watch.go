package config

import (
	"context"
	"os"
	"time"
)

// watchEvery is how often the files are looked at.
const watchEvery = 2 * time.Second

// Watch loads the file again when it or a file that it names has changed since, and when asked says so, until ctx ends.
// first is what Load gave; tell is given what each further Load gives. After an error nothing is loaded until something
// changes.
func Watch(
	ctx context.Context, path string, getenv func(string) string, first Config, asked <-chan os.Signal, tell func(Config, error),
) {
	read := first.read
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
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

// stamps are those of files right before they were read: what changes meanwhile is a change too.
type stamps map[string]stamp

// stamp is what differs when a file was written or replaced.
type stamp struct {
	modified time.Time
	size     int64
}

// note is for a file that is going to be read.
func (s stamps) note(file string) { s[file] = stampOf(file) }

func (s stamps) changed() bool {
	for file, before := range s {
		if stampOf(file) != before {
			return true
		}
	}
	return false
}

// stampOf follows links: Kubernetes replaces what it mounts by turning one. A file that is not there has the zero stamp.
func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}
