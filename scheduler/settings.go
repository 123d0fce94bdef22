package scheduler

import (
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// ClusterConfig returns e as package cluster takes it.
func ClusterConfig(e spec.Etcd) cluster.Config {
	return cluster.Config{
		Endpoints: e.Endpoints, CACert: e.CACert, Cert: e.Cert, Key: e.Key, InsecureSkipVerify: e.InsecureSkipVerify,
		User: e.User, Password: e.Password, DialTimeout: e.DialTimeout, CommandTimeout: e.CommandTimeout,
	}
}

// BackupRequest returns b as package backup takes it. A store that hangs ends the backup: other clusters wait for its slot.
func BackupRequest(b spec.Backup, version string) backup.Request {
	r := backup.Request{
		From: b.From, NoHash: b.NoHash, HashMax: b.HashMax, CompareMembers: b.CompareMembers, To: b.To, MaxStream: b.MaxStream,
		Spool: b.Spool, Plain: b.Plain, Labels: b.Labels, Version: version, Require: backup.Require(b.Require), Grace: b.Grace,
	}
	r.Patience = r.DefaultPatience()
	return r
}
