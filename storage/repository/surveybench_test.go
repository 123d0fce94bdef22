package repository_test

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// BenchmarkSurvey is what a service asks of each of its clusters after each backup, here of 200.
func BenchmarkSurvey(b *testing.B) {
	c := openCluster(b, mem.New(), "prod")
	for n := range 200 {
		if _, err := tryCreate(b, c, idAt(n), manifestOf(content, idAt(n).Started())); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if s, err := c.Survey(b.Context(), repository.SurveyOptions{Newest: 6}); err != nil || s.Kept != 200 {
			b.Fatal(s.Kept, err)
		}
	}
}
