// Package coreos holds the custom resources of the group etcd.database.coreos.com, version v1beta2, as coreos/etcd-operator defines them in
// pkg/apis/etcd/v1beta2. That operator is archived, and its own definitions are of a version that Kubernetes 1.22 removed. It has no logic.
//
// +kubebuilder:object:generate=true
// +groupName=etcd.database.coreos.com
// +versionName=v1beta2
package coreos

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of these types.
var GroupVersion = schema.GroupVersion{Group: "etcd.database.coreos.com", Version: "v1beta2"}

// AddToScheme adds these types to a scheme, for clients that read and write them.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EtcdBackup{}, &EtcdBackupList{}, &EtcdRestore{}, &EtcdRestoreList{}, &EtcdCluster{}, &EtcdClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
