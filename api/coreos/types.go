package coreos

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdBackup stores one snapshot of an etcd cluster, or one after each interval (backup_types.go).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Succeeded",type=boolean,JSONPath=`.status.succeeded`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.etcdRevision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BackupSpec `json:"spec"`
	// +optional
	Status BackupStatus `json:"status,omitzero"`
}

// EtcdBackupList is a list of EtcdBackups.
//
// +kubebuilder:object:root=true
type EtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdBackup `json:"items"`
}

// BackupSpec is the spec of an EtcdBackup.
type BackupSpec struct {
	// etcdEndpoints are client URLs of the cluster.
	// +optional
	EtcdEndpoints []string `json:"etcdEndpoints,omitempty"`
	// storageType selects one of the stores: S3, ABS, GCS or OSS.
	StorageType string `json:"storageType"`
	// backupPolicy sets the interval, the number of backups to keep, and the time limit.
	// +optional
	BackupPolicy *BackupPolicy `json:"backupPolicy,omitempty"`
	// clientTLSSecret is the Secret with etcd-client.crt, etcd-client.key and etcd-client-ca.crt.
	// +optional
	ClientTLSSecret string `json:"clientTLSSecret,omitempty"`

	Stores `json:",inline"`
}

// BackupPolicy is when and how an EtcdBackup takes its snapshots.
type BackupPolicy struct {
	// timeoutInSecond is how many seconds a backup may take. Without it, that is 6 hours.
	// +optional
	TimeoutInSecond int64 `json:"timeoutInSecond,omitempty"`
	// backupIntervalInSecond is the time between two snapshots, in seconds; 0: one snapshot is taken.
	// +optional
	BackupIntervalInSecond int64 `json:"backupIntervalInSecond,omitempty"`
	// maxBackups is how many snapshots of an interval are kept; 0: all.
	// +optional
	MaxBackups int `json:"maxBackups,omitempty"`
}

// Stores are the stores of an EtcdBackup and an EtcdRestore, of which one is set.
type Stores struct {
	// +optional
	S3 *S3 `json:"s3,omitempty"`
	// +optional
	ABS *ABS `json:"abs,omitempty"`
	// +optional
	GCS *GCS `json:"gcs,omitempty"`
	// +optional
	OSS *OSS `json:"oss,omitempty"`
}

// S3 is a place in Amazon's S3, or in a store that understands its requests.
type S3 struct {
	// path is the bucket, a slash, and the key.
	Path string `json:"path"`
	// awsSecret is the Secret with the files credentials and config, whose profile is default.
	// +optional
	AWSSecret string `json:"awsSecret,omitempty"`
	// endpoint is the URL of the store; empty: Amazon's.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// +optional
	ForcePathStyle bool `json:"forcePathStyle,omitempty"`
}

// ABS is a place in Azure's Blob Storage.
type ABS struct {
	// path is the container, a slash, and the name of the blob.
	Path string `json:"path"`
	// absSecret is the Secret with storage-account, storage-key and, if it is not AzurePublicCloud, cloud.
	// +optional
	ABSSecret string `json:"absSecret,omitempty"`
}

// GCS is a place in Google's Cloud Storage.
type GCS struct {
	// path is the bucket, a slash, and the name of the object.
	Path string `json:"path"`
	// gcpSecret is the Secret with access-token or credentials.json; empty: the default credentials.
	// +optional
	GCPSecret string `json:"gcpSecret,omitempty"`
}

// OSS is a place in Alibaba's Object Storage Service.
type OSS struct {
	// path is the bucket, a slash, and the key.
	Path string `json:"path"`
	// ossSecret is the Secret with accessKeyID and accessKeySecret.
	// +optional
	OSSSecret string `json:"ossSecret,omitempty"`
	// endpoint is the URL of the store; empty: http://oss-cn-hangzhou.aliyuncs.com.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
}

// BackupStatus is the status of an EtcdBackup.
type BackupStatus struct {
	// +optional
	Succeeded bool `json:"succeeded"`
	// Reason is why the last backup failed.
	// +optional
	Reason string `json:"Reason,omitempty"`
	// etcdVersion is the version of the member that was backed up.
	// +optional
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// etcdRevision is the revision of the last backup.
	// +optional
	EtcdRevision int64 `json:"etcdRevision,omitempty"`
	// lastSuccessDate is when the last backup was taken.
	// +optional
	LastSuccessDate *metav1.Time `json:"lastSuccessDate,omitempty"`
}

// EtcdRestore restores an EtcdCluster from a snapshot (restore_types.go).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Succeeded",type=boolean,JSONPath=`.status.succeeded`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EtcdRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RestoreSpec `json:"spec"`
	// +optional
	Status RestoreStatus `json:"status,omitzero"`
}

// EtcdRestoreList is a list of EtcdRestores.
//
// +kubebuilder:object:root=true
type EtcdRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdRestore `json:"items"`
}

