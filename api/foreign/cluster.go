package foreign

import (
	"errors"
	"fmt"
	"maps"
	"strings"
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
		Affinity                  fields            `json:"affinity"`
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
			Member struct {
				PeerSecret   string `json:"peerSecret"`
				ServerSecret string `json:"serverSecret"`
			} `json:"member"`
			OperatorSecret string `json:"operatorSecret"`
		} `json:"static"`
	} `json:"TLS"`
}

// Their defaults (cluster.go), and the paths in their pods (k8sutil, pod_util.go).
const (
	defaultImage   = "quay.io/coreos/etcd"
	defaultVersion = "3.2.13"
	dataMount      = "/var/etcd"
	peerMount      = "/etc/etcdtls/member/peer-tls"
	serverMount    = "/etc/etcdtls/member/server-tls"
	maxSize        = 7
)

// coreosCluster translates an EtcdCluster into a StatefulSet of its name, and the two Services that its operator makes.
func coreosCluster(o *object) ([]Object, error) {
	theirs := coreosClusterSpec{Repository: defaultImage, Version: defaultVersion}
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	if theirs.Size < 1 || theirs.Size > maxSize {
		return nil, fmt.Errorf("spec.size is %d: name 1 to %d members", theirs.Size, maxSize)
	}
	if (theirs.TLS.Static.Member.PeerSecret == "") != (theirs.TLS.Static.Member.ServerSecret == "") {
		return nil, errors.New("spec.TLS names one of peerSecret and serverSecret: name both, or none")
	}
	c := cluster{object: o, spec: theirs, labels: map[string]string{"app": "etcd", "etcd_cluster": o.Metadata.Name}}
	o.file.tlsSecrets[o.Metadata.Namespace+" "+o.Metadata.Name] = theirs.TLS.Static.OperatorSecret
	c.explain()
	return []Object{
		c.service(o.Metadata.Name+"-client", fields{"ports": []any{port("client", clientPort)}, "selector": c.labels}),
		c.service(o.Metadata.Name, fields{
			"clusterIP": "None", "publishNotReadyAddresses": true, "selector": c.labels,
			"ports": []any{port("client", clientPort), port("peer", peerPort)},
		}),
		c.statefulSet(),
	}, nil
}

// cluster is an EtcdCluster of coreos while it is translated.
type cluster struct {
	*object
	spec   coreosClusterSpec
	labels map[string]string // that select the pods
}

const (
	clientPort = 2379
	peerPort   = 2380
)

func port(name string, number int) fields { return fields{"name": name, "port": number} }

// explain notes the way from their operator to the StatefulSet.
func (c cluster) explain() {
	name, namespace := c.Metadata.Name, c.Metadata.Namespace
	c.note("The StatefulSet has 0 replicas: with %d it would begin a new, empty cluster. To move the data, take a backup of the running cluster, "+
		"delete their operator, then kubectl -n %s delete etcdclusters.%s %s, and wait until its pods and Services are gone. Then apply these objects, "+
		"and restore into StatefulSet %s with an EtcdRestore, which starts %d members.", c.spec.Size, namespace, coreos, name, name, c.spec.Size)
	c.note("Clients keep their endpoint, the Service %s-client. The members have other names: %s-0 and so on.", name, name)
	if c.spec.Pod.PersistentVolumeClaimSpec == nil {
		c.note("Each member gets a volume of 1 GiB (volumeClaimTemplates). Their members lost their data with their pods: choose a size and a class.")
	}
	if old(c.spec.Version) {
		c.note("dr needs etcd 3.4 or later, and this is %s: choose a later image. 3.2 and 3.3 are upgraded one minor version after the other, "+
			"before the backup.", c.spec.Version)
	}
	if c.spec.Pod.BusyboxImage != "" || c.spec.Pod.DNSTimeoutInSecond != 0 {
		c.note("spec.pod.busyboxImage and DNSTimeoutInSecond are left out: members that have no names in the DNS yet try again by themselves.")
	}
}

// old reports whether a version of etcd is older than 3.4.
func old(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major < 3 || major == 3 && minor < 4)
}

func (c cluster) service(name string, spec fields) Object {
	return Object{APIVersion: "v1", Kind: "Service", Metadata: c.named(name), Spec: spec}
}

// named returns the metadata of an object that belongs to the cluster.
func (c cluster) named(name string) Metadata {
	m := c.Metadata
	m.Name, m.Labels = name, maps.Clone(m.Labels)
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, c.labels)
	return m
}

