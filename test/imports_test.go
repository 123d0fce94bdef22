// Package test checks the rules for the whole tree: imports, names, the end of the process, the words of comments.
package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/etcd-dr/etcd-dr"

// groups are in their one order: a package imports packages of its own group or of a later one. deploy and test are
// outside of that order.
var groups = []string{"cmd", "api", "scheduler", "restore", "backup", "storage"}

// backupForRestore lists the packages of backup that the packages of restore may import.
var backupForRestore = []string{"backup/assets", "backup/cluster", "backup/wal"}

// topLevel lists the only files and folders at the root, besides those whose name begins with a dot.
var topLevel = []string{
	"cmd", "backup", "restore", "storage", "scheduler", "api", "deploy", "test", "Makefile", "go.mod", "go.sum", "README.md",
	"docs", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE",
}

// emptyNames do not describe the purpose of a package.
var emptyNames = []string{"helper", "helpers", "util", "utils", "common", "base", "misc"}

// mayExit are the only files that end the process, so that every other function can be called from a process that lives
// on.
var mayExit = []string{"cmd/dr/main.go", "deploy/image/main.go"}

// yamlReader has a Kubernetes host's name and contains nothing of Kubernetes.
const yamlReader = "sigs.k8s.io/yaml"

// pkg is one package of the module: its path without the module's, the imports of its own code, and every linked
// package.
type pkg struct {
	Dir     string
	Name    string
	Imports []string
	Deps    []string
}

func TestTreeImports(t *testing.T) {
	for _, p := range loadPackages(t) {
		report(t, importFaults(p))
		report(t, nameFaults(p))
	}
}

func TestTreeEndsInMainAlone(t *testing.T) {
	walkSources(t, func(name string, file *ast.File) {
		if !slices.Contains(mayExit, name) {
			report(t, exitFaults(name, file))
		}
	})
}

func TestTreeTopLevel(t *testing.T) {
	report(t, topLevelFaults(trackedFiles(t)))
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

// importFaults returns the imports of a package that break a rule. Packages outside of the groups may have any imports.
func importFaults(p pkg) []string {
	if !slices.Contains(groups, groupOf(p.Dir)) {
		return nil
	}
	var faults []string
	for _, imported := range p.Imports {
		reason := wrongImport(p.Dir, imported)
		if reason != "" {
			faults = append(faults, fmt.Sprintf("%s imports %s: %s", p.Dir, imported, reason))
		}
	}
	if groupOf(p.Dir) == "storage" {
		faults = append(faults, etcdFaults(p)...)
	}
	return faults
}

// etcdFaults returns the first package of etcd that is linked; the others follow from it.
func etcdFaults(p pkg) []string {
	for _, linked := range p.Deps {
		if isBelow(linked, "go.etcd.io") {
			return []string{fmt.Sprintf("%s links %s: nothing under storage knows etcd", p.Dir, linked)}
		}
	}
	return nil
}

// wrongImport returns the reason why the package in dir must not import another one, or "".
func wrongImport(dir, imported string) string {
	inside, ok := strings.CutPrefix(imported, module+"/")
	if ok {
		return wrongOwnImport(dir, inside)
	}
	if isBelow(imported, "k8s.io") && imported != yamlReader && !mayImportKubernetes(dir) {
		return "only api/v1alpha1, api/coreos, api/foreign, api/controller with its drill, dropin and restores, restore/handoff/<manager> and restore/find/kubernetes import k8s.io"
	}
	return ""
}

func wrongOwnImport(dir, imported string) string {
	from, to := groupOf(dir), groupOf(imported)
	switch {
	case !slices.Contains(groups, to):
		return "code of the product does not import " + to
	case slices.Index(groups, to) < slices.Index(groups, from):
		return to + " stands above " + from
	case from == "restore" && to == "backup" && !slices.Contains(backupForRestore, imported):
		return "of backup, restore imports " + strings.Join(backupForRestore, ", ") + " alone"
	}
	return ""
}

func mayImportKubernetes(dir string) bool {
	manager, err := path.Match("restore/handoff/*", dir)
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return manager || slices.Contains([]string{
		"api/v1alpha1", "api/coreos", "api/foreign", "api/controller", "api/controller/drill", "api/controller/dropin", "api/controller/restores", "restore/find/kubernetes",
	}, dir)
}

func groupOf(dir string) string {
	group, _, _ := strings.Cut(dir, "/")
	return group
}

// isBelow includes a host's other names: sigs.k8s.io is below k8s.io.
func isBelow(imported, host string) bool {
	first := groupOf(imported)
	return first == host || strings.HasSuffix(first, "."+host)
}

// nameFaults checks the last element of a path and the package's own name.
func nameFaults(p pkg) []string {
	for _, name := range []string{path.Base(p.Dir), p.Name} {
		if slices.Contains(emptyNames, name) {
			return []string{fmt.Sprintf("%s: a package named %s says nothing about what it is for", p.Dir, name)}
		}
	}
	return nil
}

// exitFaults returns the calls in a file that end the process.
func exitFaults(name string, file *ast.File) []string {
	imported := importNames(file)
	var faults []string
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := selector.X.(*ast.Ident)
		if ok && endsProcess(imported[from.Name], selector.Sel.Name) {
			faults = append(faults, fmt.Sprintf("%s uses %s.%s: only %s end the process", name, from.Name, selector.Sel.Name, strings.Join(mayExit, " and ")))
		}
		return true
	})
	return faults
}

