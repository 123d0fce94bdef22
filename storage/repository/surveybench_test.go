package repository_test

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// BenchmarkSurvey measures the survey that a service makes of each cluster after each backup, here with 200 backups.
func BenchmarkSurvey(b *testing.B) {
	c := stored.OpenCluster(b, mem.New(), "prod")
	for n := range 200 {
		_, err := stored.TryCreate(b, c, stored.IDAt(n), stored.ManifestOf(stored.Content, stored.IDAt(n).Started()))
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s, err := c.Survey(b.Context(), repository.SurveyOptions{Newest: 6})
		if err != nil || s.Kept != 200 {
			b.Fatal(s.Kept, err)
		}
	}
}
