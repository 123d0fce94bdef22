package assets

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on one version.
const (
	MaxBytes   = 64 << 20 // of the content of all files
	MaxEntries = 700      // files, directories and links, so that the manifest stays within document.MaxKind
	maxPath    = 4096     // bytes of a path or of a link's target (PATH_MAX)
)

// Kind is the kind of an entry.
type Kind string

// The kinds. Sockets, pipes and devices have none: they are not stored.
const (
	Regular   Kind = "file"
	Directory Kind = "directory"
	Link      Kind = "link" // a symbolic link
)

// Entry is the description of one file, directory or symbolic link of a node. It has the size of a file, and nothing else of its content.
type Entry struct {
	Path string `json:"path"` // absolute, without links on the way
	Kind Kind   `json:"kind"` // of the entry
	Mode Mode   `json:"mode"` // four octal digits, such as 0600
	UID  int    `json:"uid"`  // number of its owner
	GID  int    `json:"gid"`  // number of its group
	Size int64  `json:"size"` // of a file, in bytes
}

// File is an entry with its content.
type File struct {
	Entry
	Target  string // of a link
	Content []byte // of a file
}

// Entries returns the entries of files.
func Entries(files []File) []Entry {
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i] = f.Entry
	}
	return entries
}

// Mode is the permission bits of an entry, with setuid, setgid and sticky, as in chmod(2).
type Mode uint32

const maxMode Mode = 0o7777

// String returns the mode as four octal digits.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts only the form of String.
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	*m = Mode(n)
	if err != nil || *m > maxMode || m.String() != string(text) {
		return fmt.Errorf("%q is not a mode: expected four octal digits", text)
	}
	return nil
}

// checkEntries returns an error unless a version may have these entries: at most MaxEntries, in ascending order of their paths, each
// below a directory that precedes it. So no file is written through a link, and none out of the root.
func checkEntries(entries []Entry) error {
	if len(entries) == 0 || len(entries) > MaxEntries {
		return fmt.Errorf("%d files, directories and links: expected 1 to %d", len(entries), MaxEntries)
	}
	directories, last, left := map[string]bool{"/": true}, "", int64(MaxBytes)
	for _, e := range entries {
		err := e.check()
		switch {
		case err != nil:
		case e.Path <= last:
			err = errors.New("the paths are not in ascending order")
		case !directories[path.Dir(e.Path)]:
			err = errors.New("its directory is missing")
		case e.Size > left:
			err = fmt.Errorf("the files have more than %d MiB", MaxBytes>>20)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
		directories[e.Path] = e.Kind == Directory
		last, left = e.Path, left-e.Size
	}
	return nil
}

// check checks e alone.
func (e Entry) check() error {
	switch {
	case !validPath(e.Path):
		return errors.New("the path is not absolute and clean")
	case e.Kind != Regular && e.Kind != Directory && e.Kind != Link:
		return fmt.Errorf("unknown kind %q", e.Kind)
	case e.Mode > maxMode:
		return errors.New("its mode is out of range")
	case e.UID < 0 || e.GID < 0:
		return errors.New("its owner is negative")
	case e.Size < 0 || e.Size > 0 && e.Kind != Regular:
		return errors.New("its size is not that of its kind")
	}
	return nil
}

// validPath reports whether p is the absolute and clean path of a file below "/".
func validPath(p string) bool {
	return len(p) > 1 && len(p) <= maxPath && p[0] == '/' && path.Clean(p) == p && utf8.ValidString(p) && !strings.Contains(p, "\x00")
}

// CheckLink returns an error if the target of the link at path p leads out of the root. An absolute target begins at the root.
func CheckLink(p, target string) error {
	if target == "" || len(target) > maxPath || !utf8.ValidString(target) || strings.Contains(target, "\x00") {
		return fmt.Errorf("the target %q of the link is malformed", target)
	}
	depth := strings.Count(path.Dir(p), "/")
	if path.IsAbs(target) || path.Dir(p) == "/" {
		depth = 0
	}
	for element := range strings.SplitSeq(target, "/") {
		switch element {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			return fmt.Errorf("the target %q of the link leads out of the root", target)
		}
	}
	return nil
}

// A restore writes a file under another name first, and keeps a file that it replaces. Both names begin with a dot, since the kubelet
// starts every file in its folder of manifests whose name does not.
const (
	newSuffix = ".dr-new"
	oldSuffix = ".dr-old-"
)

// Stopped is the name of the folder beside the kubelet's folder of manifests in which a restore of etcd keeps those of a control plane that it
// has stopped.
const Stopped = "etcd-dr-restore"

// NewName returns the path under which the file at p is written before it is renamed.
func NewName(p string) string { return path.Dir(p) + "/." + path.Base(p) + newSuffix }

// OldName returns the path under which the file at p is kept when it is replaced. stamp distinguishes restores.
func OldName(p, stamp string) string { return path.Dir(p) + "/." + path.Base(p) + oldSuffix + stamp }

// IsAside reports whether name, without its directory, is one of NewName or OldName. Such files are not stored.
func IsAside(name string) bool {
	return strings.HasPrefix(name, ".") && (strings.HasSuffix(name, newSuffix) || strings.Contains(name, oldSuffix))
}
