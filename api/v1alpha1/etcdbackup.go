package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdBackup backs up one etcd cluster: on a schedule, when much has changed, or, without both, once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=edb,categories=etcd
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.cluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Last",type=string,JSONPath=`.status.last.id`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.status.last.time`
// +kubebuilder:printcolumn:name="Proof",type=string,JSONPath=`.status.last.proof`
// +kubebuilder:printcolumn:name="RPO",type=date,JSONPath=`.status.recoveryPoint`
// +kubebuilder:printcolumn:name="Window",type=date,JSONPath=`.status.window.from.time`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.next`
// +kubebuilder:printcolumn:name="Protected",type=string,JSONPath=`.status.conditions[?(@.type=="Protected")].status`
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec EtcdBackupSpec `json:"spec"`
	// +optional
	Status EtcdBackupStatus `json:"status,omitempty"`
}

// EtcdBackupList is a list of EtcdBackups.
//
// +kubebuilder:object:root=true
type EtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdBackup `json:"items"`
}

// EtcdBackupSpec is the desired backup. Without schedule and triggers, one backup is taken, and the spec cannot change.
//
// +kubebuilder:validation:XValidation:rule="has(self.like) != has(self.source)",message="set source, the cluster to back up, or like, the EtcdBackup whose cluster is backed up once more; not both"
// +kubebuilder:validation:XValidation:rule="!has(self.like) || !(has(self.cluster) || has(self.repositories) || has(self.recipients) || has(self.recipientsSecret) || has(self.unencrypted) || has(self.schedule) || has(self.triggers) || has(self.retention) || has(self.archive) || has(self.drill) || has(self.suspend) || has(self.timeout) || has(self.labels))",message="like takes one backup with the settings of another EtcdBackup: remove all other fields"
// +kubebuilder:validation:XValidation:rule="has(self.like) || has(self.repositories)",message="repositories is missing: name at least one place for the backups"
// +kubebuilder:validation:XValidation:rule="has(self.like) || [has(self.recipients), has(self.recipientsSecret), has(self.unencrypted)].exists_one(x, x)",message="set one of recipients, recipientsSecret, and unencrypted: true; a backup contains every secret of the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.suspend) || has(self.schedule) || has(self.triggers)",message="suspend needs a schedule or triggers: a backup that is taken once can be deleted"
// +kubebuilder:validation:XValidation:rule="!has(self.archive) || has(self.schedule) || has(self.triggers)",message="archive needs a schedule or triggers: the log restores nothing without backups to continue from"
// +kubebuilder:validation:XValidation:rule="!has(self.drill) || has(self.schedule) || has(self.triggers)",message="drill needs a schedule or triggers: to drill a backup that is taken once, run dr drill"
// +kubebuilder:validation:XValidation:rule="!has(self.drill) || !has(self.repositories) || self.repositories.all(r, has(r.credentialsSecret))",message="drill needs a credentialsSecret in each repository: its Jobs cannot use the operator's own identity"
// +kubebuilder:validation:XValidation:rule="!has(self.drill) || has(self.drill.identitySecret) || has(self.unencrypted)",message="drill needs identitySecret: without the identity that opens the backups, none can be restored"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.schedule) || has(oldSelf.triggers) || self == oldSelf",message="a backup that is taken once cannot change: create another EtcdBackup"
// +kubebuilder:validation:XValidation:rule="has(self.cluster) == has(oldSelf.cluster) && (!has(self.cluster) || self.cluster == oldSelf.cluster)",message="cluster cannot change: the backups are stored under this name"
type EtcdBackupSpec struct {
	// like is the name of an EtcdBackup of this namespace. One backup of its cluster is taken, with its settings, to its repositories.
	// Example: payments.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Like string `json:"like,omitempty"`

	// source is the etcd cluster to back up.
	// +optional
	Source *Source `json:"source,omitempty"`

	// cluster is the name under which the repositories hold the backups. It must be unique among all EtcdBackups of the operator.
	// Default: NAMESPACE.NAME of the EtcdBackup. A name with a dot must begin with the EtcdBackup's own namespace and a dot. Example:
	// payments.etcd.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	Cluster string `json:"cluster,omitempty"`

	// repositories are the places that each backup is stored in. A backup has succeeded once one of them contains it; the others get
	// their copies later.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	Repositories []Repository `json:"repositories,omitempty"`

	// recipients are the age public keys that can open the backups. Example: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=1024
	Recipients []string `json:"recipients,omitempty"`

	// recipientsSecret is the Secret whose key "recipients" has the age public keys that can open the backups, one in each line.
	// +optional
	RecipientsSecret *SecretName `json:"recipientsSecret,omitempty"`

	// unencrypted: true stores the backups without encryption: each reader of a repository can read every secret of the cluster.
	// +optional
	// +kubebuilder:validation:Enum=true
	Unencrypted bool `json:"unencrypted,omitempty"`

	// schedule sets the times of the backups.
	// +optional
	Schedule *Schedule `json:"schedule,omitempty"`

	// triggers take a backup when much has changed since the last one, in addition to the schedule.
	// +optional
	Triggers *Triggers `json:"triggers,omitempty"`

	// retention selects the backups to keep. Default: all of them.
	// +optional
	Retention *Retention `json:"retention,omitempty"`

	// archive stores the cluster's log between the backups in the first of the repositories, so that any revision or second can be restored.
	// It needs only the client port and, if authentication is enabled, a user with the role root.
	// +optional
	Archive *Archive `json:"archive,omitempty"`

	// drill practices restores: Jobs in this namespace, which restore into a temporary etcd, compare, and store the result as a proof.
	// +optional
	Drill *Drill `json:"drill,omitempty"`

	// suspend: true starts no job until it is removed. Running jobs end.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// timeout bounds each backup, prune, copy and drill, from its start to its end. Default: 6h. Example: 30m.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// labels are stored in each backup. Example: {"team": "payments"}.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Labels map[string]string `json:"labels,omitempty"`
}

