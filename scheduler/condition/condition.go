// Package condition derives from facts which conditions hold for a cluster and its backups, how severe they are, and their
// remedies. It is pure: Judge is the only decision, and Record keeps conditions over time.
package condition

import "time"

// Severity is the urgency of a condition.
type Severity string

// The severities, worst first.
const (
	Critical Severity = "critical" // if the cluster were lost now, more data would be lost than was agreed, or no alarm would be raised
	Warning  Severity = "warning"  // it will become critical, or a promise is not kept
)

// Condition is a fault of a cluster or its backups, while it lasts.
type Condition struct {
	Name       Name      `json:"name"` // docs/conditions.md has all
	Severity   Severity  `json:"severity"`
	Cluster    string    `json:"cluster"`
	Repository string    `json:"repository,omitempty"` // "": the cluster itself
	Since      time.Time `json:"since"`                // when the reporting process first found it
	Message    string    `json:"message"`              // the fault, with figures
	Cure       string    `json:"cure"`                 // the remedy
}

// Name is the name of a condition, of its alert and of its runbook.
type Name string

// The conditions.
const (
	NoBackup           Name = "NoBackup"           // there is no good backup
	BackupLate         Name = "BackupLate"         // the last good backup is older than the schedule allows
	BackupFailing      Name = "BackupFailing"      // the last tries failed
	BackupShrunk       Name = "BackupShrunk"       // the newest is far smaller, or has far fewer keys, than those before
	BackupDamaged      Name = "BackupDamaged"      // kept backups, or objects of the log, cannot be used
	NeverProven        Name = "NeverProven"        // no backup was verified for too long
	NeverDecrypted     Name = "NeverDecrypted"     // no key was proven to open a kept backup
	DrillFailed        Name = "DrillFailed"        // the last drill failed
	DrillNotRun        Name = "DrillNotRun"        // the last drill could not run, or was late
	RepositoryAway     Name = "RepositoryAway"     // the repository cannot be read
	RetentionFailing   Name = "RetentionFailing"   // pruning fails
	NotEncrypted       Name = "NotEncrypted"       // readers of the bucket can read every Secret
	NotSigned          Name = "NotSigned"          // the writer of backups cannot be verified
	NotLocked          Name = "NotLocked"          // an account that may delete can delete all backups
	LogGap             Name = "LogGap"             // the log has a gap after the newest good backup
	LogLagging         Name = "LogLagging"         // the part of the log that is not stored grows
	LogStopped         Name = "LogStopped"         // a log is no longer archived
	SpoolFilling       Name = "SpoolFilling"       // the spool will soon be full
	ClusterChanged     Name = "ClusterChanged"     // the newest backups are of another history, and no restore by dr began it
	MembersDiverged    Name = "MembersDiverged"    // members' key spaces differ at one revision, or an alarm reports so
	NoQuorum           Name = "NoQuorum"           // the cluster cannot write
	MembersAway        Name = "MembersAway"        // members do not answer
	AlarmRaised        Name = "AlarmRaised"        // a member has raised an alarm such as NOSPACE, or its database nears the quota
	CertificateExpires Name = "CertificateExpires" // a certificate expires soon, or has expired
	ClocksApart        Name = "ClocksApart"        // a backup or the log seems to be from the future
	ConfigRefused      Name = "ConfigRefused"      // the cluster's configuration has a fault
)

// Names lists all conditions, the most important first.
var Names = []Name{
	NoBackup, BackupLate, ConfigRefused, ClusterChanged, DrillFailed, MembersDiverged, NoQuorum, RepositoryAway, LogGap, LogStopped, LogLagging,
	SpoolFilling, BackupFailing, BackupDamaged, BackupShrunk, ClocksApart, MembersAway, AlarmRaised, CertificateExpires, DrillNotRun,
	NeverProven, NeverDecrypted, RetentionFailing, NotEncrypted, NotSigned, NotLocked,
}
