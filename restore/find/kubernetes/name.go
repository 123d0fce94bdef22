// Package kubernetes interprets the data of a Kubernetes API server in etcd: the object that a key names, and the object that
// a value encodes.
package kubernetes

import "strings"

// Root is the prefix of an API server's keys, unless it runs with another --etcd-prefix.
const Root = "/registry/"

// Name is the object that a key names, as far as the key determines it.
type Name struct {
	Kind      string // "" if only a CustomResourceDefinition determines the kind
	Resource  string // in the plural, as in URLs
	Group     string // of custom resources, else ""
	Namespace string // "" for a cluster-wide object
	Name      string
}

// String returns the object for people: Pod prod/web-0, Node n1, certificates.cert-manager.io prod/web.
func (n Name) String() string {
	what, which := n.Kind, n.Name
	if what == "" {
		what = n.Resource + "." + n.Group
	}
	if n.Namespace != "" {
		which = n.Namespace + "/" + n.Name
	}
	return what + " " + which
}

// Belongs reports whether n is the namespace or an object in it.
func (n Name) Belongs(namespace string) bool {
	return n.Namespace == namespace || n.Kind == "Namespace" && n.Name == namespace
}

// NamespaceKey returns the key of the namespace itself.
func NamespaceKey(namespace string) string { return Root + "namespaces/" + namespace }

// IsNamespace reports whether key is the key of the namespace itself.
func IsNamespace(key, namespace string) bool { return key == NamespaceKey(namespace) }

// resource is a built-in kind. Its name is not always that of the folder below Root in which its objects are stored.
type resource struct {
	kind, name string
	namespaced bool // its objects belong to namespaces
}

