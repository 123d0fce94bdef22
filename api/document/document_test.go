package document_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

var at = time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)

const id = catalog.ID("20261121T092433Z-0000000000001267")

func member() catalog.Member {
	return catalog.Member{
		ID: "8e9e05c52164694d", Name: "m1", PeerURLs: []string{"https://10.0.0.1:2380"}, ClientURLs: []string{"https://10.0.0.1:2379"}, Learner: true,
	}
}

// manifest has a value in every field.
func manifest() catalog.Manifest {
	digest := strings.Repeat("ab", 32)
	return catalog.Manifest{
		Format: catalog.Manifests.Format, ID: id, Cluster: "prod", Started: at, Finished: at.Add(2 * time.Second), DRVersion: "v1",
		ClusterID: "cafe", Member: member(), Members: []catalog.Member{member()}, EtcdVersion: "3.7.3",
		Revision: 4711, RevisionMax: 4712, RaftIndex: 5000, RaftIndexMax: 5002, RaftTerm: 3,
		HashKV: &catalog.HashKV{Revision: 4711, CompactRevision: -1, Hash: 48879}, HashSkipped: "hashing would stall the member's writes for too long",
		Entries: 8000, InUse: 4 << 20,
		Plain:  catalog.Blob{Name: "snapshot.db", Size: 20512, SHA256: digest},
		Stored: catalog.Blob{Name: "snapshot.db.zst.age", Size: 7000, SHA256: digest},
		Seal:   seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"age1qqqqqqqqqqqq"}},
		Auth:   true, Kubernetes: true, KubernetesEncrypted: true, Alarms: []string{"NOSPACE"}, NoQuorum: true,
		Compared: true, Diverged: "m3 has another hash", Labels: catalog.Labels{"env": "prod"},
	}
}

// importedManifest has a value in every field of its origin.
func importedManifest() catalog.Manifest {
	m := manifest()
	m.ID = catalog.NewImportID(at, 4711)
	m.Origin = &catalog.Origin{
		Kind: catalog.OriginSalvage, Imported: at.Add(time.Hour), Written: at, Given: true, File: "/srv/snapshot.db", Size: 8224, Modified: at, Unhashed: true,
		Salvage: &catalog.Salvage{
			Disks:  []catalog.SalvagedDisk{{Dir: "/mnt/m1", Member: "8e9e05c52164694d", Name: "m1", Used: true}},
			Voters: 3, Majority: true, Certain: 4709, Probable: 2, LeftOut: 3, Most: 4714,
		},
	}
	return m
}

const lineage = "0123456789abcdef0123456789abcdef"

func window() document.Window {
	return document.Window{Cluster: "prod", Window: catalog.Window{
		Lineage: lineage, Source: segment.WAL, Base: id, Doubt: "it failed its last check", Segments: 3, Bytes: 7000,
		From: catalog.Point{Position: 5002, Revision: 4712, Time: at}, To: catalog.Point{Position: 6000, Revision: 5500, Time: at.Add(time.Hour)},
	}}
}

func gap() document.Gap {
	return document.Gap{
		Kind:    catalog.GapRecorded,
		Cluster: "prod", Lineage: lineage, NextLineage: lineage, From: 6001, To: 6010, Positions: 10, Since: at, Until: at.Add(time.Minute),
		Seconds: 60, Reason: "the member's log was purged",
	}
}

func fault(message string) document.Fault {
	return document.Fault{Key: "prod/log/x/0000000000000007.seg", Lineage: lineage, Seq: 7, Upto: 8, Message: message}
}

// status has a value in every field.
func status() document.Agent {
	return document.Agent{
		State: document.AgentWorking, Problem: "the store is away", Cluster: "prod", Source: segment.WAL, Member: "8e9e05c52164694d", Holder: "host b", Lineage: lineage, Based: true,
		Durable: 6000, DurableAt: at.Add(time.Second), ConfirmedAt: at, PendingRequests: 5, PendingBytes: 500,
		StoredSegments: 7, StoredRequests: 70, StoredBytes: 7000, Gaps: 1, LastGap: at, StoredByOthers: 2, Failures: 3,
		Changed:  "another cluster was backed up under this name",
		Diverged: "HashKV at revision 4711: 1 has 000000aa, 2 has 000000bb",
		Headroom: document.Headroom{Files: 2, UnlinkedBytes: 64 << 20, Purges: true, Seconds: 90},
		Spool:    document.Spool{Segments: 3, Bytes: 4096, Max: 2 << 30},
	}
}

func proof() catalog.Proof {
	return catalog.Proof{
		Format: catalog.Proofs.Format, Backup: id, Level: catalog.Booted, Verdict: catalog.Passed, Finding: "no fault found",
		Time: at.Add(time.Hour), Seconds: 1.5, Key: "age1qqqqqqqqqqqq", HashKV: "key space proven at revision 4711",
		Revision: 4711, Keys: 19, By: "host, dr v1",
	}
}

func backup() document.Backup {
	return document.NewBackup(catalog.Backup{
		Manifest: manifest(), Proofs: []catalog.Proof{proof()}, Pins: []catalog.Pin{pin()},
	})
}

