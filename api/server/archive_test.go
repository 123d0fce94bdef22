package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/backup/archive"
)

func agentStatus() archive.Status {
	return archive.Status{
		State: archive.Working, Cluster: "prod", Member: "8e9e05c52164694d", Based: true, Lineage: "0123456789abcdef0123456789abcdef",
		Durable: 6000, DurableAt: time.Now(), ConfirmedAt: time.Now().Add(-time.Hour), PendingRequests: 5, PendingBytes: 500,
		StoredSegments: 7, StoredRequests: 70, StoredBytes: 7000, Gaps: 1, LastGap: time.Unix(900, 0), StoredByOthers: 2, Failures: 3,
		Headroom: archive.Headroom{Files: 2, UnlinkedBytes: 64, Purges: true, Seconds: 90},
		Spool:    archive.Spool{Segments: 3, Bytes: 4096, Max: 8192},
	}
}

// get asks the agent's page while it is in some state.
func getAgent(t *testing.T, s archive.Status, method, path string) (*http.Response, string) {
	t.Helper()
	page := httptest.NewServer(server.Archive(func() archive.Status { return s }, "s3://main/etcd?ca=/etc/ca.crt"))
	defer page.Close()
	request, err := http.NewRequestWithContext(t.Context(), method, page.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := page.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestStatus(t *testing.T) {
	response, body := getAgent(t, agentStatus(), http.MethodGet, "/status")
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("answer %s, %s", response.Status, response.Header)
	}
	var got struct {
		State      string   `json:"state"`
		Durable    uint64   `json:"durable"`
		RPOSeconds *float64 `json:"rpoSeconds"`
	}
	err := json.Unmarshal([]byte(body), &got)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != "working" || got.Durable != 6000 || got.RPOSeconds == nil || *got.RPOSeconds < 3600 {
		t.Errorf("status %s", body)
	}
	unknown := agentStatus()
	unknown.ConfirmedAt = time.Time{}
	_, body = getAgent(t, unknown, http.MethodGet, "/status")
	if !strings.Contains(body, `"rpoSeconds": null`) {
		t.Errorf("nobody knows the RPO, and the status is %s", body)
	}
}

func metrics(t *testing.T, s archive.Status) map[string]*dto.MetricFamily {
	t.Helper()
	_, body := getAgent(t, s, http.MethodGet, "/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("Prometheus cannot read it: %v\n%s", err, body)
	}
	return families
}

func TestMetrics(t *testing.T) {
	families := metrics(t, agentStatus())
	gauges := map[string]float64{
		"working": 1, "based": 1, "cluster_changed": 0, "members_diverged": 0, "durable_position": 6000, "pending_requests": 5, "pending_bytes": 500, "purge_headroom_seconds": 90, "unlinked_bytes": 64,
		"spool_bytes": 4096, "spool_max_bytes": 8192, "last_gap_timestamp_seconds": 900,
	}
	counters := map[string]float64{"segments_total": 7, "requests_total": 70, "bytes_total": 7000, "gaps_total": 1, "store_failures_total": 3}
	delete(families, "etcd_dr_cluster_info") // see TestFleet
	for name, f := range families {
		short := strings.TrimPrefix(name, "etcd_dr_archive_")
		metric := f.GetMetric()[0]
		label := metric.GetLabel()
		if len(f.GetMetric()) != 1 || len(label) != 1 || label[0].GetName() != "cluster" || label[0].GetValue() != "prod" {
			t.Errorf("%s has the labels %v", name, label)
		}
		switch gauge, isGauge := gauges[short]; {
		case short == "rpo_seconds":
			if metric.GetGauge().GetValue() < 3600 {
				t.Errorf("the RPO is %v", metric)
			}
		case isGauge && (f.GetType() != dto.MetricType_GAUGE || metric.GetGauge().GetValue() != gauge):
			t.Errorf("%s is %v", name, f)
		case !isGauge && (f.GetType() != dto.MetricType_COUNTER || metric.GetCounter().GetValue() != counters[short]):
			t.Errorf("%s is %v", name, f)
		}
	}
	want := len(gauges) + len(counters) + 1
	if len(families) != want {
		t.Errorf("%d metrics, want %d", len(families), want)
	}
}

// The alerts must not confuse two clusters of one name, and must join the series of an agent and a service with one repository.
func TestFleet(t *testing.T) {
	labels := map[string]string{}
	for _, l := range metrics(t, agentStatus())["etcd_dr_cluster_info"].GetMetric()[0].GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	values, _ := scrape(t, fullStatus())
	ofService := fmt.Sprintf("cluster_info[archived=true cluster=prod drilled=false fleet=%s scheduled=false]", labels["fleet"])
	if labels["cluster"] != "prod" || labels["archived"] != "true" || values[ofService] != 1 {
		t.Errorf("the agent has %v, the service %v", labels, values)
	}
}

// An alert on the RPO must not be kept quiet by an agent that knows nothing, nor raised by one that only stands by.
func TestMetricsWithoutAnRPO(t *testing.T) {
	unknown, standby, waiting := agentStatus(), agentStatus(), agentStatus()
	unknown.ConfirmedAt, standby.State, waiting.State = time.Time{}, archive.Standby, archive.Waiting
	for name, test := range map[string]struct {
		status  archive.Status
		rpo     bool
		working float64
	}{"unknown": {unknown, false, 1}, "standby": {standby, false, 0}, "waiting": {waiting, true, 0}} {
		families := metrics(t, test.status)
		got := families["etcd_dr_archive_rpo_seconds"] != nil
		if got != test.rpo {
			t.Errorf("%s: an RPO: %v, want %v", name, got, test.rpo)
		}
		working := families["etcd_dr_archive_working"].GetMetric()[0].GetGauge().GetValue()
		if working != test.working {
			t.Errorf("%s: working %v", name, working)
		}
	}
}

// 0 would mean that etcd now purges entries that are not stored.
func TestMetricsWithoutHeadroom(t *testing.T) {
	watch := agentStatus()
	watch.Headroom = archive.Headroom{}
	got := metrics(t, watch)["etcd_dr_archive_purge_headroom_seconds"]
	if got != nil {
		t.Errorf("nothing is purged, and the headroom is %v", got)
	}
}

func TestHealth(t *testing.T) {
	for state, want := range map[archive.State]int{
		archive.Starting: http.StatusOK, archive.Working: http.StatusOK, archive.Standby: http.StatusOK, archive.Waiting: http.StatusServiceUnavailable,
	} {
		s := agentStatus()
		s.State, s.Problem = state, "the store is away"
		response, body := getAgent(t, s, http.MethodGet, "/healthz")
		if response.StatusCode != want || want != http.StatusOK != strings.Contains(body, s.Problem) {
			t.Errorf("%s: %s, %q", state, response.Status, body)
		}
	}
}

// A critical condition makes an agent unhealthy and sets its metric, although it works.
func TestHealthOfACluster(t *testing.T) {
	diverged, changed := agentStatus(), agentStatus()
	diverged.Diverged, changed.Changed = "two hashes", "the cluster began anew"
	for metric, test := range map[string]struct {
		status archive.Status
		words  string
	}{
		"members_diverged": {diverged, "MembersDiverged: two hashes"}, "cluster_changed": {changed, "ClusterChanged: the cluster began anew"},
	} {
		response, body := getAgent(t, test.status, http.MethodGet, "/healthz")
		if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, test.words) {
			t.Errorf("%s: %s, %q", metric, response.Status, body)
		}
		v := metrics(t, test.status)["etcd_dr_archive_"+metric].GetMetric()[0].GetGauge().GetValue()
		if v != 1 {
			t.Errorf("%s is %v", metric, v)
		}
	}
}

// The pages are read only.
func TestNothingCanBeSent(t *testing.T) {
	for _, path := range []string{"/status", "/metrics", "/healthz"} {
		response, _ := getAgent(t, agentStatus(), http.MethodPost, path)
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", path, response.Status)
		}
	}
	response, _ := getAgent(t, agentStatus(), http.MethodGet, "/")
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("/: %s", response.Status)
	}
}
