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

// AddToScheme adds these types to a scheme, for clients that read and write them.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EtcdBackup{}, &EtcdBackupList{}, &EtcdRestore{}, &EtcdRestoreList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