// goldens are all documents, each with a value in every field.
func goldens() map[string]any {
	bare := manifest()
	bare.HashKV, bare.HashSkipped, bare.Seal, bare.Alarms, bare.Labels = nil, "", seal.Seal{Compression: "zstd"}, nil, nil
	bare.Diverged, bare.NoQuorum, bare.Compared = "", false, false
	all := map[string]any{
		"event": document.Line{Event: &storage.Event{
			Time: at, Stage: "fetch", Level: storage.Warning, Message: "slow", Cluster: "prod", Object: "snapshot.db.zst.age", Done: 5, Total: 9,
		}},
		"result":          document.Line{Result: document.Verify{Proofs: []catalog.Proof{proof()}}},
		"error":           document.Line{Error: &document.Error{Message: "refused: it is not empty", ExitCode: 6}},
		"backup":          backup(),
		"backup-bare":     document.NewBackup(catalog.Backup{Manifest: bare}),
		"backup-imported": document.NewBackup(catalog.Backup{Manifest: importedManifest()}),
		"list": document.List{
			Backups: []document.Backup{backup()}, Damaged: []document.Damage{{Cluster: "prod", ID: id,
				Message: "damaged: it is cut off"}},
			Untrusted: []document.Damage{{Cluster: "prod", ID: id, Message: "damaged: not signed by a trusted key"}},
			Windows:   []document.Window{window()}, Gaps: []document.Gap{gap()},
		},
		"archive-verify": document.ArchiveVerify{
			Cluster: "prod", Verdict: "failed", Depth: "opened", Since: at, Found: 7, Requests: 70, Bytes: 7000,
			Missing: []document.Fault{fault("is not in the repository")}, Damaged: []document.Fault{fault("damaged")},
			Gaps: []document.Gap{gap()}, Windows: []document.Window{window()},
		},
		"archive-verify-clean": document.NewArchiveVerify(catalog.Catalog{Cluster: "prod"}, "headers", time.Time{}),
		"archive-status":       document.NewArchiveStatus(status(), at.Add(3*time.Second)),
		"archive-status-bare":  document.NewArchiveStatus(document.Agent{State: document.AgentStarting, Cluster: "prod", Source: segment.Watch}, at),
		"leftovers": document.Leftovers{Leftovers: []document.Leftover{{Cluster: "prod", Key: "prod/backups/x",
			Size: 7, Since: at}}},
		"drill":  document.NewDrill("prod", 7, []catalog.Proof{drilled(catalog.Failed)}, nil),
		"verify": document.Verify{Proofs: []catalog.Proof{proof()}},
		"fetch": document.Fetch{Backup: id, File: "/tmp/snapshot.db", Size: 20512,
			SHA256: strings.Repeat("ab", 32), Key: "age1qqqqqqqqqqqq"},
		"inspection": document.Inspection{File: "/tmp/snapshot.db", Hash: "7ef846e7", Revision: 4711, Keys: 300, Size: 20480, Index: 4720,
			Version: "3.7.0", Digest: true},
		"plan":         planDocument(),
		"plan-salvage": document.Plan{Format: 1, ID: "0123456789abcdef", Token: "t", Salvage: salvage()},
		"plan-file": document.Plan{Format: 1, ID: "0123456789abcdef", File: "/snapshot.db", SkipHashCheck: true,
			Token: "t"},
		"restore": document.Restore{
			PlanID: "0123456789abcdef", Backup: string(id), File: "/snapshot.db", Token: "token", ClusterID: "cafe",
			Members: []document.RestoredMember{{Name: "m1", DataDir: "/var/lib/etcd",
				Command: []string{"etcd", "--name", "m1"}}},
			Revision: 4711, BumpedTo: 1000004711, Keys: 19, HashKV: "key space proven at revision 4711", Key: "age1qqqqqqqqqqqq",
			Replayed: &document.Replayed{
				Lineage: lineage, Source: segment.Watch, Segments: 3, Requests: 90, Position: 4801, From: 4711, To: 4801,
				Proven: "key space proven at revision 4790", Unseen: "users are as in the backup", GuessedLeases: 2,
			},
			Salvaged: &document.Salvaged{Disks: []string{"/mnt/m1"}, Position: 5120, Revision: 4811, Certain: 9, Probable: 1},
			Cleared:  []string{"NOSPACE"}, Phases: []document.Phase{{Stage: "ask", Seconds: 0.5}},
		},
		"replaced": document.Replaced{Replaced: document.Swap{
			ID: "1f2e3d4c", State: "placed", DataDir: "/var/lib/etcd", WALDir: "/wal/etcd",
			Aside: []string{"/var/lib/.dr-swap-etcd-1f2e3d4c/old", "/wal/.dr-swap-etcd-1f2e3d4c/old"},
			Undo:  []string{"dr", "restore", "--undo", "1f2e3d4c", "--data-dir", "/var/lib/etcd"},
			Clean: []string{"dr", "restore", "--clean", "1f2e3d4c", "--data-dir", "/var/lib/etcd"},
		}},
		"import":  importOf(),
		"convert": converted(),
		"copy":    copyOf(),
		"prune":   pruned(),
		"pins":    document.Pins{Backup: id, Pins: []catalog.Pin{pin()}, Lifted: []catalog.Pin{pin()}},
		"taken":   taken(),
		"version": document.Version{Version: "v1", Go: "go1.26.0", Etcd: "3.7.3"},
		"check":   checkDocument(),
	}
	maps.Copy(all, assetsDocuments())
	maps.Copy(all, findDocuments())
	maps.Copy(all, intoDocuments())
	maps.Copy(all, configDocuments())
	maps.Copy(all, serviceDocuments())
	maps.Copy(all, statusDocuments())
	return all
}

