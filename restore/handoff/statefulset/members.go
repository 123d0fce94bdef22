package statefulset

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// viewed is one member as Inspect sees it.
type viewed struct {
	handoff.Member
	endpoint string
	places   []place // of the data dir, and of the WAL dir if it has one
}

// selectedNode is the annotation of a claim with the node for which its volume was made.
const selectedNode = "volume.kubernetes.io/selected-node"

// view returns the members in the order of their ordinals, with a finding for each fact that is not known.
func (m *Manager) view(o objects, c corev1.Container) (members []viewed, found findings) {
	for i, pod := range o.podNames() {
		s := settingsOf(c, pod, m.Namespace)
		identity, finding := m.identify(pod, s, o.count)
		found.add(finding)
		v := viewed{Member: handoff.Member{Member: identity}, endpoint: endpointOf(o, c, pod, s)}
		v.DataDir, finding = m.dataDir(s)
		found.add(finding)
		v.WALDir, finding = m.walDir(s, v.DataDir)
		found.add(finding)
		if v.DataDir != "" {
			found.add(v.locate(o, c, pod))
		}
		v.Node, v.Fresh = nodeOf(o, int32(i), v.places), areFresh(o, v.places)
		members = append(members, v)
	}
	return members, found
}

// etcdTag matches the tag of an image of etcd, which begins with the version.
var etcdTag = regexp.MustCompile(`:v?(3\.\d+(?:\.\d+)?)[^/]*$`)

// versionOf returns the version of etcd in an image, by its tag; "" if that shows none.
func versionOf(image string) string {
	found := etcdTag.FindStringSubmatch(image)
	if found == nil {
		return ""
	}
	return found[1]
}

// defaultQuota is etcd's if it is given none (server/storage/quota.go).
const defaultQuota = 2 << 30

// quotaOf returns the quota of the database of an etcd with these settings in container c, in bytes; 0 if it is not known, or there is none.
func quotaOf(c corev1.Container, s settings) int64 {
	text, err := s.get("quota-backend-bytes")
	inSecret := slices.ContainsFunc(c.EnvFrom, func(from corev1.EnvFromSource) bool { return from.SecretRef != nil })
	switch {
	case err != nil, text == "" && inSecret:
		return 0
	case text == "" || text == "0":
		return defaultQuota
	}
	quota, err := strconv.ParseInt(text, 10, 64)
	if err != nil || quota < 0 {
		return 0
	}
	return quota
}

// identify returns the name and the peer URLs of the member in a pod.
func (m *Manager) identify(pod string, s settings, count int32) (plan.Member, *handoff.Finding) {
	if len(m.Into.Members) > 0 {
		given, ok := memberOf(m.Into.Members, pod)
		if !ok {
			return plan.Member{}, refuse(fmt.Sprintf("--initial-cluster has no member for pod %s", pod),
				"name each member like its pod, or use peer URLs whose host begins with the pod's name")
		}
		return given, nil
	}
	urls, err := s.get("initial-advertise-peer-urls")
	known, ok := memberOf(m.Backup, pod)
	switch {
	case urls != "":
	case ok:
		return known, nil
	case err == nil && count == 1:
		urls = fmt.Sprintf("http://localhost:%d", peerPort) // etcd's default
	case err == nil:
		err = fmt.Errorf("etcd runs without --initial-advertise-peer-urls")
		fallthrough
	default:
		return plan.Member{}, refuse(fmt.Sprintf("the peer URLs of %s are unknown: %v", pod, err), "pass --initial-cluster")
	}
	return plan.Member{Name: memberName(s, pod, known), PeerURLs: strings.Split(urls, ",")}, nil
}

// memberName returns the name of the member in a pod. etcd does not compare the name with the restored one, so the pod's does if no other
// is known.
func memberName(s settings, pod string, known plan.Member) string {
	const unnamed = "default" // etcd's name of every member without one
	name, err := s.get("name")
	if err != nil || name == unnamed {
		name = ""
	}
	return cmp.Or(name, known.Name, pod)
}

