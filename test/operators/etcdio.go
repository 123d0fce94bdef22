package operators

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// EtcdIO is the stand-in for etcd-io/etcd-operator (internal/controller). It creates the StatefulSet with all members, where theirs adds one
// after the other, and it does not ask the members for their number: theirs changes the replicas by one if they are not as many.
var EtcdIO = Operator{group: "operator.etcd.io", version: "v1alpha1", spec: `size: OWNER_SIZE, imageRegistry: "etcd-dr.test/etcd", version: "3.6", ` +
	`etcdOptions: ["--heartbeat-interval=500", "--election-timeout=2500"], storageSpec: {volumeSizeRequest: 1Gi}`, reconcile: reconcileEtcdIO, overwrites: true}

func reconcileEtcdIO(ctx context.Context, c cluster) error {
	set, err := c.get(ctx, sets, c.GetName())
	if err != nil {
		return err
	}
	if set == nil {
		return c.start(ctx, int(c.size()))
	}
	if !metav1.IsControlledBy(set, c) {
		return nil // theirs logs an error
	}
	replicas, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
	if replicas == 0 {
		return c.start(ctx, 1)
	}
	service, err := c.get(ctx, services, c.GetName())
	if err != nil || service != nil {
		return err
	}
	return c.replace(ctx, services, etcdIOService)
}

// start lets the first members run, as those of a new cluster.
func (c cluster) start(ctx context.Context, members int) error {
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("%s-%d=http://%[1]s-%[2]d.%[1]s.%[3]s.svc.cluster.local:2380", c.GetName(), i, c.GetNamespace()))
	}
	err := c.replace(ctx, maps, etcdIOState, "INITIAL_MEMBERS", strings.Join(all, ","))
	if err != nil {
		return err
	}
	return c.replace(ctx, sets, etcdIOSet, "NUMBER_OF_REPLICAS", fmt.Sprint(members))
}

const etcdIOState = `apiVersion: v1
kind: ConfigMap
metadata: {name: OWNER_NAME-state}
data: {ETCD_INITIAL_CLUSTER_STATE: new, ETCD_INITIAL_CLUSTER: "INITIAL_MEMBERS", ETCD_DATA_DIR: /var/lib/etcd}
`

const etcdIOService = `apiVersion: v1
kind: Service
metadata: {name: OWNER_NAME, labels: {app: OWNER_NAME, controller: OWNER_NAME}}
spec: {clusterIP: None, selector: {app: OWNER_NAME, controller: OWNER_NAME}}
`

const etcdIOSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: OWNER_NAME}
spec:
  replicas: NUMBER_OF_REPLICAS
  serviceName: OWNER_NAME
  selector: {matchLabels: {app: OWNER_NAME, controller: OWNER_NAME}}
  template:
    metadata: {labels: {app: OWNER_NAME, controller: OWNER_NAME}}
    spec:
      containers:
        - name: etcd
          image: IMAGE_OF_ETCD
          command: [/usr/local/bin/etcd]
          args:
            - --name=$(POD_NAME)
            - --listen-peer-urls=http://0.0.0.0:2380
            - --listen-client-urls=http://0.0.0.0:2379
            - --initial-advertise-peer-urls=http://$(POD_NAME).OWNER_NAME.$(POD_NAMESPACE).svc.cluster.local:2380
            - --advertise-client-urls=http://$(POD_NAME).OWNER_NAME.$(POD_NAMESPACE).svc.cluster.local:2379
            - --heartbeat-interval=500
            - --election-timeout=2500
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
          envFrom: [{configMapRef: {name: OWNER_NAME-state}}]
          ports: [{name: client, containerPort: 2379}, {name: peer, containerPort: 2380}]
          volumeMounts: [{name: etcd-data, mountPath: /var/lib/etcd, subPathExpr: $(POD_NAME)}]
  volumeClaimTemplates:
    - metadata: {name: etcd-data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}, limits: {storage: 1Gi}}}
`