func (c cluster) statefulSet() Object {
	labels := maps.Clone(c.spec.Pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, c.labels)
	claim := c.spec.Pod.PersistentVolumeClaimSpec
	if claim == nil {
		claim = fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}}
	}
	return Object{APIVersion: "apps/v1", Kind: "StatefulSet", Metadata: c.named(c.Metadata.Name), Spec: fields{
		"serviceName": c.Metadata.Name, "replicas": 0, "podManagementPolicy": "Parallel", "selector": fields{"matchLabels": c.labels},
		"template":             fields{"metadata": without(fields{"labels": labels, "annotations": c.spec.Pod.Annotations}), "spec": c.podSpec()},
		"volumeClaimTemplates": []any{fields{"metadata": fields{"name": "etcd-data"}, "spec": claim}},
	}}
}

// without returns f without its empty fields.
func without(f fields) fields {
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
	affinity := pod.Affinity
	if affinity == nil && pod.AntiAffinity {
		affinity = fields{"podAntiAffinity": fields{"requiredDuringSchedulingIgnoredDuringExecution": []any{fields{
			"topologyKey": "kubernetes.io/hostname", "labelSelector": fields{"matchLabels": c.labels},
		}}}}
	}
	var volumes []any
	mounts := []any{fields{"name": "etcd-data", "mountPath": dataMount}}
	if c.encrypted() {
		member := c.spec.TLS.Static.Member
		volumes = []any{secretVolume("member-peer-tls", member.PeerSecret), secretVolume("member-server-tls", member.ServerSecret)}
		mounts = append(mounts, fields{"name": "member-peer-tls", "mountPath": peerMount, "readOnly": true},
			fields{"name": "member-server-tls", "mountPath": serverMount, "readOnly": true})
	}
	env := append([]any{fields{"name": "POD_NAME", "valueFrom": fields{"fieldRef": fields{"fieldPath": "metadata.name"}}}}, pod.EtcdEnv...)
	return without(fields{
		"nodeSelector": pod.NodeSelector, "tolerations": pod.Tolerations, "securityContext": pod.SecurityContext, "affinity": affinity, "volumes": volumes,
		"containers": []any{without(fields{
			"name": "etcd", "image": c.spec.Repository + ":v" + c.spec.Version, "command": c.command(), "env": env, "resources": pod.Resources,
			"ports":          []any{containerPort("client", clientPort), containerPort("peer", peerPort)},
			"readinessProbe": c.probe(), "volumeMounts": mounts,
		})},
	})
}

func secretVolume(name, secret string) fields {
	return fields{"name": name, "secret": fields{"secretName": secret}}
}

func containerPort(name string, number int) fields {
	return fields{"name": name, "containerPort": number}
}

func (c cluster) encrypted() bool { return c.spec.TLS.Static.Member.PeerSecret != "" }

// probe asks for the health of a member; with TLS, which needs a client's certificate, only for its port.
func (c cluster) probe() fields {
	if c.encrypted() {
		return fields{"tcpSocket": fields{"port": clientPort}}
	}
	return fields{"httpGet": fields{"path": "/health", "port": clientPort}}
}

// command returns the command of a member, with the flags that their operator sets (k8sutil.go, newEtcdPod).
func (c cluster) command() []any {
	scheme := "http"
	if c.encrypted() {
		scheme = "https"
	}
	url := func(member string, port int) string {
		host := member + "." + c.Metadata.Name + "." + c.Metadata.Namespace + ".svc"
		if c.spec.Pod.ClusterDomain != "" {
			host += "." + c.spec.Pod.ClusterDomain
		}
		return fmt.Sprintf("%s://%s:%d", scheme, host, port)
	}
	var members []string
	for i := range c.spec.Size {
		member := fmt.Sprintf("%s-%d", c.Metadata.Name, i)
		members = append(members, member+"="+url(member, peerPort))
	}
	command := []any{
		"/usr/local/bin/etcd", "--name=$(POD_NAME)", "--data-dir=" + dataMount + "/data",
		"--listen-client-urls=" + scheme + "://0.0.0.0:2379", "--advertise-client-urls=" + url("$(POD_NAME)", clientPort),
		"--listen-peer-urls=" + scheme + "://0.0.0.0:2380", "--initial-advertise-peer-urls=" + url("$(POD_NAME)", peerPort),
		"--initial-cluster=" + strings.Join(members, ","), "--initial-cluster-state=new",
		"--initial-cluster-token=" + c.Metadata.Namespace + "." + c.Metadata.Name,
	}
	if c.encrypted() {
		command = append(command,
			"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+peerMount+"/peer-ca.crt", "--peer-cert-file="+peerMount+"/peer.crt",
			"--peer-key-file="+peerMount+"/peer.key", "--client-cert-auth=true", "--trusted-ca-file="+serverMount+"/server-ca.crt",
			"--cert-file="+serverMount+"/server.crt", "--key-file="+serverMount+"/server.key")
	}
	return command
}
