package jobs_test

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const day = 24 * time.Hour

// TestCheckCertificates checks that certificates which end in 45 days lead to a condition exactly if the cluster's limit is higher,
// also if it is above the limit of dr check.
func TestCheckCertificates(t *testing.T) {
	files := servers.NewCertificatesFor(t, 45*day)
	cert, err := tls.LoadX509KeyPair(files.ServerCert, files.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it is no etcd
	server.StartTLS()
	defer server.Close()
	s := spec.Spec{Cluster: "prod", Etcd: spec.Etcd{
		Endpoints: []string{server.URL}, CACert: files.CA, Cert: files.Cert, Key: files.Key, DialTimeout: time.Second, CommandTimeout: time.Second,
	}}
	for limit, want := range map[time.Duration]int{0: 0, 20 * day: 0, 40 * day: 0, 60 * day: 2} {
		s.Conditions.Certificate = limit
		lines := jobs.Check(t.Context(), s)
		wanting := 0
		for _, l := range lines {
			if l.Verdict == check.Wanting && (l.Name == "server certificates" || l.Name == "client certificate") {
				wanting++
			}
		}
		raised := slices.ContainsFunc(condition.Judge(condition.Facts{Cluster: "prod", Checks: lines, Limits: s.Conditions}, time.Now()),
			func(c condition.Condition) bool { return c.Name == condition.CertificateExpires })
		if wanting != want || raised != (want > 0) {
			t.Errorf("limit %s: %d certificates are wanting, want %d; condition %v", limit, wanting, want, raised)
		}
	}
}
