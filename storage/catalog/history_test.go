package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// series returns backups that were taken an hour apart, one for each word in text: a letter for the cluster id (r and s mean
// restored by dr), the revision, "/", the size, and "!" if a pin confirms it.
func series(text string) (backups []catalog.Backup) {
	for i, word := range strings.Fields(text) {
		var b catalog.Backup
		var cluster rune
		confirmed := strings.HasSuffix(word, "!")
		fmt.Sscanf(strings.TrimSuffix(word, "!"), "%c%d/%d", &cluster, &b.Revision, &b.Plain.Size)
		b.Started = stored.Noon.Add(time.Duration(i) * time.Hour)
		b.ID, b.ClusterID = catalog.NewID(b.Started, b.Revision), fmt.Sprintf("%xfff", cluster)
		if strings.ContainsRune("rs", cluster) {
			b.ClusterID = fmt.Sprintf("%x%s", cluster, catalog.RestoreMark("prod"))
		}
		if confirmed {
			b.Pins = []catalog.Pin{{Confirms: true}}
		}
		backups = append(backups, b)
	}
	return backups
}

func TestHistories(t *testing.T) {
	for name, test := range map[string]struct {
		backups string
		doubts  string // the first revision of each history, oldest first, with "?" if it is doubtful
		changed bool   // NewChange returns ok
	}{
		"one":                             {"a1/100 a50/100 a60/20", "1", false},
		"none":                            {"", "", false},
		"after a restore by dr":           {"a10/100 r5/20 r9/20", "10 5", false},
		"after two restores":              {"a10/100 r5/20 s3/10", "10 5 3", false},
		"another cluster":                 {"a10/100 b50/200 b60/200", "10 50?", true},
		"an empty one of the same id":     {"a500/100 a4/20 a9/20", "500 4?", true},
		"restored in place, as large":     {"a500/100 a300/90", "500", false},
		"a small one is empty":            {"a51/24 a1/20 a9/20", "51 1?", true},
		"defragmented":                    {"a500/100 a501/20", "500", false},
		"confirmed":                       {"a500/100 a4/20 a9/20! a12/20", "500 4", false},
		"another confirmed":               {"a10/100 b50/200!", "10 50", false},
		"the old one was confirmed":       {"a500/100! a4/20", "500 4?", true},
		"wrong for a while":               {"a10/100 b5/100 a20/100", "10 5?", false},
		"two at once":                     {"a10/100 b5/100 a20/100 b6/100", "10 5?", true},
		"a member from before a restore":  {"a10/100 r11/100 a12/100", "10 11 12?", true},
		"empty after a restore":           {"a10/100 r1000/100 a2/20", "10 1000 2?", true},
		"restored after an empty one":     {"a500/100 a4/20 r500/100", "500 4? 500", false},
		"the restored one is emptied too": {"a500/100 r600/100 r4/20", "500 600 4?", true},
	} {
		backups := series(test.backups)
		var doubts []string
		for _, h := range catalog.Histories("prod", backups) {
			text := fmt.Sprint(h.Backups[len(h.Backups)-1].Revision)
			if h.Doubtful {
				text += "?"
			}
			doubts = append(doubts, text)
		}
		change, changed := catalog.NewChange("prod", backups)
		got := strings.Join(doubts, " ")
		if got != test.doubts || changed != test.changed {
			t.Errorf("%s: histories %s, changed %v (%v), want %s, %v", name, got, changed, change, test.doubts, test.changed)
		}
	}
}

// TestSurveyFindsHistories checks that a survey reads few backups and still finds every history: the revisions in the ids
// show where to look.
func TestSurveyFindsHistories(t *testing.T) {
	c := stored.OpenCluster(t, storagetest.Faulty(mem.New()), "prod")
	big, small := stored.Noise(4000), stored.Noise(100)
	var all []catalog.ID
	for n := range 40 {
		id, m := catalog.NewID(stored.IDAt(n).Started(), int64(1000+n)), stored.ManifestOf(big, stored.IDAt(n).Started())
		if n >= 20 {
			id = catalog.NewID(stored.IDAt(n).Started(), int64(980+2*n-38)) // the new history soon has higher revisions than the old one
			m = stored.ManifestOf(small, stored.IDAt(n).Started())
		}
		m.Revision = id.Revision()
		_, err := stored.TryCreate(t, c, id, m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	changeOf := func() (catalog.Change, bool) {
		s := stored.Survey(t, c, repository.SurveyOptions{Newest: 4})
		if len(s.Past) > 6 {
			t.Errorf("%d backups of the past are read", len(s.Past))
		}
		return catalog.NewChange("prod", append(s.Backups, s.Past...))
	}
	change, ok := changeOf()
	if !ok || change.Before.ID != all[19] || change.Newest.ID != all[39] {
		t.Errorf("changed %v: %v", ok, change)
	}
	_, err := c.Pin(t.Context(), catalog.Pin{Backup: all[30], Confirms: true, Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	change, ok = changeOf()
	if ok {
		t.Errorf("changed, though it is confirmed: %v", change)
	}
}
