// Package check tests, on the user's own bucket, the properties of a store on which a backup and a restore rely. Each
// problem that it finds comes with a remedy.
//
// Run writes only below a folder of its own, ".dr-check-<random>/", which no listing of clusters shows, and removes it
// at the end.
package check

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts of a Line.
const (
	OK      Verdict = "ok"
	Note    Verdict = "note"    // possibly intended, but the operator should know
	Wanting Verdict = "wanting" // a backup or restore will fail
	NotRun  Verdict = "not run" // Seen contains the reason
	Unknown Verdict = "unknown" // the check could not find out
)

// Line is one check and its result.
type Line struct {
	Name    string  `json:"name"`         // of the check
	Of      string  `json:"of,omitempty"` // the cluster; "" for a check of the whole repository or of the live cluster
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`           // the finding: one plain sentence without secrets
	Cure    string  `json:"cure,omitempty"` // the remedy; "" if none is needed

	Ends    time.Time `json:"ends,omitzero"` // of a certificate: when it expires
	Problem Problem   `json:"-"`
}

// Problem identifies the problems that programs distinguish from others that the same check finds; "" for all others.
type Problem string

// The problems.
const (
	NoQuorum Problem = "no quorum"
	Corrupt  Problem = "CORRUPT" // a member has raised the alarm CORRUPT
)

// named returns l with the name. The functions that return a Line do not know the name of their check.
func (l Line) named(name string) Line {
	l.Name = name
	return l
}

// Options select additional checks.
type Options struct {
	// Lock is tested if For is not zero. One object then stays in the bucket until its lock ends, so For should be
	// short. A lock of less than a few seconds may end before it is tested.
	Lock records.Lock
	// Clusters are the clusters whose newest backup is checked; nil: all in the bucket.
	Clusters []string
	Trust    sign.Trust // the trusted keys, as in repository.Policy
	// Large is the size in bytes of an object that the stores receive in several parts; 0: slightly over 8 MiB, their
	// part size. The object is kept in memory.
	Large int
	// AsOf returns the bucket as it was at t; nil: storage.AsOf, which does not work through storage.WithPrefix.
	AsOf func(ctx context.Context, t time.Time) (storage.Bucket, error)
}

const (
	// folder is the prefix of the folder that a check writes to. No cluster's name begins with a dot.
	folder = ".dr-check-"
	// defaultLarge is slightly more than a part of 8 MiB.
	defaultLarge = 8<<20 + 64<<10
	small        = 1000 // bytes of the other objects
)

// step is one check of the store. It runs only if all checks that it needs have succeeded.
type step struct {
	name  string
	needs []string
	run   func(*probe, context.Context) Line
}

// The names of the checks that others need.
const (
	reachable = "reachable"
	canCreate = "can create"
	replaces  = "replaces in one step"
)

var steps = []step{
	{reachable, nil, (*probe).reachable},
	{canCreate, []string{reachable}, (*probe).canCreate},
	{"cannot overwrite", []string{canCreate}, (*probe).cannotOverwrite},
	{replaces, []string{canCreate}, (*probe).replaces},
	{"replaces one version", []string{canCreate, replaces}, (*probe).replacesVersion},
	{"checksum", []string{canCreate}, (*probe).checksum},
	{"can read ranges", []string{canCreate}, (*probe).readsRanges},
	{"pinned reads", []string{canCreate, replaces}, (*probe).pinnedReads},
	{"lists in order", []string{canCreate}, (*probe).lists},
	{"can delete", []string{canCreate}, (*probe).canDelete},
	{"broken upload leaves nothing", []string{canCreate}, (*probe).brokenUpload},
	{"lock holds", []string{canCreate}, (*probe).lockHolds},
	{"versioning", []string{canCreate, replaces}, (*probe).versioning},
	{"clock skew", []string{canCreate}, (*probe).clockSkew},
	{"leftovers", []string{reachable}, (*probe).leftovers},
}

// Run checks bucket, the root of a repository, and the clusters in it. It returns a line for every check, always in the
// same order. When ctx ends, the remaining checks are not run, but the objects of this run are still removed.
func Run(ctx context.Context, bucket storage.Bucket, o Options, report storage.Report) []Line {
	if o.Large == 0 {
		o.Large = defaultLarge
	}
	p := newProbe(bucket, o)
	var lines []Line
	for _, s := range steps {
		report.Say(storage.Event{Stage: "check", Message: "checking", Object: s.name})
		lines = append(lines, s.line(ctx, p, lines))
	}
	if lines[0].Verdict == OK {
		lines = append(lines, p.repository(ctx)...)
	}
	report.Say(storage.Event{Stage: "check", Message: "cleaning up", Object: "clean up"})
	return append(lines, p.cleanUp(ctx, lines[0].Verdict == OK).named("cleaned up"))
}

func (s step) line(ctx context.Context, p *probe, before []Line) Line {
	if ctx.Err() != nil {
		return notRun("interrupted").named(s.name)
	}
	for _, l := range before {
		for _, need := range s.needs {
			if l.Name == need && l.Verdict != OK {
				return notRun("%q is %s", need, l.Verdict).named(s.name)
			}
		}
	}
	l := s.run(p, ctx)
	if ctx.Err() != nil { // the end of ctx may be the cause of any result
		l = notRun("interrupted")
	}
	return l.named(s.name)
}

func ok(format string, args ...any) Line {
	return Line{Verdict: OK, Seen: fmt.Sprintf(format, args...)}
}

func notRun(format string, args ...any) Line {
	return Line{Verdict: NotRun, Seen: fmt.Sprintf(format, args...)}
}

func note(cure, format string, args ...any) Line {
	return Line{Verdict: Note, Seen: fmt.Sprintf(format, args...), Cure: cure}
}

func unknown(cure, format string, args ...any) Line {
	return Line{Verdict: Unknown, Seen: fmt.Sprintf(format, args...), Cure: cure}
}

func wanting(cure, format string, args ...any) Line {
	return Line{Verdict: Wanting, Seen: fmt.Sprintf(format, args...), Cure: cure}
}

// failed returns the line for a call that should have succeeded.
func failed(err error) Line { return wanting(cureOf(err), "%s", oneLine(err)) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func cureOf(err error) string {
	switch {
	case errors.Is(err, storage.ErrNoBucket):
		return "create the bucket, or correct its name in the repository's URL"
	case errors.Is(err, storage.ErrDenied):
		return "give these credentials the right in the message, or use others"
	case errors.Is(err, storage.ErrNotExist):
		return "a stored object is missing: do not keep backups in this store"
	case errors.Is(err, storage.ErrUnsupported), errors.Is(err, storage.ErrKey):
		return "use a store that can do this"
	}
	return "check the network and the store itself, and run the check again"
}

// probe is one run of the checks.
type probe struct {
	root   storage.Bucket // the repository's
	bucket storage.Bucket // the check's own folder
	dir    string         // the name of that folder
	o      Options
	noise  []byte         // the source of all contents
	large  storage.Object // an object in several parts, once there is one; zero before

	mu   sync.Mutex
	made []storage.Object // every stored version; guarded by mu
}

func newProbe(root storage.Bucket, o Options) *probe {
	dir := folder + strings.ToLower(rand.Text()[:12]) + "/"
	p := &probe{root: root, bucket: storage.WithPrefix(root, dir), dir: dir, o: o, noise: make([]byte, o.Large+small)}
	// Read never fails. The content differs in each run, so that a store which deduplicates cannot pass with the objects
	// of an earlier run.
	mathrand.NewChaCha8(sha256.Sum256([]byte(dir))).Read(p.noise)
	return p
}

// content returns n bytes, which differ for each seed from 0 to 99.
func (p *probe) content(seed, n int) []byte { return p.noise[seed : seed+n] }
