package plan

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Validate checks p and its place. Errors match ErrLayout.
func (p Plan) Validate() error {
	err := p.validateCommon()
	if err != nil {
		return err
	}
	into := p.Into
	switch {
	case into.WALDir != "" && into.DataDir == "":
		return fmt.Errorf("%w: --wal-dir is for one member: pass its --data-dir too", ErrLayout)
	case into.OutputDir == "" && into.Name == "" && into.DataDir == "":
		return nil // no place yet: each host that carries out the plan sets its own
	case into.OutputDir != "" && (into.Name != "" || into.DataDir != ""):
		return fmt.Errorf("%w: --output-dir is for all members, --name with --data-dir for a single one: use either --output-dir or the other two",
			ErrLayout)
	case into.OutputDir == "" && into.Name == "":
		return fmt.Errorf("%w: --data-dir takes one member: choose it with --name (%s)", ErrLayout, p.InitialCluster())
	case into.OutputDir == "" && into.DataDir == "":
		return fmt.Errorf("%w: --name and --data-dir go together", ErrLayout)
	}
	if into.Name != "" && !slices.ContainsFunc(p.Members, named(into.Name)) {
		return fmt.Errorf("%w: --name %s is not among the members (%s): name one of them", ErrLayout, into.Name, p.InitialCluster())
	}
	return into.validatePaths()
}

func (i Into) validatePaths() error {
	for _, path := range []string{i.Target(), i.WALDir} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%w: %s is not an absolute path: use one that begins with /", ErrLayout, path)
		}
	}
	if i.WALDir != "" && (isWithin(i.WALDir, i.DataDir) || isWithin(i.DataDir, i.WALDir)) {
		return fmt.Errorf("%w: --wal-dir %s and --data-dir %s: neither may be inside the other, because each is put into place as a whole: use separate directories",
			ErrLayout, i.WALDir, i.DataDir)
	}
	return nil
}

// isWithin reports whether path is dir or below it.
func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// validateCommon checks everything in p except its place, which differs by host. Errors match ErrLayout.
func (p Plan) validateCommon() error {
	bases := 0
	for _, present := range []bool{p.Backup != nil, p.File != "", p.Salvage != nil && p.Salvage.Database != nil} {
		if present {
			bases++
		}
	}
	if bases != 1 {
		return fmt.Errorf("%w: a plan has exactly one base: use a backup, a file, or a disk's database", ErrLayout)
	}
	if p.Backup != nil {
		err := p.Backup.Validate()
		if err != nil {
			return fmt.Errorf("%w: backup: %w", ErrLayout, err)
		}
	}
	if p.Bump.By < 0 || p.Bump.To < 0 || p.Bump.Known < 0 {
		return fmt.Errorf("%w: a revision can only be bumped up", ErrLayout)
	}
	return validMembers(p.Members)
}

// InitialCluster returns the members in etcd's --initial-cluster form.
func (p Plan) InitialCluster() string { return initialCluster(p.Members) }

// Target returns the directory that the run puts into place.
func (i Into) Target() string {
	if i.OutputDir != "" {
		return filepath.Clean(i.OutputDir)
	}
	return filepath.Clean(i.DataDir)
}

// DataDirs returns the data dirs that this host gets. p must have a place.
func (p Plan) DataDirs() []DataDir {
	if p.Into.OutputDir == "" {
		i := slices.IndexFunc(p.Members, named(p.Into.Name))
		return []DataDir{{Member: p.Members[i]}}
	}
	var all []DataDir
	for _, m := range p.Members {
		all = append(all, DataDir{Member: m, Folder: m.Name})
	}
	return all
}

// DataDir is the data dir of one member. Folder is its name in Into.Target; "" if Into.Target itself is the data dir.
type DataDir struct {
	Member
	Folder string
}
