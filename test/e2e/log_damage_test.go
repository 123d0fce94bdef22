package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// stored is one segment in the repository.
type stored struct {
	file   string // below the repository
	digest string
	segment.Header
}

func segments(t *testing.T, j job) []stored {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(j.repo, "prod", "log", "*", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("segments in %s: %q, %v", j.repo, files, err)
	}
	var all []stored
	for _, file := range files { // sorted by name
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		h, digest, err := segment.ReadHeader(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, stored{strings.TrimPrefix(file, j.repo), digest, h})
	}
	return all
}

// snapshots returns the files of the backups' databases below the repository, oldest first.
func snapshots(t *testing.T, j job) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(j.repo, "prod", "backups", "*", "snapshot.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("backups in %s: %q, %v", j.repo, files, err)
	}
	for i := range files {
		files[i] = strings.TrimPrefix(files[i], j.repo)
	}
	return files
}

// tape is a log of plain puts with two backups. The member has not compacted any of its revisions.
type tape struct {
	job
	client   *clientv3.Client
	segments []stored
	backups  []string
	backup   uint64 // last segment before the newer backup, from 1

	// next continues the last segment as if it belonged to the same log, but belongs to another lineage of the same
	// cluster.
	next    stored
	foreign job
}

func record(t *testing.T, j job) *tape {
	t.Helper()
	source := servers.Start(t, servers.Options{})
	p := &tape{job: j, client: source.Client(t)}
	p.foreign = p.job
	p.foreign.repo = filepath.Join(t.TempDir(), "foreign")
	p.foreign.env = append(slices.Clone(p.env), "DR_REPO=file://"+p.foreign.repo)
	a, other := p.archiving(t, source, 0), p.foreign.archiving(t, source, 0)
	p.firstWindow(t, p.client, a)
	for i := range 8 {
		a.Pause(t) // a segment that is cut between writes need not end with a mark
		p.write(t, 20)
		a.Resume(t)
		agent.CatchUp(t, a)
		if i == 3 {
			p.backup = uint64(len(segments(t, p.job)))
			p.backUp(t, source)
		}
	}
	agent.CatchUp(t, other)
	a.Stop(t)
	p.write(t, 20)
	agent.CatchUp(t, other)
	other.Stop(t)
	p.segments, p.backups = segments(t, p.job), snapshots(t, p.job)
	for _, s := range segments(t, p.foreign) {
		if s.First == p.end().Last+1 {
			p.next = s
		}
	}
	if p.next.Seq == 0 || len(p.backups) != 2 {
		t.Fatalf("no segment of the other lineage begins behind position %d, or there are not two backups: %q", p.end().Last, p.backups)
	}
	return p
}

// revision returns the revision of the key space directly after a position, from a mark: every segment ends with one.
func revision(t *testing.T, s stored) int64 {
	t.Helper()
	for _, m := range slices.Backward(s.Marks) {
		if m.Position == s.Last && m.Revision > 0 {
			return m.Revision
		}
	}
	t.Fatalf("no mark says which revision position %d has: %+v", s.Last, s.Marks)
	return 0
}

func (p *tape) write(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		put(t, p.client, fmt.Sprintf("key/%02d", i), strings.Repeat("value ", 20))
	}
}

func (p *tape) end() stored { return p.segments[len(p.segments)-1] }

// at returns the key space at the end of the segment with this number, from 1; 0 is the last.
func (p *tape) at(t *testing.T, seq uint64) database.Image {
	t.Helper()
	return live(t, p.client, revision(t, p.segments[cmp.Or(seq, p.end().Seq)-1]))
}

// copied returns a copy of the tape's repository, to be damaged.
func (p *tape) copied(t *testing.T) job {
	t.Helper()
	j := p.job
	j.repo = filepath.Join(t.TempDir(), "repo")
	err := os.CopyFS(j.repo, os.DirFS(p.repo))
	if err != nil {
		t.Fatal(err)
	}
	j.env = append(slices.Clone(p.env), "DR_REPO=file://"+j.repo)
	return j
}

