package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// cpuLimit is how much more CPU our put and get may use than the SDK's.
const cpuLimit = 1.2

const google = "GCS"

// checkedPut is the limit of a put to Google: its client computes a checksum too, and dr compares its own with that of the stored object.
const checkedPut = 1.3

const aboutStores = `
## Object stores

Random bytes to and from servers on the same machine, in turn with the SDK's own ways to do it: parts of 8 MiB, four
at a time. CPU is that of the client alone. The wall times are mostly the servers', which are no clouds. The ratio
compares a get in one stream. A get in several concurrent ranges, delivered in order, which is dr's default, takes a
copy more, and over a network less time; DownloadObject has no order, and so wants memory for all of it.

| store | | with | wall | CPU |
|---|---|---|---|---|
`

// renderStores returns an error for every exceeded limit.
func renderStores(b *strings.Builder, all []*compared) (past error) {
	b.WriteString(aboutStores)
	for _, c := range all {
		c.rows(b, "put", append([]*side{c.ours.put}, c.puts...))
		c.rows(b, "get", append([]*side{c.ours.get, c.ours.ranges}, c.gets...))
	}
	b.WriteString("\n| ratio | measured | limit |\n|---|---|---|\n")
	for _, l := range ratiosOf(all) {
		fmt.Fprintf(b, "| %s | %.2f | %.2f |\n", l.what, l.is, l.limit)
		if l.is > l.limit {
			past = errors.Join(past, fmt.Errorf("%s is %.2f, the limit is %.2f", l.what, l.is, l.limit))
		}
	}
	return past
}

func (c *compared) rows(b *strings.Builder, what string, sides []*side) {
	for _, s := range sides {
		wall := median(s.costs, func(c cost) time.Duration { return c.wall })
		fmt.Fprintf(b, "| %s | %s %d MiB | %s | %.2f s | %.2f s |\n",
			c.name, what, c.size>>20, s.name, wall.Seconds(), s.cpu().Seconds())
	}
}

func ratiosOf(all []*compared) []ratio {
	var ratios []ratio
	for _, c := range all {
		limit := cpuLimit
		if c.name == google {
			limit = checkedPut
		}
		ratios = append(ratios,
			ratio{c.name + " put to the SDK's, CPU", over(c.ours.put.cpu(), least(c.puts)), limit},
			ratio{c.name + " get to the SDK's best, CPU", over(c.ours.get.cpu(), least(c.gets)), cpuLimit})
	}
	return ratios
}

func (s *side) cpu() time.Duration {
	return median(s.costs, func(c cost) time.Duration { return c.cpu })
}

func least(sides []*side) time.Duration {
	return slices.MinFunc(sides, func(a, b *side) int { return int(a.cpu() - b.cpu()) }).cpu()
}

// program is the program dr, built in one way.
type program struct {
	name            string
	plain, stripped int64 // bytes
}

// noGRPC is the build tag of the Makefile: Google's client then links no gRPC.
const noGRPC = "disable_grpc_modules"

// measureBinaries builds dr into the file out as make build does, and without its tag.
func measureBinaries(ctx context.Context, o options, out string) ([]program, error) {
	ways := []struct{ name, tags string }{{"as `make build` does", noGRPC}, {"without its tag " + noGRPC, ""}}
	if o.quick {
		ways = ways[:1] // no other build compiles the packages of the second one
	}
	var all []program
	for _, way := range ways {
		fmt.Fprintf(os.Stderr, "bench: building dr %s\n", way.name)
		plain, err := buildSize(ctx, out, way.tags, "")
		if err != nil {
			return nil, err
		}
		stripped, err := buildSize(ctx, out, way.tags, "-s -w")
		if err != nil {
			return nil, err
		}
		all = append(all, program{way.name, plain, stripped})
	}
	return all, nil
}

// buildSize passes tags explicitly, which overrides those in GOFLAGS.
func buildSize(ctx context.Context, out, tags, ldflags string) (int64, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags="+tags, "-ldflags="+ldflags, "-o", out, "./cmd/dr")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build dr: %w: %s", err, said)
	}
	info, err := os.Stat(out)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func renderBinaries(b *strings.Builder, all []program) {
	b.WriteString("\nThe program dr, which links all three SDKs:\n\n| built | size | stripped (-s -w) |\n|---|---|---|\n")
	for _, built := range all {
		fmt.Fprintf(b, "| %s | %.1f MB | %.1f MB |\n", built.name, float64(built.plain)/1e6, float64(built.stripped)/1e6)
	}
}
