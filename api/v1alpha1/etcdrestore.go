package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdRestore restores an etcd cluster once, in the StatefulSet that runs it: from a backup, or to any point of the archived log. All
// members get the same data. The old data stays on their disks for a while, for the way back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=edr,categories=etcd
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.cluster`
// +kubebuilder:printcolumn:name="Into",type=string,JSONPath=`.spec.into.statefulSet.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.status.membersDone`
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.status.plan.backup`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.plan.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
type EtcdRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec EtcdRestoreSpec `json:"spec"`
	// +optional
	Status EtcdRestoreStatus `json:"status,omitempty"`
}

// EtcdRestoreList is a list of EtcdRestores.
//
// +kubebuilder:object:root=true
type EtcdRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdRestore `json:"items"`
}

// EtcdRestoreSpec is the desired restore. It is carried out once. Only suspend, rollback and access can change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || self.confirm == self.into.statefulSet.name",message="confirm must repeat the name in into.statefulSet, whose data is replaced"
// +kubebuilder:validation:XValidation:rule="!has(self.allowPlain) || has(self.identitySecret)",message="allowPlain needs identitySecret: without an identity, only backups without encryption can be restored anyway"
// +kubebuilder:validation:XValidation:rule="!has(self.best) || !has(self.target.backup)",message="best needs another target: a backup is restored as it is, or not at all"
// +kubebuilder:validation:XValidation:rule="!has(self.dryRun) || !has(self.rollback)",message="rollback needs a restore: a dry run changes nothing"
// +kubebuilder:validation:XValidation:rule="self.from == oldSelf.from && self.target == oldSelf.target && self.into == oldSelf.into && has(self.best) == has(oldSelf.best) && has(self.dryRun) == has(oldSelf.dryRun) && has(self.allowPlain) == has(oldSelf.allowPlain) && (!has(self.clone) || has(oldSelf.clone)) && has(self.identitySecret) == has(oldSelf.identitySecret) && (!has(self.identitySecret) || self.identitySecret == oldSelf.identitySecret) && has(self.confirm) == has(oldSelf.confirm) && (!has(self.confirm) || self.confirm == oldSelf.confirm) && has(self.bumpRevision) == has(oldSelf.bumpRevision) && (!has(self.bumpRevision) || self.bumpRevision == oldSelf.bumpRevision) && has(self.job) == has(oldSelf.job) && (!has(self.job) || self.job == oldSelf.job) && has(self.timeLimit) == has(oldSelf.timeLimit) && (!has(self.timeLimit) || self.timeLimit == oldSelf.timeLimit) && has(self.keepOld) == has(oldSelf.keepOld) && (!has(self.keepOld) || self.keepOld == oldSelf.keepOld)",message="a restore is carried out once and cannot change, except suspend, rollback and access, and that clone may be removed: create another EtcdRestore"
type EtcdRestoreSpec struct {
	// from is where the backups are.
	// +required
	From RestoreFrom `json:"from"`

	// target is the state to restore.
	// +required
	Target RestoreTarget `json:"target"`

	// best: true restores the nearest point before the target if the target cannot be reached. Otherwise the restore is then refused, and
	// the message names that point.
	// +optional
	// +kubebuilder:validation:Enum=true
	Best bool `json:"best,omitempty"`

	// identitySecret is the Secret with the age identity that opens the backups. Only the Jobs mount it; the operator does not read it.
	// Default: none, which only unencrypted backups allow.
	// +optional
	IdentitySecret *IdentitySecret `json:"identitySecret,omitempty"`

	// allowPlain: true accepts backups and logs without encryption although identitySecret is set. Each program that may write to the
	// repository could have stored them.
	// +optional
	// +kubebuilder:validation:Enum=true
	AllowPlain bool `json:"allowPlain,omitempty"`

	// into is the cluster that gets the data.
	// +required
	Into RestoreInto `json:"into"`

	// access is how the operator connects to the members, to check them after the restore. It can change. Default: the tlsSecret and the
	// authSecret of from.etcdBackup.
	// +optional
	Access *Access `json:"access,omitempty"`

	// confirm must be the name of into.statefulSet if any of its disks holds data, which the restore replaces. Example: etcd.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Confirm string `json:"confirm,omitempty"`

	// clone: true restores although a member of the cluster that was backed up answers elsewhere: it makes a copy of that cluster. Clients
	// must not confuse the two. It may be removed while the restore is suspended.
	// +optional
	// +kubebuilder:validation:Enum=true
	Clone bool `json:"clone,omitempty"`

	// bumpRevision is where revisions continue: auto, which is far above every revision that clients may have seen if the data is Kubernetes';
	// a number of revisions above the restored one; or 0 for right after it. Default: auto. Example: "1000000000".
	// +optional
	// +kubebuilder:validation:Pattern=`^(auto|[0-9]{1,18})$`
	// +kubebuilder:validation:MaxLength=18
	BumpRevision string `json:"bumpRevision,omitempty"`

	// dryRun: true plans the restore, writes the plan into the status, and ends. Nothing is changed.
	// +optional
	// +kubebuilder:validation:Enum=true
	DryRun bool `json:"dryRun,omitempty"`

	// job sets the resources of the Jobs, one for each member, that work on its disk.
	// +optional
	Job *RestoreJob `json:"job,omitempty"`

	// timeLimit is the longest time for which the members may be stopped before the new data is in place. After it the restore goes back to
	// the old data by itself, and then waits as long for a leader. Once the restored members are started, only rollback goes back. Default: 10m. Example: 30m.
	// +optional
	TimeLimit Duration `json:"timeLimit,omitempty"`

	// keepOld is how long the old data stays on the disks after the restore. Until then rollback can go back to it. Default: 72h.
	// Example: 7d.
	// +optional
	KeepOld Duration `json:"keepOld,omitempty"`

	// suspend: true stops no member: the restore builds the new data, and waits until suspend is removed. It has no effect once members
	// are stopped.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// rollback: true goes back to the old data, also after the restore has succeeded, until keepOld is over. Everything that was written to
	// the restored members is then lost. Before any member is stopped, it ends the restore.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
}

