package dropin

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/coreos"
)

// definitions are the definitions of our custom resources and theirs. make generate writes them.
//
//go:embed definitions
var definitions embed.FS

// established is how long Define waits for a definition.
const established = 30 * time.Second

// Define creates the definitions that are missing, as coreos' operators did, and waits until they are served. Those that exist stay as they are.
// It also makes names such as etcdbackup mean theirs, in kubectl.
func Define(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, established)
	defer cancel()
	files, err := fs.Glob(definitions, "definitions/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := definitions.ReadFile(name)
		if err != nil {
			return err
		}
		definition := &unstructured.Unstructured{}
		err = yaml.Unmarshal(text, &definition.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		err = define(ctx, c, definition)
		if err != nil {
			return fmt.Errorf("cannot define the custom resource %s: allow this operator to get and create it, or apply deploy/coreos/crds: %w", definition.GetName(), err)
		}
	}
	return prefer(ctx, c)
}

// define creates a definition unless it exists, and waits until it is served.
func define(ctx context.Context, c client.Client, definition *unstructured.Unstructured) error {
	for {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(definition.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(definition), live)
		switch {
		case apierrors.IsNotFound(err):
			err = ignoreExists(c.Create(ctx, definition.DeepCopy()))
		case err == nil && isEstablished(live):
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not served: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isEstablished reports whether a definition has the condition Established.
func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, one := range conditions {
		c, ok := one.(map[string]any)
		if ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// prefer gives their group a higher priority than ours, whose kinds have the same names: kubectl get etcdbackup shows theirs. The API server has
// made the APIService of the group's version, and would change it back if it had still to manage it (autoregister_controller.go).
func prefer(ctx context.Context, c client.Client) error {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName(coreos.GroupVersion.Version + "." + coreos.GroupVersion.Group)
	patch := fmt.Sprintf(`{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"groupPriorityMinimum":%d}}`, defaultPriority+1)
	err := c.Patch(ctx, service, client.RawPatch("application/merge-patch+json", []byte(patch)))
	if err != nil {
		return fmt.Errorf("cannot give the group %s a higher priority: allow this operator to patch the APIService %s: %w", coreos.GroupVersion.Group, service.GetName(), err)
	}
	return nil
}

// defaultPriority is the priority of the groups of custom resources (crdregistration_controller.go).
const defaultPriority = 1000