func endsProcess(from, function string) bool {
	return from == "os" && function == "Exit" ||
		from == "log" && strings.HasPrefix(function, "Fatal") ||
		from == "syscall" && function == "Exit"
}

// importNames maps the names that a file uses for its imports to their paths.
func importNames(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked that this is a string
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	return names
}

// topLevelFaults checks the first element of each tracked file's path.
func topLevelFaults(files []string) []string {
	var roots []string
	for _, file := range files {
		roots = append(roots, groupOf(file))
	}
	slices.Sort(roots)
	var faults []string
	for _, root := range slices.Compact(roots) {
		if !strings.HasPrefix(root, ".") && !slices.Contains(topLevel, root) {
			faults = append(faults, root+" does not belong at the top level")
		}
	}
	return faults
}

// loadPackages returns the packages with the build tags of this machine.
func loadPackages(t *testing.T) []pkg {
	t.Helper()
	command := exec.Command("go", "list", "-buildvcs=false", "-json=ImportPath,Name,Imports,Deps", module+"/...")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var listed struct {
			ImportPath, Name string
			Imports, Deps    []string
		}
		err := decoder.Decode(&listed)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		dir := strings.TrimPrefix(listed.ImportPath, module+"/")
		packages = append(packages, pkg{Dir: dir, Name: listed.Name, Imports: listed.Imports, Deps: listed.Deps})
	}
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	return packages
}

// walkSources parses the Go files of the product and of deploy, with all build tags, without tests.
func walkSources(t *testing.T, visit func(name string, file *ast.File)) {
	t.Helper()
	const root = ".."
	for _, group := range append(slices.Clone(groups), "deploy") {
		err := filepath.WalkDir(filepath.Join(root, group), func(file string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, file)
			visit(filepath.ToSlash(name), parsed)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// trackedFiles asks git, because a working copy may contain build results.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	_, err := os.Lstat("../.git")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this is no git checkout")
		}
		t.Skip("this is no git checkout")
	}
	// A checkout that belongs to another user is still this checkout.
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", "..", "ls-files").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.Fields(string(out))
}

