// Package mounted converts the repositories of custom resources for Jobs, which mount the Secrets. It is pure.
package mounted

import (
	"cmp"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// Repository returns r in the form in which a Job opens it for cluster. It contains the names of Secrets, not their values. identity
// names the Secret that decrypts backups; nil: there is none.
func Repository(r v1alpha1.Repository, cluster string, identity *v1alpha1.IdentitySecret) kubejob.Repository {
	k := kubejob.Repository{URL: strings.ReplaceAll(r.URL, declared.Placeholder, cluster), Cluster: cluster}
	if r.CredentialsSecret != nil {
		k.Credentials = r.CredentialsSecret.Name
	}
	if r.CASecret != nil {
		k.CA = kubejob.Key{Secret: r.CASecret.Name, Name: cmp.Or(r.CASecret.Key, "ca.crt")}
	}
	if r.SignKeySecret != nil {
		k.SignKey = kubejob.Key{Secret: r.SignKeySecret.Name, Name: cmp.Or(r.SignKeySecret.Key, "sign.key")}
	}
	if r.Limit != nil {
		k.Limit = r.Limit.Value()
	}
	if identity != nil {
		k.Identity = kubejob.Key{Secret: identity.Name, Name: cmp.Or(identity.Key, "key.txt")}
	}
	return k
}
