package dropin

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// definitions are the definitions of our custom resources and theirs. make generate writes them.
//
//go:embed definitions
var definitions embed.FS

// defineTimeout bounds Define as a whole.
const defineTimeout = 30 * time.Second

// Define creates the definitions of their custom resources, and of ours in the group v1alpha1.LegacyGroup, that are missing, as coreos' operators
// did, and waits until they are served. Those that exist stay as they are. It fails after 30 s in all, or without the right to get and create them.
func Define(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, defineTimeout)
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
		if strings.HasSuffix(definition.GetName(), "."+v1alpha1.GroupVersion.Group) {
			makeLegacy(definition)
		}
		err = define(ctx, c, definition)
		if err != nil {
			return fmt.Errorf("cannot define the custom resource %s: allow this operator to get and create it: %w", definition.GetName(), err)
		}
	}
	return nil
}

// makeLegacy changes the definition of a custom resource of ours into that of the same one in the group v1alpha1.LegacyGroup, without short names.
func makeLegacy(definition *unstructured.Unstructured) {
	plural, _, _ := strings.Cut(definition.GetName(), ".")
	definition.SetName(plural + "." + v1alpha1.LegacyGroup)
	err := unstructured.SetNestedField(definition.Object, v1alpha1.LegacyGroup, "spec", "group")
	if err != nil {
		panic(err) // the definition is a part of this program
	}
	unstructured.RemoveNestedField(definition.Object, "spec", "names", "shortNames")
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
