// Package cnych is a stand-in for cnych/etcd-operator: it does to the objects of an EtcdCluster what that does (controllers/resource.go,
// controllers/etcdcluster_controller.go).
package cnych

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Definition is the CustomResourceDefinition of EtcdClusters.
const Definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: etcdclusters.etcd.ydzs.io}
spec:
  group: etcd.ydzs.io
  names: {kind: EtcdCluster, listKind: EtcdClusterList, plural: etcdclusters, singular: etcdcluster}
  scope: Namespaced
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [image, size]
              properties: {image: {type: string}, size: {type: integer, format: int32}}
            status: {type: object}
`

// EtcdCluster returns the manifest of an EtcdCluster.
func EtcdCluster(name, image string, size int) string {
	return fmt.Sprintf("apiVersion: etcd.ydzs.io/v1alpha1\nkind: EtcdCluster\nmetadata: {name: %q}\nspec: {size: %d, image: %q}\n", name, size, image)
}

var (
	clusters = schema.GroupVersionResource{Group: "etcd.ydzs.io", Version: "v1alpha1", Resource: "etcdclusters"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	sets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
)

// Reconcile does what the operator does after a change of an EtcdCluster, or of its Service or StatefulSet: it replaces the labels and the
// spec of both. If another program changes them at the same time, it must be called again. Without the EtcdCluster it does nothing.
func Reconcile(ctx context.Context, c dynamic.Interface, namespace, name string) error {
	cluster, err := c.Resource(clusters).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = replace(ctx, c.Resource(services).Namespace(namespace), cluster, filled(serviceText, cluster))
	if err != nil {
		return err
	}
	return replace(ctx, c.Resource(sets).Namespace(namespace), cluster, filled(setText, cluster))
}

// replace creates an object of the cluster, or replaces its labels and its spec. A conflict is no error.
func replace(ctx context.Context, c dynamic.ResourceInterface, cluster, wanted *unstructured.Unstructured) error {
	wanted.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cluster, cluster.GroupVersionKind())})
	found, err := c.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err := c.Create(ctx, wanted, metav1.CreateOptions{FieldManager: "manager"})
		return err
	}
	if err != nil {
		return err
	}
	found.SetLabels(wanted.GetLabels())
	found.SetOwnerReferences(wanted.GetOwnerReferences())
	found.Object["spec"] = wanted.Object["spec"]
	_, err = c.Update(ctx, found, metav1.UpdateOptions{FieldManager: "manager"})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// filled returns the object of a text, with the values of a cluster.
func filled(text string, cluster *unstructured.Unstructured) *unstructured.Unstructured {
	size, _, _ := unstructured.NestedInt64(cluster.Object, "spec", "size")
	image, _, _ := unstructured.NestedString(cluster.Object, "spec", "image")
	text = strings.NewReplacer("OWNER_NAME", cluster.GetName(), "OWNER_SIZE", fmt.Sprint(size), "OWNER_IMAGE", image).Replace(text)
	o := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(text), &o.Object)
	if err != nil {
		panic(err) // a mistake in this file
	}
	o.SetNamespace(cluster.GetNamespace())
	return o
}

const serviceText = `apiVersion: v1
kind: Service
metadata: {name: OWNER_NAME, labels: {app: etcd}}
spec:
  clusterIP: None
  selector: {etcd.ydzs.io/cluster: OWNER_NAME}
  ports: [{name: peer, port: 2380}, {name: client, port: 2379}]
`

// setText has their fields, and another script. Like theirs, it waits until the names of all members have addresses. Where theirs would add
// the pod to the cluster, it ends. The image of the tests has no shell, so the host's is mounted. The settings for etcd are for
// a busy host.
const setText = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: OWNER_NAME, labels: {app: etcd}}
spec:
  replicas: OWNER_SIZE
  serviceName: OWNER_NAME
  selector: {matchLabels: {etcd.ydzs.io/cluster: OWNER_NAME}}
  template:
    metadata: {labels: {etcd.ydzs.io/cluster: OWNER_NAME, app: etcd}}
    spec:
      containers:
        - name: etcd
          image: OWNER_IMAGE
          imagePullPolicy: IfNotPresent
          ports: [{name: peer, containerPort: 2380}, {name: client, containerPort: 2379}]
          env:
            - {name: INITIAL_CLUSTER_SIZE, value: "OWNER_SIZE"}
            - {name: SET_NAME, value: OWNER_NAME}
            - {name: MY_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
            - {name: GOMAXPROCS, value: "1"}
            - {name: ETCD_HEARTBEAT_INTERVAL, value: "500"}
            - {name: ETCD_ELECTION_TIMEOUT, value: "2500"}
          volumeMounts:
            - {name: datadir, mountPath: /var/run/etcd}
            - {name: bin, mountPath: /bin, readOnly: true}
            - {name: lib, mountPath: /lib, readOnly: true}
            - {name: lib64, mountPath: /lib64, readOnly: true}
          command:
            - /bin/sh
            - -ec
            - |
              HOSTNAME=$(hostname)
              SET_ID=${HOSTNAME##*-}
              if [ "${SET_ID}" -ge ${INITIAL_CLUSTER_SIZE} ]; then
                  echo "cnych stand-in: ${HOSTNAME} would be added to a cluster of ${INITIAL_CLUSTER_SIZE}"
                  exit 1
              fi
              PEERS=""
              i=0
              while [ $i -lt ${INITIAL_CLUSTER_SIZE} ]; do
                  NAME=${SET_NAME}-${i}
                  until getent hosts ${NAME}.${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local >/dev/null; do sleep 1; done
                  PEERS="${PEERS}${PEERS:+,}${NAME}=http://${NAME}.${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local:2380"
                  i=$((i + 1))
              done
              exec etcd --name ${HOSTNAME} \
                  --initial-advertise-peer-urls http://${HOSTNAME}.${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local:2380 \
                  --listen-peer-urls http://${POD_IP}:2380 \
                  --listen-client-urls http://${POD_IP}:2379,http://127.0.0.1:2379 \
                  --advertise-client-urls http://${HOSTNAME}.${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local:2379 \
                  --initial-cluster-token etcd-cluster-1 \
                  --data-dir /var/run/etcd/default.etcd \
                  --initial-cluster ${PEERS} \
                  --initial-cluster-state new
          lifecycle:
            preStop: {exec: {command: [/bin/sh, -ec, 'test "${HOSTNAME##*-}" -lt ${INITIAL_CLUSTER_SIZE}']}}
      volumes:
        - {name: bin, hostPath: {path: /bin}}
        - {name: lib, hostPath: {path: /lib}}
        - {name: lib64, hostPath: {path: /lib64}}
  volumeClaimTemplates:
    - metadata: {name: datadir}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
