package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// order sends body to path, which must be answered with a status.
func order[T any](s *site, path, body string, status int) (d T) {
	s.t.Helper()
	w := s.do(request(http.MethodPost, path, body))
	if w.Code != status {
		s.t.Fatalf("%s: %d: %s", path, w.Code, w.Body)
	}
	err := json.Unmarshal(w.Body.Bytes(), &d)
	if err != nil {
		s.t.Fatalf("%s: %v: %s", path, err, w.Body)
	}
	return d
}

// A pinned backup is kept, and the next response shows the pin.
func TestPin(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		old := prod + "/backups/" + string(s.ids[0])
		d := read[document.Prune](s, prod+"/retention", http.StatusOK)
		if d.Backups[1].Keep {
			t.Fatal("nothing goes")
		}
		pins := order[document.Pins](s, old+"/pin", `{"reason": "before the upgrade"}`, http.StatusOK)
		if len(pins.Pins) != 1 || pins.Pins[0].Reason != "before the upgrade" || pins.Pins[0].By != "a user of this host through host, dr v1" {
			t.Errorf("pins: %+v", pins)
		}
		d = read[document.Prune](s, prod+"/retention", http.StatusOK)
		if !d.Backups[1].Keep {
			t.Errorf("it goes all the same: %+v", d.Backups)
		}
		order[document.Problem](s, old+"/pin", `{"until": "1999-01-01T00:00:00Z"}`, http.StatusBadRequest)
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		pins = order[document.Pins](s, old+"/pin", fmt.Sprintf(`{"until": %q}`, until.Format(time.RFC3339)), http.StatusOK)
		if len(pins.Pins) != 2 || !pins.Pins[1].Until.Equal(until) {
			t.Errorf("with an end: %+v", pins)
		}
		pins = order[document.Pins](s, old+"/unpin", "", http.StatusOK)
		if len(pins.Lifted) != 2 {
			t.Errorf("lifted: %+v", pins)
		}
		d = read[document.Prune](s, prod+"/retention", http.StatusOK)
		if d.Backups[1].Keep {
			t.Error("it stays all the same")
		}
	})
}

// A triggered job runs, and the cluster's jobs contain its outcome.
func TestTrigger(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		got := order[document.QueuedJob](s, prod+"/trigger", `{"reason": "before the upgrade"}`, http.StatusAccepted)
		if got != (document.QueuedJob{Cluster: "prod", Job: document.JobBackup, Reason: "before the upgrade"}) {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		ended := read[document.Jobs](s, "/api/v1/jobs", http.StatusOK).Ended
		i := slices.IndexFunc(ended, func(j document.ClusterJob) bool { return j.Reason == "before the upgrade" })
		if i < 0 ||
			ended[i].Cluster != "prod" || ended[i].Verdict != document.Failed || ended[i].Message == "" {
			t.Errorf("jobs: %+v", ended)
		}
		for body, want := range map[string]int{
			`{"job": "restore"}`: http.StatusBadRequest, `{"job": "drill"}`: http.StatusConflict, `{"reason": "` + long(1001) + `"}`: http.StatusBadRequest,
		} {
			order[document.Problem](s, prod+"/trigger", body, want)
		}
		order[document.Problem](s, "/api/v1/clusters/other/trigger", "{}", http.StatusNotFound)
	})
}

func TestSuspend(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		got := order[document.ServedCluster](s, prod+"/suspend", `{"reason": "the store moves"}`, http.StatusOK)
		if got.Suspension == nil || got.Suspension.Reason != "the store moves" || got.Suspension.By != "a user of this host through host, dr v1" {
			t.Errorf("suspended: %+v", got)
		}
		order[document.Problem](s, prod+"/trigger", "{}", http.StatusConflict)
		got = order[document.ServedCluster](s, prod+"/resume", "{}", http.StatusOK)
		if got.Suspension != nil {
			t.Errorf("resumed: %+v", got)
		}
		order[document.QueuedJob](s, prod+"/trigger", "{}", http.StatusAccepted)
		for _, verb := range []string{"suspend", "resume"} {
			order[document.Problem](s, "/api/v1/clusters/other/"+verb, "{}", http.StatusNotFound)
			order[document.Problem](s, "/api/v1/clusters/test/"+verb, "{}", http.StatusBadGateway)
		}
	})
}

func TestInvalidBodiesAreRefused(t *testing.T) {
	inSite(t, nil, func(t *testing.T, s *site) {
		pin := prod + "/backups/" + string(s.ids[0]) + "/pin"
		for body, want := range map[string]int{
			`{"reason": 5}`:                            http.StatusBadRequest,
			`{"reasons": "x"}`:                         http.StatusBadRequest,
			`{"reason": "x"} {}`:                       http.StatusBadRequest,
			`[]`:                                       http.StatusBadRequest,
			`{"reason": "two\nlines"}`:                 http.StatusBadRequest,
			`{"reason": "` + long(1001) + `"}`:         http.StatusBadRequest,
			`{"reason": "` + long(64<<10) + `"}`:       http.StatusRequestEntityTooLarge,
			`{"reason": "x"}` + strings.Repeat(" ", 9): http.StatusOK,
		} {
			w := s.do(request(http.MethodPost, pin, body))
			if w.Code != want {
				t.Errorf("%.40s: %d: %s", body, w.Code, w.Body)
			}
			streamed := request(http.MethodPost, pin, body)
			streamed.ContentLength = -1
			w = s.do(streamed)
			if w.Code != want {
				t.Errorf("%.40s, of unknown length: %d: %s", body, w.Code, w.Body)
			}
		}
		for path, want := range map[string]int{
			prod + "/backups/x/pin":                                        http.StatusBadRequest,
			prod + "/backups/20261121T092433Z-0000000000001267/pin":        http.StatusNotFound,
			pin + "?repository=offsite":                                    http.StatusNotFound,
			pin + "?repository=other":                                      http.StatusNotFound,
			"/api/v1/clusters/test/backups/" + string(s.ids[0]) + "/unpin": http.StatusBadGateway,
			prod + "/restore":                                              http.StatusNotFound,
			prod + "/backups":                                              http.StatusMethodNotAllowed,
		} {
			order[document.Problem](s, path, "{}", want)
		}
	})
}

func long(n int) string { return strings.Repeat("x", n) }
