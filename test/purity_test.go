package test

import (
	"fmt"
	"strings"
	"testing"
)

// pure are the packages that decide without any input or output: what they link cannot reach a network, a store or a process.
// maxLinked bounds the packages outside of the standard library and of this module.
var pure = []struct {
	dir       string
	maxLinked int
}{
	{"storage/fault", 0},
	{"storage/catalog", 120},
	{"restore/disk", 120},
	{"restore/plan", 120},
	{"scheduler/retention", 120},
	{"scheduler/condition", 120},
	{"scheduler/spec", 120},
	{"scheduler/runner", 0},
	{"scheduler/declared", 120},
	{"api/document", 120},
	{"api/foreign", 120},
}

// impure are the hosts, packages and modules that no pure package links. A package of this module stands without the module's path.
var impure = []string{
	"github.com/aws", "cloud.google.com", "github.com/Azure", "go.etcd.io", "google.golang.org/grpc", "os/exec", "storage/stores", "storage/copying",
}

func TestPurePackagesLinkNoInputOrOutput(t *testing.T) {
	deps := map[string][]string{}
	for _, p := range loadPackages(t) {
		deps[p.Dir] = p.Deps
	}
	for _, p := range pure {
		linked, ok := deps[p.dir]
		if !ok {
			t.Errorf("there is no package %s", p.dir)
		}
		report(t, purityFaults(p.dir, linked))
		others := 0
		for _, path := range linked {
			if isForeign(path) {
				others++
			}
		}
		if others > p.maxLinked {
			t.Errorf("%s links %d packages outside of the standard library, at most %d are expected", p.dir, others, p.maxLinked)
		}
	}
}

// purityFaults returns the packages among linked that the package in dir must not link.
func purityFaults(dir string, linked []string) (faults []string) {
	for _, path := range linked {
		inside := strings.TrimPrefix(path, module+"/")
		for _, forbidden := range impure {
			if inside == forbidden || strings.HasPrefix(inside, forbidden+"/") {
				faults = append(faults, fmt.Sprintf("%s links %s: a package that decides does no input or output", dir, inside))
			}
		}
	}
	return faults
}

// isForeign reports whether a package is neither of the standard library nor of this module.
func isForeign(path string) bool {
	host, _, _ := strings.Cut(path, "/")
	return strings.Contains(host, ".") && path != module && !strings.HasPrefix(path, module+"/")
}

func TestPurityFaultsAreFound(t *testing.T) {
	linked := []string{"fmt", "os/exec", module + "/storage", module + "/storage/stores", "go.etcd.io/etcd/api/v3", "google.golang.org/grpcx"}
	faults := purityFaults("d", linked)
	if len(faults) != 3 {
		t.Errorf("%d faults, want os/exec, storage/stores and etcd: %q", len(faults), faults)
	}
}
