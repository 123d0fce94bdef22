// Package condition names what can be wrong with a cluster's backups, and says what to do about each.
package condition

import "time"

// Severity is how soon somebody should look.
type Severity string

// The severities, the worst first.
const (
	Critical Severity = "critical" // if the cluster is lost now, more is lost than was agreed; or nothing would tell
	Warning  Severity = "warning"  // it will become critical, or it is a promise that is not kept
)

// Condition is something that is wrong, as long as it is.
type Condition struct {
	Name       Name      `json:"name"`
	Severity   Severity  `json:"severity"`
	Cluster    string    `json:"cluster"`
	Repository string    `json:"repository,omitempty"` // "": the cluster itself
	Since      time.Time `json:"since"`                // when this service first saw it
	Message    string    `json:"message"`              // what is wrong, with its figures
	Cure       string    `json:"cure"`                 // what to do
}

// Name is a condition's: a word for alerts, and for its runbook page.
type Name string

// The conditions.
const (
	NoBackup           Name = "NoBackup"           // no backup is worth anything
	BackupLate         Name = "BackupLate"         // the last good backup is older than the schedule says, or the schedule stopped
	BackupFailing      Name = "BackupFailing"      // the last tries have failed
	BackupShrunk       Name = "BackupShrunk"       // the newest is far smaller, or has far fewer keys, than those before
	BackupDamaged      Name = "BackupDamaged"      // some that are kept, or objects of the log, cannot be used
	NeverProven        Name = "NeverProven"        // nothing was verified for too long
	NeverDecrypted     Name = "NeverDecrypted"     // no key has been shown to open any that is kept
	DrillFailed        Name = "DrillFailed"        // the last drill failed
	DrillNotRun        Name = "DrillNotRun"        // the last drill could not run, or none came in time
	RepositoryAway     Name = "RepositoryAway"     // the repository does not tell
	RetentionFailing   Name = "RetentionFailing"   // old backups stay
	NotEncrypted       Name = "NotEncrypted"       // whoever reads the bucket reads every Secret
	NotSigned          Name = "NotSigned"          // nobody can tell who wrote the backups
	NotLocked          Name = "NotLocked"          // whoever may delete can delete all backups
	LogGap             Name = "LogGap"             // no good backup has come after a gap
	LogLagging         Name = "LogLagging"         // what is not stored of the log grows
	LogStopped         Name = "LogStopped"         // a log that was archived is not any more
	PurgeHeadroomShort Name = "PurgeHeadroomShort" // etcd will soon purge, or compact, what is not stored
	SpoolFilling       Name = "SpoolFilling"       // the spool will soon be full
	ClusterChanged     Name = "ClusterChanged"     // the newest backups are of another cluster, or one that began anew, without a restore by dr
	MembersDiverged    Name = "MembersDiverged"    // members have different key spaces at one revision, or an alarm says so
	NoQuorum           Name = "NoQuorum"           // the cluster cannot write
	MembersAway        Name = "MembersAway"        // members do not answer
	AlarmRaised        Name = "AlarmRaised"        // NOSPACE
	CertificateExpires Name = "CertificateExpires" // a certificate ends soon, or has ended
	ClocksApart        Name = "ClocksApart"        // backups come from the future
	ConfigRefused      Name = "ConfigRefused"      // what the configuration says of the cluster cannot be used
)

// Names are all conditions, those first that a person should read first.
var Names = []Name{
	NoBackup, BackupLate, ConfigRefused, ClusterChanged, DrillFailed, MembersDiverged, NoQuorum, RepositoryAway, LogGap, LogStopped, LogLagging, PurgeHeadroomShort,
	SpoolFilling, BackupFailing, BackupDamaged, BackupShrunk, ClocksApart, MembersAway, AlarmRaised, CertificateExpires, DrillNotRun,
	NeverProven, NeverDecrypted, RetentionFailing, NotEncrypted, NotSigned, NotLocked,
}
