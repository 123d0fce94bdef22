package child

import (
	"slices"
	"testing"
)

type reading struct{ source Source }

func (r reading) From() Source { return r.source }

// TestEnvironment checks that a child gets no secret of another repository or of a cluster.
func TestEnvironment(t *testing.T) {
	all := []string{"PATH=/bin", "ETCDCTL_PASSWORD=x", "AWS_SECRET_ACCESS_KEY=x", "AZURE_STORAGE_KEY=x", "GOOGLE_APPLICATION_CREDENTIALS=x", "TMPDIR=/t"}
	for name, test := range map[string]struct {
		job  any
		want []string
	}{
		"a file":                        {"file.db", []string{"PATH=/bin", "TMPDIR=/t"}},
		"without a repository":          {reading{}, []string{"PATH=/bin", "TMPDIR=/t"}},
		"the environment's credentials": {reading{Source{Repository: "s3://b"}}, slices.Delete(slices.Clone(all), 1, 2)},
		"its own credentials":           {reading{Source{Repository: "s3://b", Credentials: map[string][]byte{"access-token": []byte("x")}}}, []string{"PATH=/bin", "TMPDIR=/t"}},
	} {
		got := environment(all, test.job)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
