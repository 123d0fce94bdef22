package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

const prod = "/api/v1/clusters/prod"

func TestClustersAreReadWorstFirst(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		all := read[document.ServeStatus](s, "/api/v1/clusters", http.StatusOK)
		if len(all.Clusters) != 2 || all.Clusters[0].Cluster != "test" || all.Clusters[0].State != document.StateFailing || all.Config.File != "dr.yaml" {
			t.Errorf("clusters: %+v", all)
		}
		one := read[document.ServedCluster](s, prod, http.StatusOK)
		if one.Cluster != "prod" || one.Last.ID != s.ids[1] {
			t.Errorf("prod: %+v", one)
		}
		read[document.Problem](s, "/api/v1/clusters/prod2", http.StatusNotFound)
	})
}

func TestReadBackupsWindowsDrills(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		list := read[document.List](s, prod+"/backups", http.StatusOK)
		if len(list.Backups) != 2 || list.Backups[0].ID != s.ids[1] || len(list.Windows) != 1 {
			t.Errorf("backups: %+v", list)
		}
		list = read[document.List](s, prod+"/backups?repository=offsite", http.StatusOK)
		if len(list.Backups) != 0 {
			t.Errorf("backups offsite: %+v", list)
		}
		windows := read[document.Recovery](s, prod+"/windows", http.StatusOK)
		if len(windows.Windows) != 1 || windows.Windows[0].From.Revision != 10 || windows.Windows[0].To.Revision != 30 || len(windows.Gaps) != 0 {
			t.Errorf("windows: %+v", windows)
		}
		d := read[document.Drills](s, prod+"/drills", http.StatusOK)
		if len(d.Drills) != 1 || d.Drills[0].Backup != s.ids[1] || d.Drills[0].Drill.RTO != 3 {
			t.Errorf("drills: %+v", d)
		}
		for path, want := range map[string]int{
			prod + "/backups?repository=other":     http.StatusNotFound,
			"/api/v1/clusters/prod2/backups":       http.StatusNotFound,
			"/api/v1/clusters/prod2/retention":     http.StatusNotFound,
			"/api/v1/clusters/test/backups":        http.StatusBadGateway,
			"/api/v1/clusters/test/plan":           http.StatusBadGateway,
			"/api/v1/clusters/..%2Fprod/backups":   http.StatusNotFound,
			"/api/v1/clusters/prod/nothing":        http.StatusNotFound,
			"/api/v2/clusters":                     http.StatusNotFound,
			prod + "/plan?repository=offsite":      http.StatusNotFound,
			prod + "/plan?repository=other":        http.StatusNotFound,
			prod + "/retention?repository=offsite": http.StatusOK,
		} {
			if want == http.StatusOK {
				read[document.Prune](s, path, want)
				continue
			}
			p := read[document.Problem](s, path, want)
			if p.Message == "" {
				t.Errorf("%s: no message", path)
			}
		}
	})
}

// The decisions are those of dr prune, and nothing is removed.
func TestRetentionIsRead(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		d := read[document.Prune](s, prod+"/retention", http.StatusOK)
		if !d.DryRun || len(d.Backups) != 2 || !d.Backups[0].Keep || d.Backups[1].Keep || d.Backups[1].Reasons[0] != "no rule keeps it" {
			t.Errorf("retention: %+v", d)
		}
		list := read[document.List](s, prod+"/backups", http.StatusOK)
		if len(list.Backups) != 2 {
			t.Errorf("then there are %d backups", len(list.Backups))
		}
	})
}

func TestPlanIsRead(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		time.Sleep(time.Minute) // of fake time: see inSite
		for query, want := range map[string]struct {
			words    string // in the command
			revision int64
			lost     document.Lost
		}{
			"":                            {"--cluster prod --dry-run", 30, document.Lost{Seconds: 60}},
			"?revision=15":                {"--to-revision 15 --dry-run", 15, document.Lost{Seconds: 3660, Known: 3600, Revisions: 15}},
			"?time=1999-12-31T23:30:00Z":  {"--to 1999-12-31T23:30:00Z --dry-run", 20, document.Lost{Seconds: 3660, Known: 3600, Revisions: 10}},
			"?backup=" + string(s.ids[0]): {"dr restore " + string(s.ids[0]) + " --repo", 10, document.Lost{Seconds: 7260, Known: 7200, Revisions: 20}},
			"?backup=latest":              {"dr restore " + string(s.ids[1]) + " --repo", 20, document.Lost{Seconds: 3660, Known: 3600, Revisions: 10}},
			"?revision=99&best=true":      {"--to-revision 99 --best --dry-run", 30, document.Lost{Seconds: 60}},
		} {
			way := read[document.Way](s, prod+"/plan"+query, http.StatusOK)
			if !strings.Contains(way.Command, want.words) || !strings.HasPrefix(way.Command, "dr restore ") || !strings.Contains(way.Command, "--repo mem://main") {
				t.Errorf("%s: %s", query, way.Command)
			}
			revision := way.Plan.Backup.Revision
			if way.Plan.Log != nil {
				revision = way.Plan.Reach.Revision
			}
			if revision != want.revision || way.Lost.Seconds != want.lost.Seconds || way.Lost.Known != want.lost.Known || way.Lost.Revisions != want.lost.Revisions ||
				!strings.HasPrefix(way.Lost.Message, "everything written after ") || strings.HasSuffix(way.Lost.Message, " of it, which this plan omits") != (want.lost.Known > 0) {
				t.Errorf("%s: revision %d, %+v", query, revision, way.Lost)
			}
		}
		p := read[document.Problem](s, prod+"/plan?revision=99", http.StatusNotFound)
		if !strings.Contains(p.Cure, "the nearest restorable point is ") || strings.Contains(p.Message, "nearest") {
			t.Errorf("out of reach: %+v", p)
		}
		for _, query := range []string{
			"revision=0", "revision=-1", "revision=x", "revision=9999999999999999999", "time=", "time=now", "time=0001-01-01T00:00:00Z", "backup=x",
			"backup=../x", "best=perhaps", "revision=15&backup=latest",
		} {
			read[document.Problem](s, prod+"/plan?"+query, http.StatusBadRequest)
		}
	})
}

// A polling page does not keep the store busy, and its data is not old either.
func TestCatalogsAreReadOnceInAWhile(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		read[document.List](s, prod+"/backups", http.StatusOK)
		s.store.On(storagetest.VerbList).Always().Fail(errors.New("the store is away"))
		for _, path := range []string{"/backups", "/windows", "/drills", "/plan", "/retention"} {
			w := s.do(request(http.MethodGet, prod+path, ""))
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d: %s", path, w.Code, w.Body)
			}
		}
		time.Sleep(11 * time.Second)
		p := read[document.Problem](s, prod+"/backups", http.StatusBadGateway)
		if !strings.Contains(p.Message, "the store is away") {
			t.Errorf("later: %+v", p)
		}
	})
}

// A request ends after a minute even if the store hangs. Otherwise hanging requests would soon use up the 64 that the API serves at a time.
func TestStoreThatHangs(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		s.store.On(storagetest.VerbList).Always().Delay(24 * time.Hour)
		for _, r := range []*http.Request{
			request(http.MethodGet, prod+"/backups", ""), request(http.MethodPost, prod+"/backups/"+string(s.ids[0])+"/pin", "{}"),
		} {
			before := time.Now()
			w := s.do(r)
			if w.Code != http.StatusBadGateway || time.Since(before) > time.Minute {
				t.Errorf("%s: %d after %s: %s", r.URL, w.Code, time.Since(before), w.Body)
			}
		}
	})
}
