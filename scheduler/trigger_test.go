package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// archiver stores segments of ten positions and about 1000 bytes each, as dr archive would.
type archiver struct {
	w      *world
	to     *repository.Cluster
	header segment.Header // of the last one
	digest string
	after  *segment.After // of a lineage that begins
	ahead  time.Duration  // of the agent's clock
}

func (w *world) archive(cluster string) *archiver {
	to, err := repository.Open(w.stores["main"], cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	return &archiver{w: w, to: to, header: segment.Header{Lineage: strings.Repeat("a", 32)}}
}

// store stores the next one. From now on backups hold its last position.
func (a *archiver) store() {
	a.w.t.Helper()
	now := time.Now().Add(a.ahead)
	h := segment.Header{
		Cluster: a.to.Name(), Lineage: a.header.Lineage, Seq: a.header.Seq + 1, Previous: a.digest, First: a.header.Last + 1,
		Last: a.header.Last + 10, After: a.after, Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d",
		ServerVersion: "3.7.3", Writer: "w", Written: now, DRVersion: "v1",
	}
	if a.after != nil {
		h.Reason = "the member's log was purged"
	}
	h.Marks = []segment.Mark{{Position: h.Last, Revision: 1000 + int64(h.Last), Interval: segment.Interval{NotBefore: now, NotAfter: now}}}
	h.End = segment.End{Position: h.Last, Term: 2, Digest: strings.Repeat("e", 64)}
	request := segment.Record{Kind: segment.Request, Position: h.Last, Term: 2, Data: []byte(strings.Repeat("x", 1000))}
	encoded, err := segment.Encode(h, []segment.Record{request}, seal.Recipients{})
	if err == nil {
		err = a.to.Log().StoreSegment(a.w.t.Context(), encoded)
	}
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.header, a.digest, a.after = encoded.Header, encoded.Digest, nil
	a.w.set(func() { a.w.position = h.Last })
}

// lose begins a new lineage after positions that are not stored anywhere.
func (a *archiver) lose() {
	a.after = &segment.After{
		Lineage: a.header.Lineage, Seq: a.header.Seq, Position: a.header.Last, Time: a.header.Written,
	}
	a.header, a.digest = segment.Header{Lineage: strings.Repeat("b", 32), Last: a.header.Last + 100}, ""
}

// size returns the stored size of all segments of cluster.
func (a *archiver) size() (n int64) {
	a.w.t.Helper()
	catalog, err := a.to.Load(a.w.t.Context(), backups.LoadOptions{Log: true})
	if err != nil {
		a.w.t.Fatal(err)
	}
	for _, l := range catalog.Lineages {
		for _, s := range l.Segments {
			n += s.Size
		}
	}
	return n
}

// triggered returns the reasons of the backups of prod that no slot caused.
func (w *world) triggered() (reasons []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.taken {
		why := b.labels[spec.LabelTrigger]
		if why != "" {
			reasons = append(reasons, fmt.Sprintf("%v %s", b.at.Truncate(time.Hour), why))
		}
	}
	return reasons
}

func TestServiceBytes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.archive("prod")
		a.store()
		one := a.size()
		settings := specOf(t, "prod", "", "main")
		settings.Triggers = spec.Triggers{Bytes: 5 * one, Every: 5 * time.Minute}
		w.start("a", configOf(settings))
		w.pass(30 * time.Minute)
		for range 12 {
			w.pass(time.Hour)
			a.store()
		}
		w.pass(time.Hour)
		// Headers differ by a few bytes, so that it may take one more or less.
		got := w.triggered()
		if len(got) < 2 || len(got) > 3 || !strings.Contains(got[0], "bytes of log since the last backup") {
			t.Errorf("triggered %q, a segment has %d bytes", got, one)
		}
	})
}

func TestServiceGap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := specOf(t, "prod", "@weekly", "main")
		settings.Triggers = spec.Triggers{Gap: true, Every: 5 * time.Minute}
		w.start("a", configOf(settings))
		a := w.archive("prod")
		for range 3 {
			a.store()
			w.pass(time.Hour)
		}
		got := w.triggered()
		if len(got) > 0 {
			t.Errorf("without a gap: %q", got)
		}
		a.lose()
		for range 3 {
			a.store()
			w.pass(time.Hour)
		}
		got = w.triggered()
		if len(got) != 1 || !strings.HasPrefix(got[0], "3h0m0s a gap in the log until 2000-01-01T03:0") {
			t.Errorf("triggered %q", got)
		}
	})
}

// An agent whose clock is ahead records gaps that end in the future. One backup of each is enough.
func TestServiceGapOfAClockAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := specOf(t, "prod", "@weekly", "main")
		settings.Triggers = spec.Triggers{Gap: true, Every: 5 * time.Minute}
		w.start("a", configOf(settings))
		a := w.archive("prod")
		a.ahead = 6 * time.Hour
		a.store()
		w.pass(time.Hour)
		a.lose()
		a.store()
		w.pass(3 * time.Hour)
		got := w.triggered()
		if len(got) != 1 || !strings.HasPrefix(got[0], "1h0m0s a gap in the log until 2000-01-01T07:0") {
			t.Errorf("triggered %q", got)
		}
	})
}