// Duration is a period such as 30d or 1d12h: years of 365 days, weeks, days of 24 hours, hours, minutes and seconds.
//
// +kubebuilder:validation:Pattern=`^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$`
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=32
type Duration string

// Source is an etcd cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoints) != has(self.statefulSet)",message="set endpoints, the client URLs of members, or statefulSet, which runs them; not both"
type Source struct {
	// endpoints are client URLs of members. The other members are found by themselves. Example: https://etcd-0.etcd.payments.svc:2379.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^https?://[^/@?#]+$`
	// +kubebuilder:validation:items:MaxLength=512
	Endpoints []string `json:"endpoints,omitempty"`

	// statefulSet runs the members. The endpoints are its pods' names below its headless Service, with the container port named client,
	// or 2379, and https if tlsSecret is set.
	// +optional
	StatefulSet *StatefulSetName `json:"statefulSet,omitempty"`

	// tlsSecret is the Secret with the CA of the members and a client's certificate and key, under the keys of cert-manager (ca.crt,
	// tls.crt, tls.key), of coreos' operator (etcd-client-ca.crt, etcd-client.crt, etcd-client.key) or of bitnami's chart (ca.crt, cert.pem,
	// key.pem).
	// +optional
	TLSSecret *SecretName `json:"tlsSecret,omitempty"`

	// authSecret is the Secret with an etcd user's name and password.
	// +optional
	AuthSecret *AuthSecret `json:"authSecret,omitempty"`
}

