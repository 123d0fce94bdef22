package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// coreosClusterSpec is the spec of an EtcdCluster (cluster.go). What goes into a pod as it is has no type here.
type coreosClusterSpec struct {
	Size       int    `json:"size"`
	Repository string `json:"repository"`
	Version    string `json:"version"`
	Paused     bool   `json:"paused"`
	Pod        struct {
		Labels                    map[string]string `json:"labels"`
		NodeSelector              fields            `json:"nodeSelector"`
		Affinity                  *corev1.Affinity  `json:"affinity"`
		AntiAffinity              bool              `json:"antiAffinity"`
		Resources                 fields            `json:"resources"`
		Tolerations               []any             `json:"tolerations"`
		EtcdEnv                   []any             `json:"etcdEnv"`
		PersistentVolumeClaimSpec fields            `json:"persistentVolumeClaimSpec"`
		Annotations               map[string]string `json:"annotations"`
		BusyboxImage              string            `json:"busyboxImage"`
		SecurityContext           fields            `json:"securityContext"`
		DNSTimeoutInSecond        int64             `json:"DNSTimeoutInSecond"`
		ClusterDomain             string            `json:"ClusterDomain"`
	} `json:"pod"`
	TLS struct {
		Static struct {
			Member         memberSecrets `json:"member"`
			OperatorSecret string        `json:"operatorSecret"`
		} `json:"static"`
	} `json:"TLS"`
}

// memberSecrets are the Secrets with the certificates of members, for each other and for clients. "": no TLS there.
type memberSecrets struct {
	PeerSecret   string `json:"peerSecret"`
	ServerSecret string `json:"serverSecret"`
}

// Their defaults (cluster.go), and the paths in their pods (k8sutil, pod_util.go).
const (
	defaultImage   = "quay.io/coreos/etcd"
	defaultVersion = "3.2.13"
	peerMount      = "/etc/etcdtls/member/peer-tls"
	serverMount    = "/etc/etcdtls/member/server-tls"
	maxSize        = 7
)

// checkMembers returns an error unless a cluster has a number of members that their operators allow.
func checkMembers(n int) error {
	if n < 1 || n > maxSize {
		return fmt.Errorf("spec.size is %d: name 1 to %d members", n, maxSize)
	}
	return nil
}

// coreosCluster translates an EtcdCluster into a StatefulSet of its name, and the two Services that its operator makes.
func coreosCluster(o *object) ([]Object, error) {
	var theirs coreosClusterSpec
	err := o.read(&theirs)
	if err == nil {
		err = checkMembers(theirs.Size)
	}
	if err != nil {
		return nil, err
	}
	theirs.Repository = cmp.Or(theirs.Repository, defaultImage)
	theirs.Version = cmp.Or(strings.TrimLeft(theirs.Version, "v"), defaultVersion)
	c := cluster{object: o, spec: theirs, layout: layout{
		labels: map[string]string{"app": "etcd", "etcd_cluster": o.Metadata.Name},
		image:  theirs.Repository + ":v" + theirs.Version, claim: "etcd-data", dataDir: "/var/etcd/data",
	}}
	o.batch.clusters[o.key(o.Metadata.Name)] = clusterFacts{tlsSecret: theirs.TLS.Static.OperatorSecret, members: c.members()}
	c.explain()
	return []Object{
		c.service(o.Metadata.Name+"-client", fields{"ports": []any{port("client", clientPort)}, "selector": c.labels}),
		c.headless(), c.statefulSet(),
	}, nil
}

// cluster is an EtcdCluster while it becomes a StatefulSet.
type cluster struct {
	*object
	spec coreosClusterSpec
	layout
}

// layout is what the operators call the parts of a pod.
type layout struct {
	labels  map[string]string // that select the pods
	image   string            // of etcd
	claim   string            // the template of the volumes' claims
	dataDir string            // in the folder where the volume is mounted
}

const (
	clientPort = 2379
	peerPort   = 2380
)

func port(name string, number int) fields { return fields{"name": name, "port": number} }

