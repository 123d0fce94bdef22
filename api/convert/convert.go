// Package convert turns the results of packages that do input and output, or link Kubernetes' types, into documents. These functions are not
// in package document, so that importers of document link neither etcd nor a store; package document itself converts the results of others.
package convert

import (
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/storage/copying"
)

// BackupResult returns the document of a backup, an import or a salvage.
func BackupResult(r backup.Result) document.BackupResult {
	d := document.BackupResult{Backup: document.NewBackup(r.Backup), Stores: []document.BackupStore{}}
	for _, o := range r.Stores {
		store := document.BackupStore{Repository: o.Repository, Stored: o.Err == nil}
		if o.Err != nil {
			store.Message = o.Err.Error()
		}
		d.Stores = append(d.Stores, store)
	}
	return d
}

// Copied returns the document of copying one cluster.
func Copied(cluster string, r copying.Result) document.CopiedCluster {
	d := document.CopiedCluster{
		Cluster: cluster, Backups: r.Backups, Segments: r.Segments, Assets: r.Assets, Objects: r.Objects, Bytes: r.Bytes,
		Present: r.Present, LeftOut: r.LeftOut, Faults: []document.NotCopied{},
	}
	for _, f := range r.Faults {
		d.Faults = append(d.Faults, document.NotCopied{Key: f.Key, Message: f.Err.Error()})
	}
	return d
}

// Restore returns the document of a restore.
func Restore(r restore.Result) document.Restore {
	d := document.Restore{
		PlanID: r.PlanID, Backup: r.Backup, File: r.File, Token: r.Token, ClusterID: r.ClusterID, Revision: r.Revision,
		BumpedTo: r.BumpedTo, Keys: r.Keys, HashKV: r.HashKV, Key: r.Key, Cleared: r.Cleared,
		Replayed: (*document.Replayed)(r.Replayed), Salvaged: (*document.Salvaged)(r.Salvaged),
	}
	for _, m := range r.Members {
		d.Members = append(d.Members, document.RestoredMember(m))
	}
	for _, p := range r.Phases {
		d.Phases = append(d.Phases, document.Phase(p))
	}
	return d
}

// Agent returns the document of an archiving agent's status.
func Agent(s archive.Status) document.Agent {
	return document.Agent{
		State: document.AgentState(s.State), Problem: s.Problem, Cluster: s.Cluster, Source: s.Source, Member: s.Member,
		Holder: s.Holder, Lineage: s.Lineage, Based: s.Based, Changed: s.Changed, Diverged: s.Diverged,
		Durable: s.Durable, DurableAt: s.DurableAt, ConfirmedAt: s.ConfirmedAt,
		PendingRequests: s.PendingRequests, PendingBytes: s.PendingBytes,
		StoredSegments: s.StoredSegments, StoredRequests: s.StoredRequests, StoredBytes: s.StoredBytes,
		Gaps: s.Gaps, LastGap: s.LastGap, StoredByOthers: s.StoredByOthers, Failures: s.Failures,
		Headroom: document.Headroom(s.Headroom), Spool: document.Spool(s.Spool),
	}
}

// Cluster returns the document of a cluster's status in a service.
func Cluster(s scheduler.Status) document.ServedCluster {
	d := document.ServedCluster{
		Cluster: s.Cluster, State: document.State(s.State), Problem: s.Problem, Failures: s.Failures, Reason: s.Reason, Holder: s.Holder,
		Last: s.Last, Next: s.Next, NextDrill: s.NextDrill, Unpruned: s.Unpruned, Suspension: (*document.SuspendedBy)(s.Suspension),
		Jobs: []document.Outcome{}, Counts: []document.Count{}, Standings: s.Standings, Conditions: s.Conditions,
	}
	for _, o := range s.Jobs {
		d.Jobs = append(d.Jobs, outcome(o))
	}
	for _, c := range s.Counts {
		d.Counts = append(d.Counts, document.Count{Job: document.Job(c.Job), Verdict: document.Verdict(c.Verdict), N: c.N})
	}
	if s.Archive != nil {
		agent := Agent(*s.Archive)
		d.Archive = &agent
	}
	return d
}

// Clusters returns the documents of the clusters' status in a service, in the same order.
func Clusters(all []scheduler.Status) []document.ServedCluster {
	documents := []document.ServedCluster{}
	for _, s := range all {
		documents = append(documents, Cluster(s))
	}
	return documents
}

func outcome(o scheduler.Outcome) document.Outcome {
	return document.Outcome{
		Job: document.Job(o.Job), Repository: o.Repository, Reason: o.Reason, Began: o.Began, Ended: o.Ended,
		Verdict: document.Verdict(o.Verdict), Backup: o.Backup, Message: o.Message, RTO: o.RTO,
	}
}