// StatefulSetName names a StatefulSet of the namespace.
type StatefulSetName struct {
	// name of a StatefulSet of this namespace. Example: etcd.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// SecretName names a Secret of the namespace.
type SecretName struct {
	// name of a Secret of this namespace. Example: etcd-client.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// AuthSecret names a Secret with a user's name and password.
type AuthSecret struct {
	// name of a Secret of this namespace, in the form of kubernetes.io/basic-auth. Example: etcd-root.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// userKey is the key of the user's name; without such a key the user is root. Default: username.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	UserKey string `json:"userKey,omitempty"`

	// passwordKey is the key of the password. Default: password. Example: etcd-root-password.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PasswordKey string `json:"passwordKey,omitempty"`
}

// Repository is a place for backups.
//
// +kubebuilder:validation:XValidation:rule="!has(self.trust) || has(self.signKeySecret)",message="trust needs signKeySecret: nothing that is written would be trusted"
// +kubebuilder:validation:XValidation:rule="!has(self.caSecret) || has(self.credentialsSecret)",message="caSecret needs credentialsSecret: the operator's own identity trusts no CA of a namespace"
type Repository struct {
	// name of the repository in messages and in the status. Example: main.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// url of a bucket and a prefix in it. Examples: s3://backups/etcd?region=eu-central-1, gs://backups/etcd, azblob://backups/etcd.
	// +required
	// +kubebuilder:validation:Pattern=`^(s3|gs|azblob)://`
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url"`

	// credentialsSecret is the Secret with the store's credentials, under the keys of AWS, coreos' operator, MinIO, Google Cloud or Azure. It
	// may be absent if the administrator of the operator allows its own identity for the url (--ambient-prefix).
	// +optional
	CredentialsSecret *SecretName `json:"credentialsSecret,omitempty"`

	// caSecret is the Secret with the CA of the store's certificate, which is trusted in addition to the public ones. Default: none.
	// +optional
	CASecret *CASecret `json:"caSecret,omitempty"`

	// limit is the most bytes a second that are sent to the store, and the most that are read from it, at least 64Ki. It needs an operator
	// with --spool-dir, where a backup waits for the store. Default: none. Example: 20Mi.
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`

	// lock makes the store refuse to delete or overwrite the objects of new backups for a while. The bucket must have been created with
	// locks. It needs credentialsSecret. Default: none. Example: {"for": "30d"}.
	// +optional
	Lock *Lock `json:"lock,omitempty"`

	// signKeySecret is the Secret with the minisign secret key, without a password, that signs all that is stored here, as
	// dr keygen --signing writes it. Default: nothing is signed.
	// +optional
	SignKeySecret *SignKeySecret `json:"signKeySecret,omitempty"`

	// trust lists minisign public keys. Backups and logs here that none of them has signed are ignored. The list must include the public
	// key of signKeySecret. Default: that key alone. Example: RWTcbWNxUzHn+5LXIXGJHIDeqmmR1XaQPkE9Ru1GDJ0LVGhHYRXcbGQ3.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^RW[A-Za-z0-9+/]{54}$`
	// +kubebuilder:validation:items:MaxLength=56
	Trust []string `json:"trust,omitempty"`
}

// CASecret names a Secret with the CA of a store.
type CASecret struct {
	// name of a Secret of this namespace. Example: minio-ca.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// key is the key of the Secret that has the certificates in PEM. Default: ca.crt. Example: public.crt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// SignKeySecret names a Secret with a key that signs.
type SignKeySecret struct {
	// name of a Secret of this namespace. Example: backups-sign.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// key is the key of the Secret that has the minisign secret key. Default: sign.key. Example: main.key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Lock is how long a store refuses to delete and overwrite new objects.
type Lock struct {
	// for is the time of the lock, from the storing of each object on, above 0s. Example: 30d.
	// +required
	For Duration `json:"for"`

	// mode is governance, in which a special permission can lift the lock, or compliance, in which nothing can. Default: governance.
	// +optional
	// +kubebuilder:validation:Enum=governance;compliance
	Mode string `json:"mode,omitempty"`
}

// Schedule sets the times of backups or drills.
type Schedule struct {
	// cron has the five fields minute, hour, day of month, month and day of week, or is @hourly, @daily, @weekly, @monthly or @yearly, or
	// @every with a duration. Example: 0 */6 * * *.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Cron string `json:"cron"`

	// timeZone is a name of the tz database. Default: UTC. Example: Europe/Berlin.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// jitter is the most by which each backup or drill is delayed, so that many clusters do not start at once. The delay of a cluster is always the
	// same. Default: none. Example: 10m.
	// +optional
	Jitter Duration `json:"jitter,omitempty"`
}

// Triggers take a backup when much has changed since the last one.
//
// +kubebuilder:validation:XValidation:rule="has(self.revisions)",message="set revisions: the number of revisions after which a backup is taken"
type Triggers struct {
	// revisions since the last backup after which the next is taken. Example: 100000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revisions int64 `json:"revisions,omitempty"`

	// every is the time between two checks. Default: 5m.
	// +optional
	Every Duration `json:"every,omitempty"`
}

// Retention selects the backups to keep: each that one of its rules selects. The newest good backup is always kept.
//
// +kubebuilder:validation:MinProperties=1
type Retention struct {
	// last keeps the newest backups. Example: 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Last int `json:"last,omitempty"`
	// hourly keeps one backup for each of the last hours that have one. Example: 24.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Hourly int `json:"hourly,omitempty"`
	// daily keeps one backup for each of the last days that have one. Example: 14.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Daily int `json:"daily,omitempty"`
	// weekly keeps one backup for each of the last weeks that have one. Example: 8.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Weekly int `json:"weekly,omitempty"`
	// monthly keeps one backup for each of the last months that have one. Example: 12.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Monthly int `json:"monthly,omitempty"`
	// yearly keeps one backup for each of the last years that have one. Example: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Yearly int `json:"yearly,omitempty"`
	// within keeps all backups of this last period. Example: 48h.
	// +optional
	Within Duration `json:"within,omitempty"`
	// window is how far back any point in time can be restored from the archived log. It keeps the log and all backups of that period, and the
	// newest backup before it. Default: the log is kept from the oldest kept backup on. Example: 14d.
	// +optional
	Window Duration `json:"window,omitempty"`
	// maxSize is the most bytes that all backups and the log may take; above it the oldest go first. Example: 100Gi.
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
}

// Archive stores the cluster's log between the backups.
type Archive struct {
	// flush is the longest time that a change waits before it is stored, at least 1s. Each flush with changes in it is one object in the
	// repository. Default: 2s. Example: 10s.
	// +optional
	Flush Duration `json:"flush,omitempty"`
}

// Drill practices restores. Each drill is a Job, which restores the newest backup and, if the log is archived, a random point of it.
type Drill struct {
	// schedule sets the times of the drills. Example: {"cron": "0 3 * * 0"}.
	// +required
	Schedule Schedule `json:"schedule"`

	// identitySecret is the Secret with the age identity that opens the backups. Only the Jobs mount it; the operator does not read it.
	// Default: none, which only unencrypted backups allow.
	// +optional
	IdentitySecret *IdentitySecret `json:"identitySecret,omitempty"`

	// repository is the name of the one of repositories from which the backups are restored. Default: the first. Example: main.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Repository string `json:"repository,omitempty"`

	// assert lists expectations of the restored data: key=KEY, or prefix=PREFIX:N for at least N keys. A drill fails if one does not hold.
	// Default: none. Example: ["prefix=/registry/pods/:100"].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Assert []string `json:"assert,omitempty"`

	// memory is the memory in bytes that the Job requests and may use, at least 128Mi. It depends on the number of keys rather than on the
	// size of the database. Default: 1Gi. Example: 4Gi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`

	// scratch is the most bytes that the Job's temporary volume may take, an emptyDir, which holds a copy of the database and what is
	// downloaded for it: three times the size of the database is enough. Default: 8Gi. Example: 24Gi.
	// +optional
	Scratch *resource.Quantity `json:"scratch,omitempty"`
}

// IdentitySecret names a Secret with an age identity.
type IdentitySecret struct {
	// name of a Secret of this namespace. Example: backups-identity.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// key is the key of the Secret that has the identity. Default: key.txt. Example: identity.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Phase is the state of an EtcdBackup that takes one backup. An ended phase never changes.
//
// +kubebuilder:validation:Enum=Pending;Running;Completed;Failed
type Phase string

// The phases.
const (
	PhasePending   Phase = "Pending"   // the backup waits for its turn, or for a cure of the last failure
	PhaseRunning   Phase = "Running"   // the backup is taken
	PhaseCompleted Phase = "Completed" // a repository contains the backup
	PhaseFailed    Phase = "Failed"    // the backup was tried, and will not be tried again
)

// The types of conditions.
const (
	// ConditionAccepted is True if the settings are in effect, and False with the field and its fault if they are not. The last valid
	// settings then stay in effect until the operator is started again.
	ConditionAccepted = "Accepted"
	// ConditionProtected is True if a backup is there that is as new as the schedule promises, and nothing critical stands against it.
	ConditionProtected = "Protected"
	// ConditionProven is True if a backup was verified or restored lately, and False with the reason if that failed or is late.
	ConditionProven = "Proven"
)

// EtcdBackupStatus is the observed state. It is derived from the repositories: a new operator shows the same but for the recent jobs.
type EtcdBackupStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// cluster is the name under which the repositories hold the backups.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// phase of a backup that is taken once.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// message explains the phase: why the backup failed, or waits for what.
	// +optional
	Message string `json:"message,omitempty"`
	// last is the newest backup or, of a backup that is taken once, that one.
	// +optional
	Last *BackupStatus `json:"last,omitempty"`
	// next is when the next backup is due.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`
	// nextDrill is when the next drill is due or tried again.
	// +optional
	NextDrill *metav1.Time `json:"nextDrill,omitempty"`
	// recoveryPoint is the newest moment that a repository contains: the time since then is the RPO, the writes that a loss of the cluster
	// would cost now. It is cut to the minute.
	// +optional
	RecoveryPoint *metav1.Time `json:"recoveryPoint,omitempty"`
	// window is the newest part of the archived log that follows a backup without a gap: any point in it can be restored. It is as of the
	// last survey of the repositories, which follows each job and is repeated every ten minutes.
	// +optional
	Window *Window `json:"window,omitempty"`
	// recent lists the jobs of the operator that writes the status: for each kind and repository the running one, and the last one that
	// ended, the newest first.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	Recent []JobStatus `json:"recent,omitempty"`
	// repositories lists the content of each repository.
	// +optional
	// +listType=map
	// +listMapKey=name
	Repositories []RepositoryStatus `json:"repositories,omitempty"`
	// findings are faults that need attention, the worst first. Each has a runbook of its name.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Findings []Finding `json:"findings,omitempty"`
	// conditions are Accepted, Protected and Proven.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BackupStatus is one backup.
type BackupStatus struct {
	// id of the backup in the repositories, for dr fetch and dr restore.
	ID string `json:"id"`
	// revision of the etcd cluster that the backup contains.
	Revision int64 `json:"revision"`
	// time at which the backup began.
	Time metav1.Time `json:"time"`
	// size of the database in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// proof is how far the backup was proven: stored, hashed, opened or booted.
	// +optional
	Proof string `json:"proof,omitempty"`
}

// Window is a part of the archived log.
type Window struct {
	// from is the first point that can be restored.
	From Point `json:"from"`
	// to is the last point that can be restored.
	To Point `json:"to"`
}

// Point is a point in the history of the etcd cluster.
type Point struct {
	// revision of the etcd cluster there; if unknown, a lower bound.
	Revision int64 `json:"revision"`
	// time at which the etcd cluster was there; absent: unknown.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// JobStatus is a job that runs or has ended.
type JobStatus struct {
	// job is the kind of work: backup, prune, drill, or copy of backups that a repository lacks.
	Job string `json:"job"`
	// repository of the job; absent for a backup, which goes into all.
	// +optional
	Repository string `json:"repository,omitempty"`
	// began is when the job began.
	Began metav1.Time `json:"began"`
	// ended is when the job ended; absent: it runs.
	// +optional
	Ended *metav1.Time `json:"ended,omitempty"`
	// verdict is succeeded, failed or not run; absent: the job runs.
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// message is why the job failed or was not run.
	// +optional
	Message string `json:"message,omitempty"`
}

// Finding is a fault that needs attention.
type Finding struct {
	// name of the fault, and of its runbook. Example: BackupLate.
	Name string `json:"name"`
	// severity is critical if a loss of the cluster now would lose more than was agreed, or would raise no alert; else warning.
	Severity string `json:"severity"`
	// repository that has the fault; absent: it is the cluster's.
	// +optional
	Repository string `json:"repository,omitempty"`
	// since is when the operator first found the fault.
	Since metav1.Time `json:"since"`
	// message describes the fault.
	Message string `json:"message"`
	// cure is the remedy.
	Cure string `json:"cure"`
}

// RepositoryStatus is the content of a repository for this cluster.
type RepositoryStatus struct {
	// name of the repository in the spec.
	Name string `json:"name"`
	// backups is the number of backups.
	Backups int `json:"backups"`
	// bytes that the backups take.
	Bytes int64 `json:"bytes"`
	// problem is why the repository cannot be read now; the numbers are then older.
	// +optional
	Problem string `json:"problem,omitempty"`
}
