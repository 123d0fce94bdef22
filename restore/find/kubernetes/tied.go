package kubernetes

import "k8s.io/apimachinery/pkg/runtime/schema"

// path leads through an object's fields to one of them.
type path []string

// tied are fields that tie an object to a uid: of another object, or of what it was itself. An API server makes new uids,
// and then refuses a Job by what it made of the old one, and controllers take a claim as lost, delete the token of a
// service account and, worst, the data of a volume whose claim seems to be gone. Without them each is bound anew, by name.
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

// untie removes what ties o to a uid. The selector of a Job may be a person's: then it says so.
func (o Object) untie() {
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
