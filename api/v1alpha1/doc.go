// Package v1alpha1 holds the custom resources of the group etcd-dr.io, as the API server stores them. It has no logic: the rules
// in the comments become the schema of the custom resource definitions, so the API server refuses an object that breaks one.
//
// +kubebuilder:object:generate=true
// +groupName=etcd-dr.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of these types.
var GroupVersion = schema.GroupVersion{Group: "etcd-dr.io", Version: "v1alpha1"}

// LegacyGroup replaces GroupVersion.Group under dr operator --coreos. kubectl resolves a name such as etcdbackup to the first group in alphabetical
// order, so it must sort after etcd.database.coreos.com.
const LegacyGroup = "legacy.etcd-dr.io"

// AddToScheme adds these types to a scheme, for clients that read and write them.
func AddToScheme(s *runtime.Scheme) error { return AddToSchemeAs(s, GroupVersion.Group) }

// AddToSchemeAs is AddToScheme with another group.
func AddToSchemeAs(s *runtime.Scheme, group string) error {
	as := schema.GroupVersion{Group: group, Version: GroupVersion.Version}
	s.AddKnownTypes(as, &EtcdBackup{}, &EtcdBackupList{}, &EtcdRestore{}, &EtcdRestoreList{})
	metav1.AddToGroupVersion(s, as)
	return nil
}
