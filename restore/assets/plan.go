// Package assets compares the files of a node with a stored version, and puts a version back. NewPlan decides what happens to each
// file; Restore carries that out, after every check, and deletes nothing.
package assets

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of a restore.
var (
	// ErrDiffers means that the node has other files than the version.
	ErrDiffers = fault.New(fault.Refused, "the node has other files under these names")
	// ErrLeads means that a path on the node leads through a symbolic link that the version lacks.
	ErrLeads = fault.New(fault.Refused, "a symbolic link is in place of a directory")
	// ErrOwner means that the process may not give files to their owners.
	ErrOwner = fault.New(fault.Refused, "files of another user cannot be created")
)

// Act is what a restore does with one file.
type Act string

// The acts.
const (
	Create  Act = "create"  // it is missing
	Keep    Act = "keep"    // it is equal, or a directory that exists
	Replace Act = "replace" // it differs: the old one is kept under another name
	Adjust  Act = "adjust"  // a directory gets the version's owner and mode
	Leave   Act = "leave"   // it is missing, because a restore of etcd has moved it aside, and stays so
)

// Step is the act for one entry.
type Step struct {
	assets.Entry
	Act     Act             `json:"act"`     // create, keep, replace, adjust or leave
	Changes []assets.Change `json:"changes"` // how the node's file differs; empty if it is missing or equal
}

// Plan is the steps of a restore, in their order.
type Plan []Step

// NewPlan returns the plan that makes the node's files equal to the version's. present has the node's files at the paths of the
// version. An existing directory gets another owner or mode only with replace, and only at or below the paths. Directories come first, then files and links; static pods come last, since the kubelet starts them at once.
func NewPlan(version, present []assets.File, paths []string, replace bool) Plan {
	there := map[string]assets.File{}
	for _, f := range present {
		there[f.Path] = f
	}
	plan := Plan{}
	for _, f := range version {
		node, ok := there[f.Path]
		s := Step{Entry: f.Entry, Act: Create, Changes: []assets.Change{}}
		if ok {
			s.Changes = append(s.Changes, f.Changes(node)...)
			s.Act = actFor(f, s.Changes, replace && assets.Chosen(f.Path, paths))
		}
		plan = append(plan, s)
	}
	slices.SortStableFunc(plan, func(a, b Step) int { return cmp.Compare(a.rank(), b.rank()) })
	return plan
}

func actFor(f assets.File, changes []assets.Change, adjust bool) Act {
	switch {
	case len(changes) == 0:
		return Keep
	case f.Kind != assets.Directory || slices.Contains(changes, assets.KindChanged):
		return Replace
	case adjust:
		return Adjust
	}
	return Keep
}

// firstOf returns the first paths and the number of the others.
func firstOf(paths []string) string {
	const shown = 3
	if len(paths) <= shown {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:shown], ", "), len(paths)-shown)
}

func (s Step) rank() int {
	switch {
	case s.Kind == assets.Directory:
		return 0
	case path.Base(path.Dir(s.Path)) == "manifests":
		return 2
	}
	return 1
}

// leaveStopped leaves out the manifests that a restore of etcd has moved aside: the kubelet would start a control plane that was stopped.
func (p Plan) leaveStopped(root *os.Root) {
	for i, s := range p {
		dir := path.Dir(s.Path)
		_, err := root.Lstat(in(path.Join(path.Dir(dir), assets.Stopped, path.Base(s.Path))))
		if s.Act == Create && s.rank() == 2 && err == nil {
			p[i].Act = Leave
		}
	}
}

// Count returns the number of steps with the act.
func (p Plan) Count(act Act) (n int) {
	for _, s := range p {
		if s.Act == act {
			n++
		}
	}
	return n
}

// Refuse returns an error that matches ErrDiffers if p changes existing files, and ErrOwner if a process of the user cannot give the
// files to their owners.
func (p Plan) Refuse(replace bool, user int) error {
	var differ []string
	for _, s := range p {
		if s.Act == Replace {
			differ = append(differ, s.Path)
		}
		if s.Act != Keep && s.Act != Leave && user != 0 && s.UID != user {
			return fmt.Errorf("%s belongs to user %d: %w by user %d: run dr as root", s.Path, s.UID, ErrOwner, user)
		}
	}
	if len(differ) == 0 || replace {
		return nil
	}
	return fmt.Errorf("%w: %s: dr assets diff shows how; pass --replace to replace them, which keeps the old files", ErrDiffers, firstOf(differ))
}
