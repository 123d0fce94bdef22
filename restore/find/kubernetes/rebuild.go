package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rebuilt contains the objects that restore a namespace.
type Rebuilt struct {
	Objects []Object // for kubectl apply, each after the objects that it needs
	LeftOut int      // number of objects that were left out, apart from definitions and PersistentVolumes
	Notes   []string // facts for the operator, one sentence each
}

// RebuildOptions selects objects that Rebuild leaves out by default.
type RebuildOptions struct {
	FinishedJobs bool // include finished Jobs, which then run again
}

// Rebuild returns the objects that restore a namespace. all must contain its objects, the namespace itself, and the cluster's
// CustomResourceDefinitions and PersistentVolumes, at one revision. The result contains only those definitions that the
// objects need.
//
// Rebuild leaves out the objects that controllers create again: Events, Leases, endpoints of Services with a selector,
// kube-root-ca.crt, an unchanged default ServiceAccount, and objects with an owner. It keeps Secrets and PersistentVolumeClaims
// even with an owner, since no controller can restore their content. It also leaves out finished Jobs and Pods.
func Rebuild(all []Object, o RebuildOptions) Rebuilt {
	r := rebuild{options: o, volumes: map[string]Object{}, selected: map[string]bool{}}
	r.survey(all)
	for _, object := range all {
		r.take(object)
	}
	r.takeDefinitions(all)
	slices.SortStableFunc(r.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.String(), b.String()))
	})
	for i, object := range r.Objects {
		r.Objects[i] = object.Applicable()
	}
	return r.Rebuilt
}

type rebuild struct {
	Rebuilt
	options  RebuildOptions
	volumes  map[string]Object
	selected map[string]bool // names of Services with a selector, whose endpoints a controller creates
}

func (r *rebuild) survey(all []Object) {
	for _, o := range all {
		switch o.kind() {
		case "PersistentVolume":
			r.volumes[o.name()] = o
		case "Service":
			r.selected[o.name()] = len(o.at("spec", "selector")) > 0
		}
	}
}

func (r *rebuild) take(o Object) {
	switch {
	case o.kind() == "PersistentVolume", o.kind() == definition:
	case !o.HasName(), r.isMadeAgain(o):
		r.LeftOut++
	case o.kind() == "Job" && !o.finished():
		r.note("%s had not finished: it runs again from its beginning", o)
		r.Objects = append(r.Objects, o)
	case o.kind() == "PersistentVolumeClaim":
		r.Objects = append(r.Objects, r.claim(o))
	default:
		r.Objects = append(r.Objects, o)
	}
}

// definition is the kind that defines a custom resource.
const definition = "CustomResourceDefinition"

// takeDefinitions adds the definitions of the custom resources in the result.
func (r *rebuild) takeDefinitions(all []Object) {
	kinds := map[string]bool{}
	for _, o := range r.Objects {
		gvk := o.groupVersionKind()
		kinds[gvk.Group+"/"+gvk.Kind] = true
	}
	for _, o := range all {
		group, _ := o.at("spec")["group"].(string)
		kind, _ := o.at("spec", "names")["kind"].(string)
		if o.kind() == definition && kinds[group+"/"+kind] {
			r.Objects = append(r.Objects, o)
		}
	}
}

// isMadeAgain reports whether a controller creates o again, or o is a finished Job or Pod.
func (r *rebuild) isMadeAgain(o Object) bool {
	switch o.kind() {
	case "Event", "Lease":
		return true
	case "Endpoints":
		return r.selected[o.name()]
	case "EndpointSlice":
		by, _ := o.at("metadata", "labels")["endpointslice.kubernetes.io/managed-by"].(string)
		return strings.HasSuffix(by, ".k8s.io")
	case "ConfigMap":
		return o.name() == "kube-root-ca.crt" || o.owned()
	case "ServiceAccount":
		return o.name() == "default" && o.plain()
	case "Job":
		return o.owned() || o.finished() && !r.options.FinishedJobs
	case "Pod":
		phase := o.at("status")["phase"]
		return o.owned() || phase == "Succeeded" || phase == "Failed"
	case "Secret", "PersistentVolumeClaim":
		return false
	}
	return o.owned()
}

