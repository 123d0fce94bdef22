package repository_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// model is the expected state of a repository with one cluster.
type model struct {
	t       *testing.T
	b       *mem.Bucket
	c       *repository.Cluster
	backups map[catalog.ID]*modelled
	runs    int
}

type modelled struct {
	started  time.Time
	revision int64
	blamed   string // the first damaged object, in the order in which Load checks them; "" for a whole backup
	gone     bool   // the manifest is missing
	proofs   []catalog.Proof
}

// TestModel checks that Load returns the expected catalog after any sequence of operations.
func TestModel(t *testing.T) {
	names := slices.Sorted(maps.Keys(spoils))
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: t, b: mem.New(), backups: map[catalog.ID]*modelled{}}
		m.c = stored.OpenCluster(t, m.b, "c")
		neighbour := stored.OpenCluster(t, m.b, "c0")
		rt.Repeat(map[string]func(*rapid.T){
			"create":      m.create,
			"damage":      func(rt *rapid.T) { m.damage(rt, rapid.SampledFrom(names).Draw(rt, "spoil")) },
			"append":      m.append,
			"spoil proof": m.spoilProof,
			"no manifest": m.removeManifest,
			"of neighbour": func(rt *rapid.T) {
				_, _ = stored.TryCreate(t, neighbour, drawID(rt), stored.ManifestOf(stored.Content, stored.Noon))
			},
			"": m.check,
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func drawID(rt *rapid.T) catalog.ID { return stored.IDAt(rapid.IntRange(0, 9).Draw(rt, "id")) }

func (m *model) create(rt *rapid.T) {
	id, at := drawID(rt), rapid.IntRange(0, 3).Draw(rt, "started")
	started, revision := stored.Noon.Add(time.Duration(at)*time.Minute), rapid.Int64Range(1, 3).Draw(rt, "revision")
	manifest := stored.ManifestOf(stored.Content, started)
	m.runs++
	manifest.Revision, manifest.Labels = revision, catalog.Labels{"run": fmt.Sprint(m.runs)}
	taken := false
	for _, key := range stored.Keys(m.t, m.b) {
		taken = taken || key == stored.Folder("c", id)+stored.PlainName || key == stored.Folder("c", id)+"manifest.json"
	}
	_, err := stored.TryCreate(m.t, m.c, id, manifest)
	if taken != (err != nil) {
		rt.Fatalf("create %s, taken %v: %v", id, taken, err)
	}
	if err == nil {
		m.backups[id] = &modelled{started: started, revision: revision, proofs: m.proofsLeft(id)}
	}
}

// proofsLeft returns the proofs of an earlier backup with the same ID.
func (m *model) proofsLeft(id catalog.ID) []catalog.Proof {
	old := m.backups[id]
	if old != nil {
		return old.proofs
	}
	return nil
}

// any draws a backup for which ok returns true.
func (m *model) any(rt *rapid.T, ok func(b *modelled) bool) (catalog.ID, *modelled) {
	var all []catalog.ID
	for id, b := range m.backups {
		if ok(b) {
			all = append(all, id)
		}
	}
	if len(all) == 0 {
		rt.Skip("there is none")
	}
	slices.Sort(all)
	id := rapid.SampledFrom(all).Draw(rt, "of")
	return id, m.backups[id]
}

func whole(b *modelled) bool { return b.blamed == "" && !b.gone }

func (m *model) damage(rt *rapid.T, name string) {
	id, b := m.any(rt, whole)
	spoils[name].do(m.t, m.b, stored.Folder("c", id))
	b.blamed = spoils[name].blamed
}

func (m *model) removeManifest(rt *rapid.T) {
	id, b := m.any(rt, func(b *modelled) bool { return !b.gone })
	stored.Remove(m.t, m.b, stored.Folder("c", id)+"manifest.json")
	b.gone = true
}

func (m *model) append(rt *rapid.T) {
	id, b := m.any(rt, func(*modelled) bool { return true })
	p := stored.ProofOf(id, rapid.SampledFrom(catalog.Levels).Draw(rt, "level"), catalog.Passed,
		rapid.IntRange(0, 2).Draw(rt, "hour"))
	p.Keys = int64(len(b.proofs))
	stored.AppendProof(m.t, m.c, p)
	b.proofs = append(b.proofs, p)
	slices.SortStableFunc(b.proofs, func(a, b catalog.Proof) int { return a.Time.Compare(b.Time) })
}

// spoilProof empties a backup's oldest proof, by name and by time.
func (m *model) spoilProof(rt *rapid.T) {
	id, b := m.any(rt, func(b *modelled) bool { return len(b.proofs) > 0 })
	for _, key := range stored.Keys(m.t, m.b) {
		if strings.HasPrefix(key, stored.Folder("c", id)+"proof-") && len(stored.Get(m.t, m.b, key)) > 0 {
			stored.Put(m.t, m.b, key, nil)
			b.proofs = slices.Clone(b.proofs[1:])
			return
		}
	}
	rt.Fatalf("no proof of %s is to be seen", id)
}

func (m *model) check(rt *rapid.T) {
	o := backups.LoadOptions{Proofs: rapid.Bool().Draw(rt, "proofs"), Newest: rapid.IntRange(0, 4).Draw(rt, "newest")}
	if rapid.IntRange(0, 3).Draw(rt, "one") == 0 {
		o.Only = drawID(rt)
	}
	got, err := m.c.Load(m.t.Context(), o)
	if err != nil {
		rt.Fatal(err)
	}
	want, damaged := m.expect(o)
	diff := gocmp.Diff(want, summary(got))
	if diff != "" {
		rt.Fatalf("%+v: %s", o, diff)
	}
	for i, d := range got.Damaged {
		if !strings.Contains(d.Err.Error(), damaged[i]) {
			rt.Fatalf("%s is damaged at %s: %v", d.ID, damaged[i], d.Err)
		}
	}
}

// summary returns a line for each backup, in order, with its proofs.
func summary(c catalog.Catalog) []string {
	var lines []string
	for _, b := range c.Backups {
		lines = append(lines, line(b.ID, b.Proofs))
	}
	for _, d := range c.Damaged {
		lines = append(lines, string(d.ID)+" damaged")
	}
	return lines
}

func line(id catalog.ID, proofs []catalog.Proof) string {
	text := string(id)
	for _, p := range proofs {
		text += fmt.Sprintf(" %s@%s#%d", p.Level, p.Time.Format("15h"), p.Keys)
	}
	return text
}

// expect returns the lines of the expected catalog under o, and the keys of the damaged objects.
func (m *model) expect(o backups.LoadOptions) (lines, blamed []string) {
	var good, bad []catalog.ID
	for _, id := range m.chosen(o) {
		if m.backups[id].blamed == "" {
			good = append(good, id)
		} else {
			bad = append(bad, id)
		}
	}
	slices.SortFunc(good, func(x, y catalog.ID) int {
		a, b := m.backups[x], m.backups[y]
		return cmp.Or(b.started.Compare(a.started), cmp.Compare(b.revision, a.revision), cmp.Compare(y, x))
	})
	for _, id := range good {
		proofs := m.backups[id].proofs
		if !o.Proofs {
			proofs = nil
		}
		lines = append(lines, line(id, proofs))
	}
	for _, id := range bad {
		lines = append(lines, string(id)+" damaged")
		blamed = append(blamed, stored.Folder("c", id)+m.backups[id].blamed)
	}
	return lines, blamed
}

// chosen returns the backups that Load must read under o, newest first by name.
func (m *model) chosen(o backups.LoadOptions) []catalog.ID {
	var all []catalog.ID
	for id, b := range m.backups {
		if !b.gone && (o.Only == "" || o.Only == id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	if o.Newest > 0 {
		all = all[:min(o.Newest, len(all))]
	}
	return all
}