// RestoreFrom is a repository, and the name of a cluster in it.
//
// +kubebuilder:validation:XValidation:rule="has(self.etcdBackup) != has(self.repository)",message="set etcdBackup, which names the repository, or cluster and repository; not both"
// +kubebuilder:validation:XValidation:rule="has(self.cluster) == has(self.repository)",message="cluster and repository belong together: cluster is the name under which the repository holds the backups"
// +kubebuilder:validation:XValidation:rule="!has(self.repository) || has(self.repository.credentialsSecret)",message="repository needs a credentialsSecret: the Jobs cannot use the operator's own identity"
// +kubebuilder:validation:XValidation:rule="!has(self.repository) || !has(self.repository.lock)",message="repository.lock has no effect here: a restore stores no backup: remove it"
type RestoreFrom struct {
	// etcdBackup is the EtcdBackup that has taken the backups, or one with the same cluster and repositories.
	// +optional
	EtcdBackup *EtcdBackupName `json:"etcdBackup,omitempty"`

	// cluster is the name under which the repository holds the backups. Example: payments.etcd.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	Cluster string `json:"cluster,omitempty"`

	// repository holds the backups.
	// +optional
	Repository *Repository `json:"repository,omitempty"`
}

// EtcdBackupName names an EtcdBackup of the namespace, and one of its repositories.
type EtcdBackupName struct {
	// name of an EtcdBackup of this namespace. Example: etcd.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// repository is the name of the one of its repositories from which to restore. Default: the first, which also has the archived log.
	// Example: main.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Repository string `json:"repository,omitempty"`
}

// RestoreTarget is the state to restore.
//
// +kubebuilder:validation:XValidation:rule="[has(self.latest), has(self.backup), has(self.time), has(self.revision), has(self.beforeRevision)].exists_one(x, x)",message="set one of latest: {}, backup, time, revision and beforeRevision"
// +kubebuilder:validation:XValidation:rule="!has(self.lineage) || !has(self.backup)",message="lineage needs another target: a backup belongs to one history alone"
type RestoreTarget struct {
	// latest: {} is the newest point in the archived log or, without a log, the newest backup.
	// +optional
	Latest *Latest `json:"latest,omitempty"`

	// backup is the id of a backup, which is restored without the log. Example: 20261121T092433Z-0000000000001267.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Backup string `json:"backup,omitempty"`

	// time is a moment: the last state is restored that is known to be no later. Example: "2026-11-21T10:00:00Z".
	// +optional
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:MaxLength=64
	Time string `json:"time,omitempty"`

	// revision is the state right after the request that created this revision.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// beforeRevision is the state right before the request that created this revision, such as a delete.
	// +optional
	// +kubebuilder:validation:Minimum=2
	BeforeRevision int64 `json:"beforeRevision,omitempty"`

	// lineage is the history in which the target is, as dr list shows it. Default: the newest that contains the target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Lineage string `json:"lineage,omitempty"`
}

