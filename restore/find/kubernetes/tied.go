package kubernetes

import "k8s.io/apimachinery/pkg/runtime/schema"

// path is a path of fields within an object.
type path []string

// tied are the fields that contain or depend on a uid, of another object or of the object itself. An API server assigns new
// uids. With the old ones it refuses a Job. Controllers treat a claim as lost, and delete the token of a service account or,
// worst, the data of a volume whose claim seems to be deleted. Without these fields the objects bind to each other by name.
var tied = map[schema.GroupKind][]path{
	{Group: "batch", Kind: "Job"}: {
		{"spec", "selector"},
		{"spec", "template", "metadata", "labels", "controller-uid"},
		{"spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"},
		{"metadata", "labels", "controller-uid"},
		{"metadata", "labels", "batch.kubernetes.io/controller-uid"},
	},
	{Kind: "PersistentVolume"}:      {{"spec", "claimRef", "uid"}, {"spec", "claimRef", "resourceVersion"}},
	{Kind: "PersistentVolumeClaim"}: {{"metadata", "annotations", "pv.kubernetes.io/bind-completed"}},
	{Kind: "Secret"}:                {{"metadata", "annotations", "kubernetes.io/service-account.uid"}},
}

// removeUIDFields removes the fields that tie o to a uid. It keeps those of a Job with manualSelector, whose selector a
// person wrote.
func (o Object) removeUIDFields() {
	spec, _ := o["spec"].(map[string]any)
	if spec["manualSelector"] == true {
		return
	}
	for _, field := range tied[o.groupVersionKind().GroupKind()] {
		within := map[string]any(o)
		for _, name := range field[:len(field)-1] {
			within, _ = within[name].(map[string]any)
		}
		delete(within, field[len(field)-1])
	}
}