// builtIn are the kinds that an API server stores without their group in the key, by folder (pkg/registry of Kubernetes).
var builtIn = map[string]resource{
	"certificatesigningrequests":        {"CertificateSigningRequest", "certificatesigningrequests", false},
	"clusterrolebindings":               {"ClusterRoleBinding", "clusterrolebindings", false},
	"clusterroles":                      {"ClusterRole", "clusterroles", false},
	"clustertrustbundles":               {"ClusterTrustBundle", "clustertrustbundles", false},
	"configmaps":                        {"ConfigMap", "configmaps", true},
	"controllerrevisions":               {"ControllerRevision", "controllerrevisions", true},
	"controllers":                       {"ReplicationController", "replicationcontrollers", true},
	"cronjobs":                          {"CronJob", "cronjobs", true},
	"csidrivers":                        {"CSIDriver", "csidrivers", false},
	"csinodes":                          {"CSINode", "csinodes", false},
	"csistoragecapacities":              {"CSIStorageCapacity", "csistoragecapacities", true},
	"daemonsets":                        {"DaemonSet", "daemonsets", true},
	"deployments":                       {"Deployment", "deployments", true},
	"deviceclasses":                     {"DeviceClass", "deviceclasses", false},
	"devicetaintrules":                  {"DeviceTaintRule", "devicetaintrules", false},
	"endpointslices":                    {"EndpointSlice", "endpointslices", true},
	"events":                            {"Event", "events", true},
	"flowschemas":                       {"FlowSchema", "flowschemas", false},
	"horizontalpodautoscalers":          {"HorizontalPodAutoscaler", "horizontalpodautoscalers", true},
	"ingress":                           {"Ingress", "ingresses", true},
	"ingressclasses":                    {"IngressClass", "ingressclasses", false},
	"ipaddresses":                       {"IPAddress", "ipaddresses", false},
	"jobs":                              {"Job", "jobs", true},
	"leasecandidates":                   {"LeaseCandidate", "leasecandidates", true},
	"leases":                            {"Lease", "leases", true},
	"limitranges":                       {"LimitRange", "limitranges", true},
	"minions":                           {"Node", "nodes", false},
	"mutatingadmissionpolicies":         {"MutatingAdmissionPolicy", "mutatingadmissionpolicies", false},
	"mutatingadmissionpolicybindings":   {"MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", false},
	"mutatingwebhookconfigurations":     {"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false},
	"namespaces":                        {"Namespace", "namespaces", false},
	"networkpolicies":                   {"NetworkPolicy", "networkpolicies", true},
	"persistentvolumeclaims":            {"PersistentVolumeClaim", "persistentvolumeclaims", true},
	"persistentvolumes":                 {"PersistentVolume", "persistentvolumes", false},
	"podcertificaterequests":            {"PodCertificateRequest", "podcertificaterequests", true},
	"poddisruptionbudgets":              {"PodDisruptionBudget", "poddisruptionbudgets", true},
	"podgroups":                         {"PodGroup", "podgroups", true},
	"pods":                              {"Pod", "pods", true},
	"podtemplates":                      {"PodTemplate", "podtemplates", true},
	"priorityclasses":                   {"PriorityClass", "priorityclasses", false},
	"prioritylevelconfigurations":       {"PriorityLevelConfiguration", "prioritylevelconfigurations", false},
	"replicasets":                       {"ReplicaSet", "replicasets", true},
	"resourceclaims":                    {"ResourceClaim", "resourceclaims", true},
	"resourceclaimtemplates":            {"ResourceClaimTemplate", "resourceclaimtemplates", true},
	"resourcepoolstatusrequests":        {"ResourcePoolStatusRequest", "resourcepoolstatusrequests", false},
	"resourcequotas":                    {"ResourceQuota", "resourcequotas", true},
	"resourceslices":                    {"ResourceSlice", "resourceslices", false},
	"rolebindings":                      {"RoleBinding", "rolebindings", true},
	"roles":                             {"Role", "roles", true},
	"runtimeclasses":                    {"RuntimeClass", "runtimeclasses", false},
	"secrets":                           {"Secret", "secrets", true},
	"serviceaccounts":                   {"ServiceAccount", "serviceaccounts", true},
	"servicecidrs":                      {"ServiceCIDR", "servicecidrs", false},
	"services/endpoints":                {"Endpoints", "endpoints", true},
	"services/specs":                    {"Service", "services", true},
	"statefulsets":                      {"StatefulSet", "statefulsets", true},
	"storageclasses":                    {"StorageClass", "storageclasses", false},
	"storageversionmigrations":          {"StorageVersionMigration", "storageversionmigrations", false},
	"storageversions":                   {"StorageVersion", "storageversions", false},
	"validatingadmissionpolicies":       {"ValidatingAdmissionPolicy", "validatingadmissionpolicies", false},
	"validatingadmissionpolicybindings": {"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false},
	"validatingwebhookconfigurations":   {"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false},
	"volumeattachments":                 {"VolumeAttachment", "volumeattachments", false},
	"volumeattributesclasses":           {"VolumeAttributesClass", "volumeattributesclasses", false},
	"workloads":                         {"Workload", "workloads", true},
}

// ofGroups are the built-in kinds whose keys contain their group, as the keys of custom resources do.
var ofGroups = map[string]string{
	"apiextensions.k8s.io/customresourcedefinitions": "CustomResourceDefinition",
	"apiregistration.k8s.io/apiservices":             "APIService",
}

// Named returns the object that a key names, or false if the key names none.
func Named(key string) (n Name, ok bool) {
	path, below := strings.CutPrefix(key, Root)
	if !below {
		return Name{}, false
	}
	parts := strings.Split(path, "/")
	for _, part := range parts {
		if part == "" {
			return Name{}, false
		}
	}
	for folders := min(2, len(parts)-1); folders > 0; folders-- {
		r, known := builtIn[strings.Join(parts[:folders], "/")]
		if known {
			return r.named(parts[folders:])
		}
	}
	if len(parts) < 3 || len(parts) > 4 || !strings.Contains(parts[0], ".") {
		return Name{}, false
	}
	n = Name{Kind: ofGroups[parts[0]+"/"+parts[1]], Group: parts[0], Resource: parts[1], Name: parts[len(parts)-1]}
	if len(parts) == 4 {
		n.Namespace = parts[2]
	}
	return n, true
}

func (r resource) named(rest []string) (Name, bool) {
	n := Name{Kind: r.kind, Resource: r.name}
	switch {
	case r.namespaced && len(rest) == 2:
		n.Namespace, n.Name = rest[0], rest[1]
	case !r.namespaced && len(rest) == 1:
		n.Name = rest[0]
	default:
		return Name{}, false
	}
	return n, true
}