// Latest is the newest point. It has no fields.
type Latest struct{}

// RestoreInto is the cluster that gets the data.
type RestoreInto struct {
	// statefulSet runs the members. It must exist; it may have been scaled to 0, or have no pods and no volumes yet.
	// +required
	StatefulSet StatefulSetName `json:"statefulSet"`

	// members lists the members with their peer URLs, as etcd's --name and --initial-advertise-peer-urls have them. Default: those in the
	// arguments and the environment of the StatefulSet's container, else those of the backup.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Members []RestoreMember `json:"members,omitempty"`

	// container is the name of the container that runs etcd. Default: the only one, or the one called etcd.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`

	// dataDir is the path of etcd's data dir in the container. Default: that of its arguments and environment. Example: /var/lib/etcd.
	// +optional
	// +kubebuilder:validation:Pattern=`^/.*[^/]$`
	// +kubebuilder:validation:MaxLength=4096
	DataDir string `json:"dataDir,omitempty"`

	// walDir is the path of etcd's log in the container, if it is not in the data dir. Default: that of its arguments and environment.
	// +optional
	// +kubebuilder:validation:Pattern=`^/.*[^/]$`
	// +kubebuilder:validation:MaxLength=4096
	WALDir string `json:"walDir,omitempty"`
}

// RestoreMember is one member of the restored cluster.
type RestoreMember struct {
	// name of the member, as etcd's --name. Example: etcd-0.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// peerURLs of the member, as etcd's --initial-advertise-peer-urls. Example: [https://etcd-0.etcd.payments.svc.cluster.local:2380].
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Pattern=`^https?://[^/@?#,]+$`
	// +kubebuilder:validation:items:MaxLength=512
	PeerURLs []string `json:"peerURLs"`
}

// Access is how to connect to the members of a cluster.
type Access struct {
	// tlsSecret is the Secret with the CA of the members and a client's certificate and key, as an EtcdBackup's source names it.
	// +optional
	TLSSecret *SecretName `json:"tlsSecret,omitempty"`

	// authSecret is the Secret with the name and the password of an etcd user. After the restore the passwords are those of the restored
	// data.
	// +optional
	AuthSecret *AuthSecret `json:"authSecret,omitempty"`
}