// explain notes the way from their operator to the StatefulSet.
func (c cluster) explain() {
	name, namespace := c.Metadata.Name, c.Metadata.Namespace
	c.note("The StatefulSet has 0 replicas: with %d it would begin a new, empty cluster. dr operator --coreos moves the data of a running cluster, by its "+
		"EtcdRestore: it keeps the Services, and can go back. By hand, take a backup of the running cluster, delete their operator, then "+
		"kubectl -n %s delete etcdclusters.%s %s, and wait until its pods and Services are gone. Then apply these objects, and restore into StatefulSet %s with an EtcdRestore, which starts %d members.", c.spec.Size, namespace, coreos, name, name, c.spec.Size)
	c.note("Clients keep their endpoint, the Service %s-client. The members have other names: %s-0 and so on.", name, name)
	c.note("The pods have no liveness probe, and no label etcd_node. Their operator set both.")
	if c.spec.Pod.PersistentVolumeClaimSpec == nil {
		c.note("Each member gets a volume of 1 GiB (volumeClaimTemplates). Their members lost their data with their pods: choose a size and a class.")
	}
	if !IsRecent(c.spec.Version) {
		c.note("dr needs etcd 3.4 or later, and this is %s: choose a later image. 3.2 and 3.3 are upgraded one minor version after the other, "+
			"before the backup.", c.spec.Version)
	}
	if c.spec.Pod.SecurityContext != nil && c.spec.Pod.SecurityContext["fsGroup"] == nil {
		c.note("The securityContext has no fsGroup: with a user other than root, etcd may not be able to write to its volume.")
	}
	if c.spec.Paused {
		c.note("spec.paused is left out: no operator runs the StatefulSet.")
	}
	if c.spec.TLS.Static.Member != (memberSecrets{}) {
		c.note("The certificates must be valid for *.%s.%s.svc%s.", name, namespace, c.domain())
	}
	if c.spec.Pod.BusyboxImage != "" || c.spec.Pod.DNSTimeoutInSecond != 0 {
		c.note("spec.pod.busyboxImage and DNSTimeoutInSecond are left out: members that have no names in the DNS yet try again by themselves.")
	}
}

// IsRecent reports whether a version of etcd is 3.4 or later, whose members dr can restore.
func IsRecent(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(strings.TrimLeft(version, "v"), "%d.%d", &major, &minor)
	return err == nil && (major > 3 || major == 3 && minor >= 4)
}

// domain returns what follows svc in the names of the members, with a dot; "" leaves it to the search path of the pods.
func (c cluster) domain() string {
	if c.spec.Pod.ClusterDomain == "" {
		return ""
	}
	return "." + strings.TrimPrefix(c.spec.Pod.ClusterDomain, ".")
}

func (c cluster) service(name string, spec fields) Object {
	return Object{APIVersion: "v1", Kind: "Service", Metadata: c.named(name), Spec: spec}
}

// headless returns the Service that gives the members their names.
func (c cluster) headless() Object {
	return c.service(c.Metadata.Name, fields{
		"clusterIP": "None", "publishNotReadyAddresses": true, "selector": c.labels, "ports": []any{port("client", clientPort), port("peer", peerPort)},
	})
}

// named returns the metadata of an object that belongs to the cluster.
func (c cluster) named(name string) Metadata {
	m := c.Metadata
	m.Name, m.Labels = name, c.labelled(m.Labels)
	return m
}

// labelled returns labels with those that select the pods.
func (c cluster) labelled(labels map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	maps.Copy(all, c.labels)
	return all
}

func (c cluster) statefulSet() Object {
	claim := c.spec.Pod.PersistentVolumeClaimSpec
	if claim == nil {
		claim = fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}}
	}
	return Object{APIVersion: "apps/v1", Kind: "StatefulSet", Metadata: c.named(c.Metadata.Name), Spec: fields{
		"serviceName": c.Metadata.Name, "replicas": 0, "podManagementPolicy": "Parallel", "selector": fields{"matchLabels": c.labels},
		"template":             fields{"metadata": dropEmpty(fields{"labels": c.labelled(c.spec.Pod.Labels), "annotations": c.spec.Pod.Annotations}), "spec": c.podSpec()},
		"volumeClaimTemplates": []any{fields{"metadata": fields{"name": c.claim}, "spec": claim}},
	}}
}

// dropEmpty deletes the empty fields of f, and returns it.
func dropEmpty(f fields) fields {
	for name, value := range f {
		switch v := value.(type) {
		case fields:
			if len(v) == 0 {
				delete(f, name)
			}
		case map[string]string:
			if len(v) == 0 {
				delete(f, name)
			}
		case []any:
			if len(v) == 0 {
				delete(f, name)
			}
		}
	}
	return f
}

func (c cluster) podSpec() fields {
	pod := c.spec.Pod
	var volumes []any
	mounts := []any{fields{"name": c.claim, "mountPath": path.Dir(c.dataDir)}}
	for _, m := range c.secretMounts() {
		volumes = append(volumes, fields{"name": m.name, "secret": fields{"secretName": m.secret}})
		mounts = append(mounts, fields{"name": m.name, "mountPath": m.path, "readOnly": true})
	}
	env := append([]any{fields{"name": "POD_NAME", "valueFrom": fields{"fieldRef": fields{"fieldPath": "metadata.name"}}}}, pod.EtcdEnv...)
	spec := dropEmpty(fields{
		"automountServiceAccountToken": false,
		"nodeSelector":                 pod.NodeSelector, "tolerations": pod.Tolerations, "securityContext": pod.SecurityContext, "volumes": volumes,
		"containers": []any{dropEmpty(fields{
			"name": "etcd", "image": c.image, "command": c.command(), "env": env, "resources": pod.Resources,
			"ports":          []any{containerPort("client", clientPort), containerPort("peer", peerPort)},
			"readinessProbe": c.probe(), "volumeMounts": mounts,
		})},
	})
	affinity := c.affinity()
	if affinity != nil {
		spec["affinity"] = affinity
	}
	return spec
}