func salvage() *plan.Salvage {
	end := segment.End{Position: 5122, Term: 3, Digest: strings.Repeat("ef", 32)}
	return &plan.Salvage{
		ClusterID: "cafe", Members: []catalog.Member{member()}, Majority: true,
		Disks: []plan.DiskSummary{{
			Dir: "/mnt/m1", Member: "8e9e05c52164694d", Name: "m1", Database: 5100, Revision: 4801, First: 1, Commit: 5119, Last: 5122, Term: 3,
			Findings: []string{"the last record of its log is incomplete: it was never acknowledged"},
		}},
		Database: &plan.DiskDatabase{File: "/mnt/m1/member/snap/db", Size: 20480, Index: 5100, Term: 3, Revision: 4801},
		Log: &plan.DiskLog{
			Dir: "/mnt/m1", After: segment.End{Position: 5100, Term: 3}, UpTo: 5121, End: end, Revision: 4811, Version: "3.5.999", Commit: 5119,
			Certain: plan.Part{Positions: 19, Requests: 18}, Probable: plan.Part{Positions: 2, Requests: 2},
		},
		LeftOut: plan.Part{Positions: 1, Requests: 1}, Disagreement: "the members disagree, …",
	}
}

func planDocument() document.Plan {
	b := catalog.Backup{Manifest: manifest()}
	return document.Plan{
		Format: 1, ID: "0123456789abcdef", Cluster: "prod", Backup: &b,
		Members: []plan.Member{{Name: "m1", PeerURLs: []string{"https://10.0.0.1:2380"}}}, Token: "token",
		Bump:       plan.Bump{To: 2000004711, By: 1000000000, Known: 1000004711, Auto: true, Reason: "as requested"},
		KeepAlarms: true, AllowCorrupt: true, OldIsDead: true,
		Log: &plan.Log{
			Lineage: lineage, Source: segment.WAL, First: 3, Last: 5, Digest: strings.Repeat("cd", 32), Segments: 3, Requests: 90, Bytes: 7000,
			Revision: 4801, Position: 5090,
		},
		Reach: &plan.Reach{
			Position: 5090, Revision: 4801, NotBefore: at.Add(time.Minute), NotAfter: at.Add(2 * time.Minute),
			Newest: catalog.Point{Position: 6000, Revision: 5500, Time: at.Add(time.Hour)},
		},
		Estimate: 1.5,
		Notes:    []string{"learner m4 is left out"}, Into: plan.Into{OutputDir: "/o", Name: "m1", DataDir: "/d"},
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// Others' programs read these: a field may be added, none renamed or removed.
func TestGolden(t *testing.T) {
	for name, v := range goldens() {
		golden.Want(t, filepath.Join("testdata", name+".json"), encode(t, v))
	}
}

func TestEveryGoldenIsADocument(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(goldens()) {
		t.Errorf("%d golden files, %d documents", len(files), len(goldens()))
	}
}

func TestListOfACatalog(t *testing.T) {
	var l document.List
	l.Add(catalog.Catalog{
		Cluster: "prod", Backups: []catalog.Backup{{Manifest: manifest()},
			{Manifest: manifest(), Proofs: []catalog.Proof{proof()}}},
		Damaged: []catalog.Damage{{ID: id, Err: errors.New("it is cut off")}},
	})
	l.Add(catalog.Catalog{Cluster: "test"})
	if len(l.Backups) != 2 || l.Backups[0].Proven != catalog.Stored ||
		!l.Backups[0].ProvenAt.Equal(at.Add(2*time.Second)) || l.Backups[0].Decrypted {
		t.Errorf("backups %+v", l.Backups)
	}
	if l.Backups[1].Proven != catalog.Booted || !l.Backups[1].Decrypted {
		t.Errorf("the proven one is %+v", l.Backups[1])
	}
	want := (document.Damage{Cluster: "prod", ID: id, Message: "it is cut off"})
	if len(l.Damaged) != 1 ||
		l.Damaged[0] != want {
		t.Errorf("damaged %+v", l.Damaged)
	}
}

// jq's .proofs[] fails on null.
func TestBackupWithoutProofsHasAnEmptyList(t *testing.T) {
	data := encode(t, document.NewBackup(catalog.Backup{Manifest: manifest()}))
	if !bytes.Contains(data,
		[]byte(`"proofs": []`)) {
		t.Errorf("document %s", data)
	}
}