// RestoreJob sets the resources of the Jobs.
type RestoreJob struct {
	// memory is the memory in bytes that each Job requests and may use, at least 128Mi. It depends on the number of keys rather than on
	// the size of the database. Default: 1Gi. Example: 4Gi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// RestorePhase is how far an EtcdRestore is.
//
// +kubebuilder:validation:Enum=Pending;Planning;Staging;Fencing;Sealing;Placing;Releasing;Verifying;RollingBack;Planned;Succeeded;Refused;Failed
type RestorePhase string

// RestorePending is the phase of an EtcdRestore that was not begun.
const RestorePending RestorePhase = "Pending"

// The types of an EtcdRestore's conditions.
const (
	// ConditionStaged is True while the new data is complete on all disks, or in use. With suspend, the restore waits there.
	ConditionStaged = "Staged"
	// ConditionComplete is True if the members serve the restored data, or if a dry run has made its plan.
	ConditionComplete = "Complete"
	// ConditionFailed is True if the restore was refused, or has gone back to the old data.
	ConditionFailed = "Failed"
)

// EtcdRestoreStatus is the observed state.
type EtcdRestoreStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// cluster is the name under which the repository holds the backups.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// phase is how far the restore is. Pending: it waits for its settings, or for another restore of the StatefulSet. Planning: it reads the
	// StatefulSet and the repository. Staging: Jobs build the new data on each disk, and the old members may serve. Fencing: the members are
	// stopped. Sealing: the old data is moved aside. Placing: the new data takes its place. Releasing: the members are started. Verifying: they
	// are compared with the plan and with each other. RollingBack: the old data is put back. It ends in Planned, a dry run; Succeeded;
	// Refused: no member was touched; or Failed: the old data is in place again, except for data that was lost.
	// +optional
	Phase RestorePhase `json:"phase,omitempty"`
	// message explains the phase: for what the restore waits, why it was refused, or why it has gone back.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the phase began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// plan is the way to the target.
	// +optional
	Plan *RestorePlan `json:"plan,omitempty"`
	// members lists the members, with their progress in this phase.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []RestoreMemberStatus `json:"members,omitempty"`
	// membersDone is how many of the members have completed the step. Example: 2/3.
	// +optional
	MembersDone string `json:"membersDone,omitempty"`
	// obstacles lists the damage that the restore has met in the repository, and has avoided by another plan.
	// +optional
	Obstacles []string `json:"obstacles,omitempty"`
	// outcome describes the restored cluster.
	// +optional
	Outcome *RestoreOutcome `json:"outcome,omitempty"`
	// oldData is the data that is kept on the disks next to the data in use.
	// +optional
	OldData *OldData `json:"oldData,omitempty"`
	// conditions are Staged, Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RestorePlan is the way to the target.
type RestorePlan struct {
	// id is a digest of the plan.
	ID string `json:"id"`
	// backup is the id of the backup with which the restore begins.
	// +optional
	Backup string `json:"backup,omitempty"`
	// segments is the number of stored pieces of the log that are replayed onto the backup; absent: none.
	// +optional
	Segments int `json:"segments,omitempty"`
	// revision of the etcd cluster that is restored; absent: it is known only after the restore.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// includes is a time: the restored data contains every write that was acknowledged by then. Absent: unknown.
	// +optional
	Includes *metav1.MicroTime `json:"includes,omitempty"`
	// excludes is a time: the restored data contains no write after it. Absent: unknown.
	// +optional
	Excludes *metav1.MicroTime `json:"excludes,omitempty"`
	// continues describes where the revisions of the restored cluster continue, and why.
	Continues string `json:"continues"`
	// token is the new cluster's initial-cluster-token.
	Token string `json:"token"`
	// initialCluster lists the members with their peer URLs, as etcd's --initial-cluster.
	InitialCluster string `json:"initialCluster"`
	// estimate is the duration that the restore of the data takes, roughly. Example: 41s.
	// +optional
	Estimate string `json:"estimate,omitempty"`
	// notes lists facts to know before the restore, such as the writes that are lost.
	// +optional
	Notes []string `json:"notes,omitempty"`
	// acts lists the changes of the StatefulSet and of its pods, in their order.
	// +optional
	Acts []string `json:"acts,omitempty"`
	// findings lists facts about the StatefulSet to know before the restore.
	// +optional
	Findings []string `json:"findings,omitempty"`
}

// RestoreMemberStatus is one member.
type RestoreMemberStatus struct {
	// name of the member.
	Name string `json:"name"`
	// node on which the member runs, or ran last.
	// +optional
	Node string `json:"node,omitempty"`
	// disk is the volume with the data dir, such as a PersistentVolumeClaim.
	// +optional
	Disk string `json:"disk,omitempty"`
	// done is true if the member has completed the step of this phase.
	// +optional
	Done bool `json:"done,omitempty"`
	// message is why the step is not done.
	// +optional
	Message string `json:"message,omitempty"`
}

// RestoreOutcome describes the restored cluster.
type RestoreOutcome struct {
	// clusterID of the restored cluster, in hex.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// revision at which the restored members began.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// keys is the number of keys that were restored.
	// +optional
	Keys int64 `json:"keys,omitempty"`
	// hashKV is the hash that all members reported at the revision hashRevision, in hex.
	// +optional
	HashKV string `json:"hashKV,omitempty"`
	// hashRevision is the revision of hashKV.
	// +optional
	HashRevision int64 `json:"hashRevision,omitempty"`
	// staging is the time that it took to build the new data, while the old members could serve. Example: 41s.
	// +optional
	Staging string `json:"staging,omitempty"`
	// downtime is the time from the first member's stop until all members were found to serve. Example: 12.4s.
	// +optional
	Downtime string `json:"downtime,omitempty"`
	// verifying is the time in which the members were compared with the plan and with each other, and observed for a while. Example: 33s.
	// +optional
	Verifying string `json:"verifying,omitempty"`
}

// OldData is the data on the disks that is not in use.
type OldData struct {
	// until is when it is removed.
	Until metav1.Time `json:"until"`
}
