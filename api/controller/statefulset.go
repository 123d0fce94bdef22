package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// readStatefulSet reads the StatefulSet that b refers to; nil if b refers to none, or to one that does not exist. reader must not cache:
// the operator can neither list nor watch StatefulSets. An error means that the API server did not answer.
func readStatefulSet(ctx context.Context, reader client.Reader, b *v1alpha1.EtcdBackup) (*appsv1.StatefulSet, error) {
	if b.Spec.Source == nil || b.Spec.Source.StatefulSet == nil {
		return nil, nil
	}
	var set appsv1.StatefulSet
	name := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Source.StatefulSet.Name}
	err := reader.Get(ctx, name, &set)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read StatefulSet %s: %w", name, err)
	}
	return &set, nil
}

const (
	clientPort     = 2379     // etcd's default
	clientPortName = "client" // of a container's port, in the charts of etcd

	// maxMembers is the largest number of replicas that is taken for an etcd cluster, as for spec.source.endpoints.
	maxMembers = 32
)

// endpointsOf returns the client URLs of the pods of set, by their names below its headless Service. It is pure.
func endpointsOf(set *appsv1.StatefulSet, scheme string) (endpoints []string, err error) {
	replicas, first := int32(1), int32(0) // Kubernetes' defaults
	if set.Spec.Replicas != nil {
		replicas = *set.Spec.Replicas
	}
	if set.Spec.Ordinals != nil {
		first = set.Spec.Ordinals.Start
	}
	service := set.Spec.ServiceName
	switch {
	case replicas < 1:
		return nil, errors.New("it has no replicas: scale it up, or name the members in endpoints")
	case replicas > maxMembers:
		return nil, fmt.Errorf("it has %d replicas, and an etcd cluster at most %d: name some members in endpoints", replicas, maxMembers)
	case service == "":
		return nil, errors.New("it has no serviceName, so its pods have no names: name the members in endpoints")
	case len(validation.IsDNS1123Label(service)) > 0: // the API server accepts any text
		return nil, fmt.Errorf("its serviceName %q is not the name of a Service: correct it, or name the members in endpoints", service)
	}
	port := strconv.Itoa(int(portOf(set.Spec.Template.Spec)))
	for i := range replicas {
		host := fmt.Sprintf("%s-%d.%s.%s.svc", set.Name, int64(first)+int64(i), service, set.Namespace)
		endpoints = append(endpoints, scheme+"://"+net.JoinHostPort(host, port))
	}
	return endpoints, nil
}

// portOf returns the client port of the etcd in a pod.
func portOf(pod corev1.PodSpec) int32 {
	for _, container := range pod.Containers {
		for _, port := range container.Ports {
			if port.Name == clientPortName {
				return port.ContainerPort
			}
		}
	}
	return clientPort
}
