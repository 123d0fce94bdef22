package assets

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"
)

// Change is one way in which a file on a node differs from a version.
type Change string

// The changes, in the order in which a Difference has them.
const (
	Missing       Change = "missing" // the node lacks it
	Added         Change = "added"   // the version lacks it
	KindChanged   Change = "kind"    // a link instead of a file, for example
	Content       Change = "content"
	TargetChanged Change = "target" // of a link
	ModeChanged   Change = "mode"
	OwnerChanged  Change = "owner" // or group
)

// Difference is a file that differs between a version and a node. It contains no content.
type Difference struct {
	Path    string   `json:"path"`    // absolute
	Changes []Change `json:"changes"` // missing or added alone; else one or several of kind, content, target, mode, owner
	Version *Entry   `json:"version"` // null if the version lacks it
	Node    *Entry   `json:"node"`    // null if the node lacks it
}

// Compare returns the files that differ between a version and a node, in ascending order of their paths. paths are those of the
// manifest. Directories that only lead to them are not compared: they belong to the operating system.
func Compare(version, node []File, paths []string) (differences []Difference) {
	a, b := byPath(version), byPath(node)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		d := Difference{Path: p, Changes: changes(a[p], b[p])}
		if len(d.Changes) == 0 || leadsOnly(a[p], p, paths) && leadsOnly(b[p], p, paths) {
			continue
		}
		if a[p] != nil {
			d.Version = &a[p].Entry
		}
		if b[p] != nil {
			d.Node = &b[p].Entry
		}
		differences = append(differences, d)
	}
	return differences
}

func byPath(files []File) map[string]*File {
	m := make(map[string]*File, len(files))
	for i, f := range files {
		m[f.Path] = &files[i]
	}
	return m
}

// leadsOnly reports whether f is missing, or a directory that is not chosen by paths.
func leadsOnly(f *File, p string, paths []string) bool {
	return f == nil || f.Kind == Directory && !Chosen(p, paths)
}

// changes returns how b on the node differs from a in the version. Either may be nil.
func changes(a, b *File) []Change {
	switch {
	case b == nil:
		return []Change{Missing}
	case a == nil:
		return []Change{Added}
	}
	return a.Changes(*b)
}

// Changes returns how the file on the node differs from f in a version.
func (f File) Changes(node File) (c []Change) {
	if f.Kind != node.Kind {
		return []Change{KindChanged}
	}
	if !bytes.Equal(f.Content, node.Content) {
		c = append(c, Content)
	}
	if f.Target != node.Target {
		c = append(c, TargetChanged)
	}
	if f.Mode != node.Mode && f.Kind != Link { // the mode of a link has no effect
		c = append(c, ModeChanged)
	}
	if f.UID != node.UID || f.GID != node.GID {
		c = append(c, OwnerChanged)
	}
	return c
}

// Chosen reports whether p is one of paths, which may be patterns of path.Match, or lies below one.
func Chosen(p string, paths []string) bool {
	return slices.ContainsFunc(paths, func(pattern string) bool {
		elements := strings.Split(p, "/")
		depth := strings.Count(pattern, "/") + 1
		if len(elements) < depth {
			return false
		}
		ok, err := path.Match(pattern, strings.Join(elements[:depth], "/"))
		return ok && err == nil
	})
}
