package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// secrets maps the name of each Secret that an EtcdBackup names to its content; nil: there is no such Secret.
type secrets map[string]map[string][]byte

// secretNames returns the names of the Secrets that the settings in s refer to.
func secretNames(s v1alpha1.EtcdBackupSpec) (names []string) {
	if s.Source != nil && s.Source.TLSSecret != nil {
		names = append(names, s.Source.TLSSecret.Name)
	}
	if s.Source != nil && s.Source.AuthSecret != nil {
		names = append(names, s.Source.AuthSecret.Name)
	}
	if s.RecipientsSecret != nil {
		names = append(names, s.RecipientsSecret.Name)
	}
	for _, r := range s.Repositories {
		if r.CredentialsSecret != nil {
			names = append(names, r.CredentialsSecret.Name)
		}
		if r.CASecret != nil {
			names = append(names, r.CASecret.Name)
		}
		if r.SignKeySecret != nil {
			names = append(names, r.SignKeySecret.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readSecrets reads the Secrets with these names in a namespace, each by its name: the operator can neither list nor watch Secrets.
// reader must not cache. An error means that the API server did not answer.
func readSecrets(ctx context.Context, reader client.Reader, namespace string, names []string) (secrets, error) {
	read := secrets{}
	for _, name := range names {
		var s corev1.Secret
		err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s)
		switch {
		case apierrors.IsNotFound(err):
			read[name] = nil
		case err != nil:
			return nil, fmt.Errorf("cannot read Secret %s/%s: %w", namespace, name, err)
		default:
			read[name] = s.Data
			if s.Data == nil {
				read[name] = map[string][]byte{}
			}
		}
	}
	return read, nil
}
