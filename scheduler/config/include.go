package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// Refused is a cluster with a fault, or an included file that cannot be read or parsed, so that its clusters are unknown. The other clusters
// can be used.
type Refused struct {
	Cluster string // "" if the clusters of the file are unknown
	File    string
	Err     error // names the lines of the faults
}

// RefusedErr returns all of c.Refused as one error that matches ErrConfig, or nil.
func (c Config) RefusedErr() error {
	var all error
	for _, r := range c.Refused {
		if all == nil {
			all = fmt.Errorf("%w: %w", ErrConfig, r.Err)
			continue
		}
		all = fmt.Errorf("%w; %w", all, r.Err)
	}
	return all
}

// Keeping returns c and, for each cluster that c refuses, the Spec from previous: a typo must not end a cluster's backups.
func (c Config) Keeping(previous Config) Config {
	kept := c
	kept.Specs = slices.Clone(c.Specs)
	kept.files = maps.Clone(c.files)
	kept.Faulty = maps.Clone(c.Faulty)
	for _, old := range previous.Specs {
		i := slices.IndexFunc(c.Refused, func(r Refused) bool {
			return r.Cluster == old.Cluster || r.Cluster == "" && r.File == previous.files[old.Cluster]
		})
		present := slices.ContainsFunc(kept.Specs, func(s spec.Spec) bool { return s.Cluster == old.Cluster })
		if i >= 0 && !present {
			kept.Specs = append(kept.Specs, old)
			kept.files[old.Cluster] = previous.files[old.Cluster]
			kept.Faulty[old.Cluster] = c.Refused[i].Err.Error()
		}
	}
	slices.SortFunc(kept.Specs, func(a, b spec.Spec) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return kept
}

// include reads the files that dr.yaml, at path, includes. It returns those that cannot be read or parsed.
func (l *loader) include(path string) (refused []Refused) {
	for _, pattern := range l.file.Include {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		l.noteFolders(pattern)
		names, err := filepath.Glob(pattern)
		if err == nil && len(names) == 0 && !isPattern(pattern) {
			err = errors.New("no such file")
		}
		if err != nil {
			l.source.blame(fmt.Errorf("%s: %w", pattern, err), "include")
		}
		for _, name := range names {
			err := l.includeFile(name)
			if err != nil {
				refused = append(refused, Refused{File: name, Err: err})
			}
		}
	}
	return refused
}

// noteFolders notes the folders that a file or folder which matches pattern is in, or may be added to: that changes the folder.
func (l *loader) noteFolders(pattern string) {
	for {
		pattern = filepath.Dir(pattern)
		if !isPattern(pattern) {
			l.read.note(pattern)
			return
		}
		folders, _ := filepath.Glob(pattern) // include reports a bad pattern
		for _, folder := range folders {
			l.read.note(folder)
		}
	}
}

// isPattern reports whether path contains a character that filepath.Glob does not take literally.
func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// includeFile adds the clusters of one file. It fails if the file cannot be read or parsed.
func (l *loader) includeFile(name string) error {
	l.read.note(name)
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	more, src, err := parseIncluded(name, data, l.source, l.file.Defaults)
	if err != nil {
		return err
	}
	for cluster, part := range more.Clusters {
		first, twice := l.sources[cluster]
		if twice {
			src.blame(fmt.Errorf("cluster %s is also declared in %s", cluster, first.name), "clusters", cluster)
		}
		l.file.Clusters[cluster], l.sources[cluster] = part, src
	}
	return nil
}