// change rewrites a file of the repository.
func (j job) change(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(j.repo, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	j.replace(t, file, change(data))
}

func (j job) replace(t *testing.T, file string, data []byte) {
	t.Helper()
	path := filepath.Join(j.repo, file)
	_ = os.Remove(path) // it may be read-only or missing
	err := os.WriteFile(path, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func cut(data []byte) []byte { return data[:len(data)-100] }

func flip(data []byte) []byte {
	data[len(data)-100] ^= 0x40
	return data
}

// only fails the test unless the log ends directly after the segment: a later target is refused with the nearest point,
// which --best restores; everything up to it can still be restored.
func (p *tape) only(t *testing.T, j job, seq uint64) {
	t.Helper()
	end := p.at(t, seq)
	nearest := fmt.Sprintf("the nearest restorable point is revision %d ", end.Revision)
	j.wantRefused(t, 3, nearest)
	j.wantRestored(t, end, "--best")
	j.wantRestored(t, end, "--to-revision", fmt.Sprint(end.Revision))
	if seq < p.end().Seq {
		beyond := fmt.Sprint(p.at(t, 0).Revision)
		j.wantRefused(t, 3, nearest, "--to-revision", beyond)
		j.wantRestored(t, end, "--to-revision", beyond, "--best")
	}
}

// TestLogDamage checks that a damaged or missing object affects only its own content: the nearest point that can be
// proven is named, and restored only on request.
func TestLogDamage(t *testing.T) {
	withServers(t)
	logDamage(t, newJob(t))
}

// TestSoakLogDamage does the same with a log of watch events.
func TestSoakLogDamage(t *testing.T) {
	soak.Only(t, "TestLogDamage does the same")
	logDamage(t, newWatchingJob(t))
}

func logDamage(t *testing.T, j job) {
	p := record(t, j)
	behind := p.backup + 2 // a segment after the newer backup
	t.Run("newest backup", func(t *testing.T) {
		for _, damage := range []func([]byte) []byte{cut, flip} {
			j := p.copied(t)
			j.change(t, p.backups[1], damage)
			j.wantRestored(t, p.at(t, 0))
			j.wantRestored(t, p.at(t, behind), "--to-revision", fmt.Sprint(p.at(t, behind).Revision))
		}
	})
	t.Run("both backups", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.backups[0], cut)
		j.change(t, p.backups[1], flip)
		j.wantRefused(t, 3, "damaged")
		j.wantRefused(t, 3, "damaged", "--best")
	})
	t.Run("newest backup and a segment before it", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.backups[1], cut)
		j.change(t, p.segments[p.backup-2].file, flip)
		p.only(t, j, p.backup-2)
	})
	t.Run("a segment before the newest backup", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.segments[p.backup-2].file, flip)
		j.wantRestored(t, p.at(t, 0))
		j.wantRestored(t, p.at(t, p.backup-2), "--to-revision", fmt.Sprint(p.at(t, p.backup-2).Revision))
		inside := fmt.Sprint(p.at(t, p.backup-2).Revision + 3)
		j.wantRefused(t, 3, fmt.Sprintf("the nearest restorable point is revision %d ", p.at(t, p.backup-2).Revision), "--to-revision", inside)
		j.wantRestored(t, p.at(t, p.backup-2), "--to-revision", inside, "--best")
	})
	t.Run("a segment is missing", func(t *testing.T) {
		j := p.copied(t)
		err := os.Remove(filepath.Join(j.repo, p.segments[behind-1].file))
		if err != nil {
			t.Fatal(err)
		}
		p.only(t, j, behind-1)
		v := j.verifyLog(t, 3)
		if len(v.Missing) != 1 || v.Missing[0].Seq != behind || len(v.Gaps) != 1 {
			t.Errorf("missing %+v, gaps %+v", v.Missing, v.Gaps)
		}
	})
	t.Run("a segment is damaged", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.segments[behind-1].file, flip)
		p.only(t, j, behind-1)
		p.oneDamaged(t, j, behind)
	})
	t.Run("a header is damaged", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.segments[behind-1].file, func(data []byte) []byte { data[40] ^= 1; return data })
		p.only(t, j, behind-1)
		p.oneDamaged(t, j, behind)
	})
	t.Run("the last segment is cut", func(t *testing.T) {
		j := p.copied(t)
		j.change(t, p.end().file, cut)
		p.only(t, j, p.end().Seq-1)
		p.oneDamaged(t, j, p.end().Seq)
	})
	t.Run("doubled", func(t *testing.T) {
		j := p.copied(t)
		last := p.end().Seq + 1
		j.replace(t, p.name(last), read(t, p.repo, p.end().file))
		p.only(t, j, p.end().Seq)
		p.oneDamaged(t, j, last)
	})
	t.Run("doubled in the middle", func(t *testing.T) {
		j := p.copied(t)
		j.replace(t, p.name(behind), read(t, p.repo, p.segments[behind-2].file))
		p.only(t, j, behind-1)
		p.oneDamaged(t, j, behind)
	})
	t.Run("of another lineage", func(t *testing.T) {
		j := p.copied(t)
		j.replace(t, p.name(p.end().Seq+1), read(t, p.foreign.repo, p.next.file))
		p.only(t, j, p.end().Seq)
		p.oneDamaged(t, j, p.end().Seq+1)
	})
	t.Run("of another chain", func(t *testing.T) {
		j := p.copied(t)
		j.replace(t, p.name(p.end().Seq+1), p.rewritten(t, p.next.Previous))
		p.only(t, j, p.end().Seq)
		p.oneDamaged(t, j, p.end().Seq+1)
	})
	t.Run("of the same chain", func(t *testing.T) { // so that only the chain was wrong before
		j := p.copied(t)
		j.replace(t, p.name(p.end().Seq+1), p.rewritten(t, p.end().digest))
		j.wantRestored(t, live(t, p.client, revision(t, p.next)))
		j.oneLog(t)
	})
}

