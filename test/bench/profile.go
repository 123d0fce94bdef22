package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// buildProfiling builds a dr whose processes write CPU profiles.
func buildProfiling(ctx context.Context, to string) error {
	return command(ctx, "go", "build", "-tags", "disable_grpc_modules,profile", "-o", to, "./cmd/dr")
}

// shares returns the packages with the most CPU in the profiles that the processes of do write, each with its share.
func shares(ctx context.Context, dir string, do func() error) (string, error) {
	folder, err := os.MkdirTemp(dir, "profile")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	err = os.Setenv("DR_PROFILE", folder)
	if err == nil {
		err = do()
	}
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.pprof"))
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof", "-top", "-unit=us", "-nodecount=100000", "-nodefraction=0"}, files...)...).Output()
	if err != nil {
		return "", fmt.Errorf("go tool pprof: %w", err)
	}
	return byPackage(out), nil
}

// leastShare is the smallest share of a package that byPackage lists, in per cent.
const leastShare = 4

// byPackage adds the lines of pprof -top up by package. Each line begins with the time in a function itself, and ends with its name.
func byPackage(top []byte) string {
	times, total := map[string]time.Duration{}, time.Duration(0)
	lines := bufio.NewScanner(bytes.NewReader(top))
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) < 6 {
			continue
		}
		spent, err := time.ParseDuration(columns[0])
		if err != nil {
			continue
		}
		times[packageOf(columns[5])] += spent
		total += spent
	}
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Compare(times[b], times[a]) }) {
		share := 100 * times[name] / max(total, 1)
		if share >= leastShare {
			all = append(all, fmt.Sprintf("%s %d %%", name, share))
		}
	}
	return strings.Join(all, ", ")
}

// packageOf returns the package of a function, for people.
func packageOf(function string) string {
	dir, name := path.Split(function)
	name, _, qualified := strings.Cut(name, ".")
	full := dir + name
	switch {
	case strings.HasPrefix(full, "internal/runtime/syscall"):
		return "system calls"
	case strings.HasPrefix(full, "internal/runtime"), full == "runtime", !qualified: // functions in assembly have no package
		return "the Go runtime"
	}
	return strings.TrimPrefix(full, "github.com/")
}
