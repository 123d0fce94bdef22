package config

import (
	"cmp"
	"os"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// repository returns part as a declaration, with the keys that it names.
func (i in) repository(part repositoryPart) declared.Repository {
	d := declared.Repository{
		URL: part.URL, CredentialsDir: part.CredentialsDir, Lock: declared.Lock{For: time.Duration(part.Lock.For), Mode: part.Lock.Mode}, Parallel: part.Parallel,
		Limit: int64(part.Limit), Retention: part.Retention.declared(),
	}
	if part.SignKeyFile != "" {
		d.SignKey = i.read(part.SignKeyFile, "signKeyFile")
	}
	for _, key := range part.Trust {
		d.Trust = append(d.Trust, i.trusted(key))
	}
	return d
}

// trusted returns the public key in the file called key, or key itself if there is no such file.
func (i in) trusted(key string) string {
	i.l.read.note(key)
	text, err := os.ReadFile(key)
	if err != nil {
		return key
	}
	return string(text)
}

// cluster returns part as a declaration, with the secrets that it names.
func (i in) cluster(part clusterPart) declared.Cluster {
	return declared.Cluster{
		Etcd: i.etcd(part.Etcd), Repositories: part.Repositories, Require: spec.Require(part.Require), Recipients: i.recipients(part),
		Passphrase: i.secret(part.PassphraseFile, part.PassphraseEnv, "passphrase"), Schedule: part.Schedule.declared(),
		Triggers: spec.Triggers{
			Revisions: part.Triggers.Revisions, Bytes: int64(part.Triggers.Bytes), Gap: part.Triggers.Gap, Every: time.Duration(part.Triggers.Every),
		},
		Retention: part.Retention.declared(), Backup: part.Backup.declared(),
		Archive: spec.Archive{Flush: time.Duration(part.Archive.Flush), Spool: part.Archive.Spool, SpoolMax: int64(part.Archive.SpoolMax)},
		Drill:   i.drill(part.Drill), Labels: part.Labels, Observe: time.Duration(part.Observe), Conditions: part.Conditions.limits(), Suspend: part.Suspend,
	}
}

// unreadable replaces a password that could not be read, which is a fault. It prevents a second fault for a missing password.
const unreadable = "unreadable"

func (i in) etcd(part etcdPart) spec.Etcd {
	e := spec.Etcd{
		Endpoints: part.Endpoints, CACert: part.CACert, Cert: part.Cert, Key: part.Key, InsecureSkipVerify: part.InsecureSkipTLSVerify,
		User: part.User, DialTimeout: time.Duration(part.DialTimeout), CommandTimeout: time.Duration(part.CommandTimeout),
	}
	e.Password = i.secret(part.PasswordFile, part.PasswordEnv, "etcd", "password")
	if part.PasswordFile != "" || part.PasswordEnv != "" {
		e.Password = cmp.Or(e.Password, unreadable)
	}
	return e
}

func (i in) recipients(part clusterPart) (texts []string) {
	texts = append(texts, part.Recipients...)
	if part.RecipientsFile != "" {
		texts = append(texts, i.read(part.RecipientsFile, "recipientsFile"))
	}
	return texts
}

func (i in) drill(part drillPart) declared.Drill {
	d := declared.Drill{
		Schedule: part.Schedule.declared(), Repository: part.Repository, Assert: part.Assert,
		Passphrase: i.secret(part.PassphraseFile, part.PassphraseEnv, "drill", "passphrase"), AllowPlain: part.AllowPlain,
		ScratchDir: part.ScratchDir, Memory: int64(part.MemoryLimit), Nice: part.Nice,
	}
	for _, path := range part.IdentityFiles {
		text := i.read(path, "drill", "identityFiles")
		if text != "" {
			d.Identities = append(d.Identities, text)
		}
	}
	return d
}

func (p schedulePart) declared() declared.Schedule {
	return declared.Schedule{Cron: p.Cron, Zone: p.Zone, Jitter: time.Duration(p.Jitter)}
}

func (p retentionPart) declared() declared.Retention {
	return declared.Retention{Zone: p.Zone, Policy: retention.Policy{
		Last: p.Last, Hourly: p.Hourly, Daily: p.Daily, Weekly: p.Weekly, Monthly: p.Monthly, Yearly: p.Yearly,
		Within: time.Duration(p.Within), Window: time.Duration(p.Window), MaxSize: int64(p.MaxSize), MinCopies: p.MinCopies,
	}}
}

func (p backupPart) declared() declared.Backup {
	return declared.Backup{
		From: p.From, NoHash: p.NoHash, HashMax: time.Duration(p.HashMax), CompareMembers: p.CompareMembers, MaxStream: time.Duration(p.MaxStream),
		Spool: p.Spool, Grace: time.Duration(p.Grace), Timeout: time.Duration(p.Timeout), Plain: p.Plain,
	}
}

func (p conditionsPart) limits() condition.Limits {
	l := condition.Limits{
		Failures: p.Failures, Shrunk: float64(p.Shrunk), Proven: time.Duration(p.Proven), DrillLate: time.Duration(p.DrillLate),
		Lag: time.Duration(p.Lag), Spool: float64(p.Spool), Certificate: time.Duration(p.Certificate),
	}
	for _, name := range p.Accept {
		l.Accept = append(l.Accept, condition.Name(name))
	}
	return l
}
