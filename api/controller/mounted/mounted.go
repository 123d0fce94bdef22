// Package mounted describes the repositories of custom resources as Jobs open them, with Secrets that they mount. It is pure.
package mounted

import (
	"cmp"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// Repository returns r as a Job opens it for a cluster. Of Secrets it contains the names. identity opens encrypted backups; nil: none does.
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