// memberOf returns the member among all that belongs to a pod: its name is the pod's, or the host of a peer URL begins with that.
func memberOf(all []plan.Member, pod string) (plan.Member, bool) {
	i := slices.IndexFunc(all, func(m plan.Member) bool {
		return m.Name == pod || slices.ContainsFunc(m.PeerURLs, func(u string) bool { return isHostOf(u, pod) })
	})
	if i < 0 {
		return plan.Member{}, false
	}
	return all[i], true
}

// isHostOf reports whether the host in a URL is pod, or a name below a Service that begins with pod.
func isHostOf(text, pod string) bool {
	u, err := url.Parse(text)
	return err == nil && strings.HasPrefix(u.Hostname()+".", pod+".")
}

func (m *Manager) dataDir(s settings) (string, *handoff.Finding) {
	dir, err := s.get("data-dir")
	dir = cmp.Or(m.Into.DataDir, dir)
	switch {
	case dir == "" && err == nil:
		err = fmt.Errorf("etcd runs without --data-dir")
	case dir != "" && !path.IsAbs(dir):
		err = fmt.Errorf("%s is not an absolute path", dir)
	case dir != "":
		return path.Clean(dir), nil
	}
	return "", refuse(fmt.Sprintf("the data dir is unknown: %v", err), "pass --data-dir")
}

// walDir returns the WAL dir; "": the log is in the data dir. If a script may set another one, the task on the disk finds no log.
func (m *Manager) walDir(s settings, dataDir string) (string, *handoff.Finding) {
	dir, err := s.get("wal-dir")
	dir = cmp.Or(m.Into.WALDir, dir)
	switch {
	case dir != "" && path.Clean(dir) == path.Join(dataDir, "member", "wal"): // where it is by default
		return "", nil
	case dir != "" && dataDir != "" && isInside(dir, dataDir):
		err = fmt.Errorf("%s is inside the data dir %s, and is not exchanged with it", dir, dataDir)
	case dir != "" && path.IsAbs(dir):
		return path.Clean(dir), nil
	case dir == "" && (err == nil || s.hidden != ""):
		return "", nil
	case err == nil:
		err = fmt.Errorf("%s is not an absolute path", dir)
	}
	return "", refuse(fmt.Sprintf("the WAL dir cannot be used: %v", err), "pass --wal-dir")
}

// locate finds the places of v's directories.
func (v *viewed) locate(o objects, c corev1.Container, pod string) *handoff.Finding {
	for _, dir := range []string{v.DataDir, v.WALDir} {
		if dir == "" {
			continue
		}
		p, err := placeOf(o.set, c, pod, dir)
		if err != nil {
			return refuse(err.Error(), "give the members claims with volumeClaimTemplates, or pass --data-dir if the data is elsewhere")
		}
		v.places = append(v.places, p)
	}
	v.Disk = v.places[0].String()
	return nil
}

// nodeOf returns the node on which a member runs, or for which its volume was made; "": unknown.
func nodeOf(o objects, index int32, places []place) string {
	pod := o.pods[podName(o.set, index)]
	if pod != nil && pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	for _, p := range places {
		claim := o.claims[p.claim()]
		if claim != nil {
			return claim.Annotations[selectedNode]
		}
	}
	return ""
}

// areFresh reports whether the places are of claims that do not exist yet.
func areFresh(o objects, places []place) bool {
	return len(places) > 0 && !slices.ContainsFunc(places, func(p place) bool { return p.claim() == "" || o.claims[p.claim()] != nil })
}

// endpointOf returns a client URL of the member in a pod: the one that it advertises, if that has the pod's name.
func endpointOf(o objects, c corev1.Container, pod string, s settings) string {
	advertised, err := s.get("advertise-client-urls")
	for text := range strings.SplitSeq(advertised, ",") {
		if err == nil && isHostOf(text, pod) {
			return text
		}
	}
	scheme, port := "http", int32(clientPort)
	if s.has("cert-file") || s.has("auto-tls") {
		scheme = "https"
	}
	for _, p := range c.Ports {
		if p.Name == "client" {
			port = p.ContainerPort
		}
	}
	host := fmt.Sprintf("%s.%s.%s.svc", pod, o.set.Spec.ServiceName, o.set.Namespace)
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}