// claim returns the claim o in a form that binds to its volume again. If the volume was deleted with the claim, it returns a form
// that gets a new volume.
func (r *rebuild) claim(o Object) Object {
	volume, _ := o.at("spec")["volumeName"].(string)
	if volume == "" {
		return o
	}
	policy := r.volumes[volume].at("spec")["persistentVolumeReclaimPolicy"]
	if r.volumes[volume] != nil && policy != "Delete" {
		r.note("%s: its volume %s is kept, and has to be released before it binds again: "+
			`kubectl patch pv %s --type=json -p '[{"op":"remove","path":"/spec/claimRef/uid"}]'`, o, volume, volume)
		return o
	}
	r.note("%s: its volume %s was deleted with it (reclaim policy Delete): it gets a new, empty one; restore its data from elsewhere",
		o, volume)
	return o.without(path{"spec", "volumeName"}, path{"metadata", "annotations", "pv.kubernetes.io/bound-by-controller"},
		path{"metadata", "annotations", "volume.kubernetes.io/selected-node"})
}

func (r *rebuild) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// ranks order kinds by dependency. Policies come before the objects that they protect. Custom resources come after
// all workloads, which may contain their controllers. All other kinds come last.
var ranks = map[string]int{
	"Namespace": 1, definition: 2, "ServiceAccount": 3,
	"Role": 4, "RoleBinding": 4, "NetworkPolicy": 4,
	"Secret": 5, "ConfigMap": 5, "PersistentVolumeClaim": 6, "Service": 7,
	"Deployment": 8, "StatefulSet": 8, "DaemonSet": 8, "ReplicaSet": 8, "ReplicationController": 8, "Pod": 8, "Job": 8, "CronJob": 8,
}

const (
	rankCustom = 9
	rankRest   = 10
)

func (o Object) rank() int {
	if !builtInKind(stable(o.groupVersionKind())) && o.kind() != definition {
		return rankCustom
	}
	return cmp.Or(ranks[o.kind()], rankRest)
}

// String returns kind, namespace and name: Job prod/once.
func (o Object) String() string {
	namespace, _ := o.at("metadata")["namespace"].(string)
	return Name{Kind: o.kind(), Namespace: namespace, Name: o.name()}.String()
}

func (o Object) kind() string { return o.groupVersionKind().Kind }

func (o Object) name() string {
	name, _ := o.at("metadata")["name"].(string)
	return name
}

// at returns the map at a path of fields, or nil if there is none.
func (o Object) at(fields ...string) map[string]any {
	within := map[string]any(o)
	for _, field := range fields {
		within, _ = within[field].(map[string]any)
	}
	return within
}

func (o Object) owned() bool {
	owners, _ := o.at("metadata")["ownerReferences"].([]any)
	return len(owners) > 0
}

// plain reports whether a ServiceAccount equals the one that every namespace gets by default.
func (o Object) plain() bool {
	for _, field := range []string{"imagePullSecrets", "secrets", "automountServiceAccountToken"} {
		if o[field] != nil {
			return false
		}
	}
	return len(o.at("metadata", "annotations")) == 0 && len(o.at("metadata", "labels")) == 0
}

// finished reports whether a Job has completed or failed.
func (o Object) finished() bool {
	conditions, _ := o.at("status")["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
	})
}

// without returns a copy of o without the fields.
func (o Object) without(fields ...path) Object {
	clean, _ := withoutEmptyTimes(map[string]any(o)).(map[string]any)
	for _, field := range fields {
		delete(Object(clean).at(field[:len(field)-1]...), field[len(field)-1])
	}
	return clean
}