// affinity returns the rules for the places of the pods; nil if there are none. Those on the cluster's own pods leave out the old members,
// next to which the new data is built.
func (c cluster) affinity() *corev1.Affinity {
	pod := c.spec.Pod
	if pod.Affinity == nil && pod.AntiAffinity {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: withoutOld(metav1.LabelSelector{MatchLabels: c.labels})},
		}}}
	}
	affinity := pod.Affinity.DeepCopy()
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return affinity
	}
	required := affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range required {
		c.leaveOutOld(&required[i])
	}
	preferred := affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for i := range preferred {
		c.leaveOutOld(&preferred[i].PodAffinityTerm)
	}
	return affinity
}

// leaveOutOld changes a rule, if it is one on the cluster's own pods.
func (c cluster) leaveOutOld(rule *corev1.PodAffinityTerm) {
	selector, err := metav1.LabelSelectorAsSelector(rule.LabelSelector)
	if err == nil && selector.Matches(labels.Set(c.labelled(c.spec.Pod.Labels))) {
		rule.LabelSelector = withoutOld(*rule.LabelSelector)
	}
}

// withoutOld returns a selector of those pods that belong to a StatefulSet.
func withoutOld(selector metav1.LabelSelector) *metav1.LabelSelector {
	isNew := metav1.LabelSelectorRequirement{Key: appsv1.StatefulSetPodNameLabel, Operator: metav1.LabelSelectorOpExists}
	selector.MatchExpressions = append(selector.MatchExpressions, isNew)
	return &selector
}

// secretMount is a Secret in a pod.
type secretMount struct{ name, secret, path string }

func (c cluster) secretMounts() (all []secretMount) {
	member := c.spec.TLS.Static.Member
	if member.PeerSecret != "" {
		all = append(all, secretMount{"member-peer-tls", member.PeerSecret, peerMount})
	}
	if member.ServerSecret != "" {
		all = append(all, secretMount{"member-server-tls", member.ServerSecret, serverMount})
	}
	return all
}

func containerPort(name string, number int) fields {
	return fields{"name": name, "containerPort": number}
}

// probe asks for the health of a member; with TLS, which needs a client's certificate, only for its port.
func (c cluster) probe() fields {
	if c.spec.TLS.Static.Member.ServerSecret != "" {
		return fields{"tcpSocket": fields{"port": clientPort}}
	}
	return fields{"httpGet": fields{"path": "/health", "port": clientPort}}
}

// command returns the command of a member, with the flags that their operator sets (k8sutil.go, newEtcdPod).
func (c cluster) command() []any {
	tls := c.spec.TLS.Static.Member
	client, peer := scheme(tls.ServerSecret), scheme(tls.PeerSecret)
	var members []string
	for _, m := range c.members() {
		members = append(members, m.Name+"="+m.PeerURLs[0])
	}
	command := []any{
		"/usr/local/bin/etcd", "--name=$(POD_NAME)", "--data-dir=" + c.dataDir,
		"--listen-client-urls=" + client + "://0.0.0.0:2379", "--advertise-client-urls=" + c.url(client, "$(POD_NAME)", clientPort),
		"--listen-peer-urls=" + peer + "://0.0.0.0:2380", "--initial-advertise-peer-urls=" + c.url(peer, "$(POD_NAME)", peerPort),
		"--initial-cluster=" + strings.Join(members, ","), "--initial-cluster-state=new",
		"--initial-cluster-token=" + c.Metadata.Namespace + "." + c.Metadata.Name,
	}
	if tls.PeerSecret != "" {
		command = append(command, "--peer-client-cert-auth=true", "--peer-trusted-ca-file="+peerMount+"/peer-ca.crt",
			"--peer-cert-file="+peerMount+"/peer.crt", "--peer-key-file="+peerMount+"/peer.key")
	}
	if tls.ServerSecret != "" {
		command = append(command, "--client-cert-auth=true", "--trusted-ca-file="+serverMount+"/server-ca.crt",
			"--cert-file="+serverMount+"/server.crt", "--key-file="+serverMount+"/server.key")
	}
	return command
}

// url returns a URL of a member.
func (c cluster) url(scheme, member string, port int) string {
	return fmt.Sprintf("%s://%s.%s.%s.svc%s:%d", scheme, member, c.Metadata.Name, c.Metadata.Namespace, c.domain(), port)
}

// members returns the members of the StatefulSet.
func (c cluster) members() (all []v1alpha1.RestoreMember) {
	for i := range c.spec.Size {
		name := fmt.Sprintf("%s-%d", c.Metadata.Name, i)
		all = append(all, v1alpha1.RestoreMember{Name: name, PeerURLs: []string{c.url(scheme(c.spec.TLS.Static.Member.PeerSecret), name, peerPort)}})
	}
	return all
}

// scheme returns the scheme of URLs whose certificates are in a Secret.
func scheme(secret string) string {
	if secret == "" {
		return "http"
	}
	return "https"
}