// The rules are tried on right and wrong imports: a check that cannot fail checks nothing.
func TestTreeImportRuleFindsEveryBreach(t *testing.T) {
	own := func(dir string) string { return module + "/" + dir }
	for _, test := range []struct {
		dir, imported string
		wrong         bool
	}{
		{"cmd/dr", own("storage"), false},
		{"cmd/dr", own("api/server"), false},
		{"api/server", own("api/document"), false},
		{"scheduler", own("scheduler/retention"), false},
		{"restore", own("backup/cluster"), false},
		{"restore/replay", own("backup/wal"), false},
		{"backup", own("backup/archive"), false},
		{"backup/archive", own("storage/segment"), false},
		{"storage/s3", own("storage"), false},
		{"backup", "go.etcd.io/etcd/client/v3", false},
		{"api/v1alpha1", "k8s.io/apimachinery/pkg/runtime", false},
		{"api/controller", "sigs.k8s.io/controller-runtime", false},
		{"api/controller/drill", "k8s.io/api/batch/v1", false},
		{"restore/handoff/statefulset", "k8s.io/client-go/kubernetes", false},
		{"restore/find/kubernetes", "k8s.io/api/core/v1", false},
		{"scheduler/config", "sigs.k8s.io/yaml", false},
		{"test/e2e", own("cmd/dr"), false},
		{"test/servers", "k8s.io/api/core/v1", false},
		{"deploy", own("api/v1alpha1"), false},

		{"api/server", own("cmd/dr"), true},
		{"scheduler", own("api/document"), true},
		{"restore", own("scheduler"), true},
		{"backup", own("restore"), true},
		{"storage", own("backup/wal"), true},
		{"restore", own("backup"), true},
		{"restore/scratch", own("backup/archive"), true},
		{"storage/repository", own("test/servers"), true},
		{"cmd/dr", own("test/servers"), true},
		{"cmd/dr", own("deploy"), true},
		{"cmd/dr", "k8s.io/api/core/v1", true},
		{"restore/handoff", "k8s.io/client-go/kubernetes", true},
		{"restore/find", "k8s.io/api/core/v1", true},
		{"restore/handoff/statefulset/deep", "k8s.io/client-go/kubernetes", true},
		{"api/server", "sigs.k8s.io/controller-runtime", true},
	} {
		faults := importFaults(pkg{Dir: test.dir, Imports: []string{test.imported}})
		got := len(faults) > 0
		if got != test.wrong {
			t.Errorf("%s imports %s: got faults %q, want some: %v", test.dir, test.imported, faults, test.wrong)
		}
	}
}

func TestTreeImportRuleLooksAtAllThatStorageLinks(t *testing.T) {
	through := pkg{Dir: "storage/s3", Imports: []string{"example.org/sdk"}, Deps: []string{"example.org/sdk", "go.etcd.io/bbolt"}}
	if len(importFaults(through)) == 0 {
		t.Error("storage linked etcd by way of another package")
	}
	through.Dir = "backup"
	faults := importFaults(through)
	if len(faults) > 0 {
		t.Errorf("backup may link etcd, got %q", faults)
	}
}

func TestTreeNameRuleFindsEveryBreach(t *testing.T) {
	for name, wrong := range map[string]bool{"storage/segment": false, "storage/util": true, "api/common": true, "cmd/dr": false} {
		got := len(nameFaults(pkg{Dir: name, Name: path.Base(name)})) > 0
		if got != wrong {
			t.Errorf("%s is wrong: got %v, want %v", name, got, wrong)
		}
	}
	if len(nameFaults(pkg{Dir: "storage/segment", Name: "helpers"})) == 0 {
		t.Error("a package's own name was not looked at")
	}
}

func TestTreeExitRuleFindsEveryBreach(t *testing.T) {
	for source, wrong := range map[string]bool{
		`import "os"; func f() { os.Exit(1) }`:                     true,
		`import system "os"; func f() { system.Exit(1) }`:          true,
		`import "os"; var exit = os.Exit`:                          true,
		`import "log"; func f() { log.Fatalf("no") }`:              true,
		`import "log"; func f() { log.Print("os.Exit") }`:          false,
		`import "os"; func f() { os.Getpid() }`:                    false,
		`import os "example.org/os"; func f() { os.Exit(1) }`:      false,
		`import "testing"; func f(t testing.TB) { t.Fatal("no") }`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := len(exitFaults("x.go", file)) > 0
		if got != wrong {
			t.Errorf("%s is wrong: got %v, want %v", source, got, wrong)
		}
	}
}

func TestTreeTopLevelRuleFindsEveryBreach(t *testing.T) {
	good := []string{".ci/run", ".gitignore", "Makefile", "cmd/dr/main.go", "docs/format.md", "go.mod"}
	faults := topLevelFaults(good)
	if len(faults) > 0 {
		t.Errorf("got %q, want none", faults)
	}
	for _, bad := range []string{"main.go", "pkg/x/x.go", "NOTES.md"} {
		if len(topLevelFaults(append(slices.Clone(good), bad))) != 1 {
			t.Errorf("%s passed", bad)
		}
	}
}