// oneDamaged fails the test unless dr archive verify blames only this segment.
func (p *tape) oneDamaged(t *testing.T, j job, seq uint64) {
	t.Helper()
	v := j.verifyLog(t, 3)
	if len(v.Damaged) == 0 || v.Damaged[0].Seq != seq || len(v.Missing) > 0 {
		t.Errorf("damaged %+v, missing %+v, want segment %d alone", v.Damaged, v.Missing, seq)
	}
}

// name returns the name of a segment of the tape's lineage.
func (p *tape) name(seq uint64) string {
	return filepath.Join(filepath.Dir(p.end().file), fmt.Sprintf("%016x.seg", seq))
}

func read(t *testing.T, dir, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rewritten returns the other lineage's segment as if it continued the tape, with this digest of the one before.
func (p *tape) rewritten(t *testing.T, previous string) []byte {
	t.Helper()
	keys, err := seal.ParseKeys(bytes.NewReader(read(t, filepath.Dir(p.key), filepath.Base(p.key))))
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.ParseRecipients(strings.NewReader(p.to))
	if err != nil {
		t.Fatal(err)
	}
	r, err := segment.Open(bytes.NewReader(read(t, p.foreign.repo, p.next.file)), keys)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var requests []segment.Record
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == segment.Request || record.Kind == segment.Change {
			record.Data = bytes.Clone(record.Data)
			requests = append(requests, record)
		}
	}
	h := p.next.Header
	h.Lineage, h.Seq, h.Previous = p.end().Lineage, p.end().Seq+1, previous
	e, err := segment.Encode(h, requests, to)
	if err != nil {
		t.Fatal(err)
	}
	return e.Bytes
}
