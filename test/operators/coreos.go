package operators

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Coreos is the stand-in for coreos/etcd-operator (pkg/cluster/cluster.go, reconcile.go). It creates all members at once, where theirs adds one
// after the other, and it does not replace a member that has ended: theirs would, while most of them run.
var Coreos = Operator{group: "etcd.database.coreos.com", version: "v1beta2", reconcile: reconcileCoreos,
	spec: `size: OWNER_SIZE, repository: "etcd-dr.test/etcd", version: "3.6.1", pod: {resources: {requests: {cpu: 10m}}}`}

// reconcileCoreos goes by the phase in the status: without one it creates the cluster, and Failed ends its work for good.
func reconcileCoreos(ctx context.Context, c cluster) error {
	phase, _, _ := unstructured.NestedString(c.Object, "status", "phase")
	paused, _, _ := unstructured.NestedBool(c.Object, "spec", "paused")
	switch {
	case phase == "":
		return c.beginCoreos(ctx)
	case paused || phase != "Running":
		return nil
	}
	running, pending, err := c.coreosMembers(ctx)
	if err != nil || pending > 0 || running > int(c.size())/2 {
		return err
	}
	return c.setPhase(ctx, "Failed") // lost quorum
}

// beginCoreos creates the Services and the members.
func (c cluster) beginCoreos(ctx context.Context) error {
	err := c.create(ctx, services, coreosClients)
	if err == nil {
		err = c.create(ctx, services, coreosPeers)
	}
	for _, suffix := range []string{"2bfgkqxzzm", "6jhpwcv4td", "9snlr5ydk8"} { // theirs are random
		if err == nil {
			err = c.create(ctx, pods, coreosMember, "MEMBER", c.GetName()+"-"+suffix)
		}
	}
	if err != nil {
		return err
	}
	return c.setPhase(ctx, "Running")
}

// create creates the object of a text, unless it exists.
func (c cluster) create(ctx context.Context, kind schema.GroupVersionResource, text string, more ...string) error {
	wanted := c.filled(text, more...)
	wanted.SetLabels(map[string]string{"app": "etcd", "etcd_cluster": c.GetName()})
	_, err := c.client.Resource(kind).Namespace(c.GetNamespace()).Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// coreosMembers returns how many pods of c run, and how many have not started. Pods of others do not count.
func (c cluster) coreosMembers(ctx context.Context) (running, pending int, err error) {
	all, err := c.client.Resource(pods).Namespace(c.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: "app=etcd,etcd_cluster=" + c.GetName()})
	if err != nil {
		return 0, 0, err
	}
	for _, pod := range all.Items {
		if !metav1.IsControlledBy(&pod, c) || pod.GetDeletionTimestamp() != nil {
			continue
		}
		switch phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase {
		case "Running":
			running++
		case "Pending":
			pending++
		}
	}
	return running, pending, nil
}

// setPhase sets status.phase, which their definition has outside of a subresource.
func (c cluster) setPhase(ctx context.Context, phase string) error {
	after := c.DeepCopy()
	err := unstructured.SetNestedField(after.Object, phase, "status", "phase")
	if err != nil {
		return err
	}
	_, err = c.client.Resource(c.operator.kind()).Namespace(c.GetNamespace()).Update(ctx, after, metav1.UpdateOptions{})
	return err
}

const coreosClients = `apiVersion: v1
kind: Service
metadata: {name: OWNER_NAME-client}
spec:
  selector: {app: etcd, etcd_cluster: OWNER_NAME}
  ports: [{name: client, port: 2379}]
`

const coreosPeers = `apiVersion: v1
kind: Service
metadata:
  name: OWNER_NAME
  annotations: {service.alpha.kubernetes.io/tolerate-unready-endpoints: "true"}
spec:
  clusterIP: None
  selector: {app: etcd, etcd_cluster: OWNER_NAME}
  ports: [{name: client, port: 2379}, {name: peer, port: 2380}]
`

// coreosMember is ready before there is a quorum, because the DNS has only members that are ready. The settings for etcd are for a busy host.
const coreosMember = `apiVersion: v1
kind: Pod
metadata: {name: MEMBER}
spec:
  hostname: MEMBER
  subdomain: OWNER_NAME
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
    - name: etcd
      image: IMAGE_OF_ETCD
      env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: GOMAXPROCS, value: "1"}
      command:
        - /usr/local/bin/etcd
        - --name=$(POD)
        - --data-dir=/var/etcd/data
        - --listen-client-urls=http://0.0.0.0:2379
        - --advertise-client-urls=http://$(POD).OWNER_NAME.$(NAMESPACE).svc:2379
        - --listen-peer-urls=http://0.0.0.0:2380
        - --initial-advertise-peer-urls=http://$(POD).OWNER_NAME.$(NAMESPACE).svc:2380
        - --initial-cluster=OWNER_NAME-2bfgkqxzzm=http://OWNER_NAME-2bfgkqxzzm.OWNER_NAME.$(NAMESPACE).svc:2380,OWNER_NAME-6jhpwcv4td=http://OWNER_NAME-6jhpwcv4td.OWNER_NAME.$(NAMESPACE).svc:2380,OWNER_NAME-9snlr5ydk8=http://OWNER_NAME-9snlr5ydk8.OWNER_NAME.$(NAMESPACE).svc:2380
        - --initial-cluster-state=new
        - --heartbeat-interval=500
        - --election-timeout=2500
      readinessProbe:
        tcpSocket: {port: 2380}
        periodSeconds: 2
      volumeMounts: [{name: data, mountPath: /var/etcd}]
  volumes: [{name: data, emptyDir: {}}]
`
