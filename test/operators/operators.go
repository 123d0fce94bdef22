// Package operators has stand-ins for operators of etcd clusters. A stand-in does to the objects of an EtcdCluster what the operator does.
package operators

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

// Operator is a stand-in.
type Operator struct {
	group     string // of its EtcdClusters
	version   string // of that group
	spec      string // of an EtcdCluster, to be filled in
	reconcile func(ctx context.Context, c cluster) error
	// overwrites means that it removes annotations, and does not notice that another program has changed an object at the same time.
	overwrites bool
}

// image is that of the members.
const image = "etcd-dr.test/etcd:3.6"

// Definition returns the CustomResourceDefinition of its EtcdClusters.
func (o Operator) Definition() string {
	return strings.NewReplacer("GROUP", o.group, "VERSION", o.version).Replace(definition)
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: etcdclusters.GROUP}
spec:
  group: GROUP
  names: {kind: EtcdCluster, listKind: EtcdClusterList, plural: etcdclusters, singular: etcdcluster}
  scope: Namespaced
  versions:
    - name: VERSION
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [size]
              properties: {size: {type: integer, format: int32}}
              x-kubernetes-preserve-unknown-fields: true
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// EtcdCluster returns the manifest of an EtcdCluster.
func (o Operator) EtcdCluster(name string, size int) string {
	spec := strings.NewReplacer("OWNER_SIZE", fmt.Sprint(size), "IMAGE_OF_ETCD", image).Replace(o.spec)
	return fmt.Sprintf("apiVersion: %s/%s\nkind: EtcdCluster\nmetadata: {name: %q}\nspec: {%s}\n", o.group, o.version, name, spec)
}

// Reconcile does what the operator does after a change of an EtcdCluster or of its objects. If another program changes them at the same time,
// it must be called again. Without the EtcdCluster it does nothing.
func (o Operator) Reconcile(ctx context.Context, client dynamic.Interface, namespace, name string) error {
	found, err := client.Resource(o.kind()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.reconcile(ctx, cluster{found, client, o})
}

// kind returns that of its EtcdClusters.
func (o Operator) kind() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.group, Version: o.version, Resource: "etcdclusters"}
}

var (
	pods     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	sets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	maps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// cluster is an EtcdCluster.
type cluster struct {
	*unstructured.Unstructured
	client   dynamic.Interface
	operator Operator
}

// size returns spec.size.
func (c cluster) size() int64 {
	size, _, _ := unstructured.NestedInt64(c.Object, "spec", "size")
	return size
}

// get returns the object of a kind with a name; nil: there is none.
func (c cluster) get(ctx context.Context, kind schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	found, err := c.client.Resource(kind).Namespace(c.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// replace creates the object of a text, or replaces its labels, its owners, its spec and its data. more are pairs of a placeholder and its
// value. A conflict is no error.
func (c cluster) replace(ctx context.Context, kind schema.GroupVersionResource, text string, more ...string) error {
	wanted := c.filled(text, more...)
	found, err := c.get(ctx, kind, wanted.GetName())
	if err != nil {
		return err
	}
	objects := c.client.Resource(kind).Namespace(c.GetNamespace())
	if found == nil {
		_, err := objects.Create(ctx, wanted, metav1.CreateOptions{FieldManager: "manager"})
		return err
	}
	found.SetLabels(wanted.GetLabels())
	found.SetOwnerReferences(wanted.GetOwnerReferences())
	if c.operator.overwrites {
		found.SetAnnotations(nil)
		found.SetResourceVersion("")
	}
	for _, field := range []string{"spec", "data"} {
		if wanted.Object[field] != nil {
			found.Object[field] = wanted.Object[field]
		}
	}
	_, err = objects.Update(ctx, found, metav1.UpdateOptions{FieldManager: "manager"})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// filled returns the object of a text, with the values of c, which owns it.
func (c cluster) filled(text string, more ...string) *unstructured.Unstructured {
	more = append(more, "OWNER_NAME", c.GetName(), "OWNER_SIZE", fmt.Sprint(c.size()), "IMAGE_OF_ETCD", image)
	o := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(strings.NewReplacer(more...).Replace(text)), &o.Object)
	if err != nil {
		panic(err) // a mistake in this package
	}
	o.SetNamespace(c.GetNamespace())
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(c, c.GroupVersionKind())})
	return o
}
