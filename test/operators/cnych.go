package operators

import "context"

// Cnych is the stand-in for cnych/etcd-operator (controllers/resource.go, controllers/etcdcluster_controller.go). It replaces the labels and
// the spec of the Service and of the StatefulSet.
var Cnych = Operator{group: "etcd.ydzs.io", version: "v1alpha1", spec: `size: OWNER_SIZE, image: "IMAGE_OF_ETCD"`, reconcile: reconcileCnych}

func reconcileCnych(ctx context.Context, c cluster) error {
	err := c.replace(ctx, services, cnychService)
	if err != nil {
		return err
	}
	return c.replace(ctx, sets, cnychSet)
}

const cnychService = `apiVersion: v1
kind: Service
metadata: {name: OWNER_NAME, labels: {app: etcd}}
spec:
  clusterIP: None
  selector: {etcd.ydzs.io/cluster: OWNER_NAME}
  ports: [{name: peer, port: 2380}, {name: client, port: 2379}]
`

// cnychSet has their fields, and another script. Like theirs, it waits until the names of all members have addresses. Where theirs would add
// the pod to the cluster, it ends. When such a pod stops, it deletes the data, as theirs does. The image of the tests has no shell, so the host's
// is mounted. The settings for etcd are for a busy host.
const cnychSet = `apiVersion: apps/v1
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
          image: IMAGE_OF_ETCD
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
            preStop: {exec: {command: [/bin/sh, -ec, 'test "${HOSTNAME##*-}" -lt ${INITIAL_CLUSTER_SIZE} || rm -rf /var/run/etcd/*']}}
      volumes:
        - {name: bin, hostPath: {path: /bin}}
        - {name: lib, hostPath: {path: /lib}}
        - {name: lib64, hostPath: {path: /lib64}}
  volumeClaimTemplates:
    - metadata: {name: datadir}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
