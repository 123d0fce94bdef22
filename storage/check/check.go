// Package check tries out, on the user's own bucket, what a backup and a restore will rely on, and says what is wanting
// and what to do about it.
//
// All that it writes stands below a folder of its own, ".dr-check-<random>/", which no listing of clusters shows, and is
// removed at the end.
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
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Verdict is what a check came to.
type Verdict string

// The verdicts of a Line.
const (
	OK      Verdict = "ok"
	Note    Verdict = "note"    // as it is, it may be meant so, and a person should know
	Wanting Verdict = "wanting" // it will fail when it is needed
	NotRun  Verdict = "not run" // Seen says why
	Unknown Verdict = "unknown" // it could not be found out
)

// Line is one check and what came of it.
type Line struct {
	Name    string  `json:"name"`
	Of      string  `json:"of,omitempty"` // the cluster it is about; "" for the store or the live cluster
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`           // one plain sentence, no secret in it
	Cure    string  `json:"cure,omitempty"` // what to do; "" where nothing is to be done

	Ends time.Time `json:"ends,omitzero"` // of a certificate: when it does
}

// named gives a Line its name: what finds it does not know it.
func (l Line) named(name string) Line {
	l.Name = name
	return l
}

// Options say what to try beyond what always is.
type Options struct {
	// Lock is tried if For is not zero. One object then stays in the bucket until its lock ends, so it should be short;
	// less than a few seconds may end before it was tried.
	Lock repository.Lock
	// Clusters are those whose newest backup is looked at; nil: all in the bucket.
	Clusters []string
	Trust    sign.Trust // whose signatures count, as in repository.Policy
	// Large is how many bytes an object has that the stores send in several parts, 0: a little over 8 MiB, which is what
	// they hold in a part. It is held in memory.
	Large int
	// AsOf shows the bucket as it was; nil: storage.AsOf, which cannot look through storage.WithPrefix.
	AsOf func(ctx context.Context, t time.Time) (storage.Bucket, error)
}

const (
	// folder begins the name of what a check writes in. No cluster's name begins with a dot.
	folder = ".dr-check-"
	// defaultLarge is a part of 8 MiB, and one more.
	defaultLarge = 8<<20 + 64<<10
	small        = 1000 // bytes of the other objects
)

// step is one check of the store. It is not run unless all that it needs came out well.
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

// Run checks bucket, the root of a repository, and what it holds of clusters. Every check has its line, in the same
// order each time. When ctx ends, those that are left are not run, and what was written is removed all the same.
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
	if ctx.Err() != nil { // whatever it says, it may say so for that alone
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

// failed is for a call that should have succeeded.
func failed(err error) Line { return wanting(cureOf(err), "%s", oneLine(err)) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func cureOf(err error) string {
	switch {
	case errors.Is(err, storage.ErrNoBucket):
		return "create the bucket, or correct its name in the repository's URL"
	case errors.Is(err, storage.ErrDenied):
		return "give these credentials the right that is named, or use others"
	case errors.Is(err, storage.ErrNotExist):
		return "what was stored is not to be seen: do not keep backups in this store"
	case errors.Is(err, storage.ErrUnsupported), errors.Is(err, storage.ErrKey):
		return "use a store that can do this"
	}
	return "look at the network and at the store itself, and check again"
}

// probe is one run of the checks.
type probe struct {
	root   storage.Bucket // the repository's
	bucket storage.Bucket // what is below the check's own folder
	dir    string         // that folder
	o      Options
	noise  []byte         // contents are cut from it
	large  storage.Object // one in several parts, once there is one

	mu   sync.Mutex
	made []storage.Object // each version that was stored
}

func newProbe(root storage.Bucket, o Options) *probe {
	dir := folder + strings.ToLower(rand.Text()[:12]) + "/"
	p := &probe{root: root, bucket: storage.WithPrefix(root, dir), dir: dir, o: o, noise: make([]byte, o.Large+small)}
	// Never fails. A store that keeps one copy of equal contents must not pass for that.
	mathrand.NewChaCha8(sha256.Sum256([]byte(dir))).Read(p.noise)
	return p
}

// content is n bytes, others for each seed from 0 to 99.
func (p *probe) content(seed, n int) []byte { return p.noise[seed : seed+n] }
