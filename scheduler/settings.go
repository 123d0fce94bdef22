package scheduler

import (
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// ClusterConfig converts e to the configuration of package cluster.
func ClusterConfig(e spec.Etcd) cluster.Config {
	return cluster.Config{
		Endpoints: e.Endpoints, CACert: e.CACert, Cert: e.Cert, Key: e.Key, PEM: cluster.PEM(e.PEM), InsecureSkipVerify: e.InsecureSkipVerify,
		User: e.User, Password: e.Password, DialTimeout: e.DialTimeout, CommandTimeout: e.CommandTimeout, Reach: e.Reach,
	}
}

// BackupSettings converts b to a request of package backup. A store that hangs makes the backup fail: other clusters wait for
// its slot.
func BackupSettings(b spec.Backup, version string) backup.Request {
	r := backup.Request{
		From: b.From, NoHash: b.NoHash, HashMax: b.HashMax, CompareMembers: b.CompareMembers, To: b.To, MaxStream: b.MaxStream,
		Spool: backup.Spool{Dir: b.Spool}, Plain: b.Plain, Labels: b.Labels, Version: version, Require: backup.Require(b.Require), Grace: b.Grace,
	}
	r.Patience = r.PatienceOrDefault()
	return r
}
