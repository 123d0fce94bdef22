package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/foreign"
)

func TestForeign(t *testing.T) {
	got := convert.Foreign([]foreign.Translation{
		{
			From: "EtcdBackup a", Differences: []string{"None."},
			Objects: []foreign.Object{{APIVersion: "v1", Kind: "Service", Metadata: foreign.Metadata{Name: "a", Namespace: "b"}, Spec: map[string]any{"clusterIP": "None"}}},
		},
		{From: "Secret a"},
	})
	want := document.Convert{Objects: []document.ConvertedObject{
		{
			From: "EtcdBackup a", Differences: []string{"None."},
			Objects: []map[string]any{{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": map[string]any{"clusterIP": "None"},
			}},
		},
		{From: "Secret a", Differences: []string{}, Objects: []map[string]any{}},
	}}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