// RestoreSpec is the spec of an EtcdRestore.
type RestoreSpec struct {
	// backupStorageType selects one of the stores: S3, ABS, GCS or OSS.
	BackupStorageType string `json:"backupStorageType"`
	// etcdCluster is the EtcdCluster of this namespace to restore.
	EtcdCluster ClusterName `json:"etcdCluster"`

	Stores `json:",inline"`
}

// ClusterName names an EtcdCluster.
type ClusterName struct {
	Name string `json:"name"`
}

// RestoreStatus is the status of an EtcdRestore.
type RestoreStatus struct {
	// succeeded is true once all members serve the restored data.
	// +optional
	Succeeded bool `json:"succeeded"`
	// reason explains a failure or a delay; empty after a success.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// EtcdCluster is an etcd cluster that coreos' operator ran (cluster.go).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=etcd
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSpec `json:"spec"`
	// +optional
	Status *ClusterStatus `json:"status,omitempty"`
}

// EtcdClusterList is a list of EtcdClusters.
//
// +kubebuilder:object:root=true
type EtcdClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdCluster `json:"items"`
}

// ClusterSpec is the spec of an EtcdCluster.
type ClusterSpec struct {
	// size is the number of members, 1 to 7.
	Size int `json:"size"`
	// repository is the name of the image; empty: quay.io/coreos/etcd.
	// +optional
	Repository string `json:"repository,omitempty"`
	// version is the version of etcd, and with a v before it the tag of the image; empty: 3.2.13.
	// +optional
	Version string `json:"version,omitempty"`
	// paused makes their operator leave the members as they are.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// pod is the policy of the members' pods.
	// +optional
	Pod *PodPolicy `json:"pod,omitempty"`
	// TLS names the Secrets with the certificates.
	// +optional
	TLS *TLSPolicy `json:"TLS,omitempty"`
}

// PodPolicy is the policy of the pods of an EtcdCluster.
type PodPolicy struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// antiAffinity places each member on a node of its own. It has no effect with affinity.
	// +optional
	AntiAffinity bool `json:"antiAffinity,omitempty"`
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// +optional
	EtcdEnv []corev1.EnvVar `json:"etcdEnv,omitempty"`
	// persistentVolumeClaimSpec is the claim of each member; without it the members have no volumes.
	// +optional
	PersistentVolumeClaimSpec *corev1.PersistentVolumeClaimSpec `json:"persistentVolumeClaimSpec,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	BusyboxImage string `json:"busyboxImage,omitempty"`
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// +optional
	DNSTimeoutInSecond int64 `json:"DNSTimeoutInSecond,omitempty"`
	// ClusterDomain follows svc in the names of the members.
	// +optional
	ClusterDomain string `json:"ClusterDomain,omitempty"`
}

// TLSPolicy names the Secrets with the certificates of an EtcdCluster.
type TLSPolicy struct {
	// +optional
	Static *StaticTLS `json:"static,omitempty"`
}

// StaticTLS names Secrets that exist.
type StaticTLS struct {
	// +optional
	Member *MemberSecrets `json:"member,omitempty"`
	// operatorSecret has a client's certificate: etcd-client.crt, etcd-client.key and etcd-client-ca.crt.
	// +optional
	OperatorSecret string `json:"operatorSecret,omitempty"`
}

// MemberSecrets are the Secrets with the certificates of the members. "": no TLS there.
type MemberSecrets struct {
	// peerSecret has peer.crt, peer.key and peer-ca.crt.
	// +optional
	PeerSecret string `json:"peerSecret,omitempty"`
	// serverSecret has server.crt, server.key and server-ca.crt.
	// +optional
	ServerSecret string `json:"serverSecret,omitempty"`
}

// ClusterStatus is the status that their operator has written last.
type ClusterStatus struct {
	// +optional
	Phase string `json:"phase,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	ControlPaused bool `json:"controlPaused,omitempty"`
	// +optional
	Conditions []ClusterCondition `json:"conditions,omitempty"`
	// +optional
	Size int `json:"size,omitempty"`
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// +optional
	ClientPort int `json:"clientPort,omitempty"`
	// +optional
	Members MemberNames `json:"members,omitzero"`
	// +optional
	CurrentVersion string `json:"currentVersion,omitempty"`
	// +optional
	TargetVersion string `json:"targetVersion,omitempty"`
}

// ClusterCondition is a condition of an EtcdCluster: Available, Recovering, Scaling or Upgrading.
type ClusterCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	// +optional
	LastUpdateTime string `json:"lastUpdateTime,omitempty"`
	// +optional
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// MemberNames are the names of members.
type MemberNames struct {
	// +optional
	Ready []string `json:"ready,omitempty"`
	// +optional
	Unready []string `json:"unready,omitempty"`
}
