package document_test

import (
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func pin() catalog.Pin {
	return catalog.Pin{
		Format: catalog.Pins.Format, Backup: id, ID: "0123456789abcdef", Reason: "before 1.34", Time: at.Add(time.Hour), By: "host, dr v1", Confirms: true,
	}
}

// pruned is a prune of four backups, of which one goes.
func pruned() document.Prune {
	decision := func(n int, keep bool, reason, doubt string) document.PrunedBackup {
		started := at.AddDate(0, 0, -n)
		return document.PrunedBackup{
			ID: catalog.NewID(started, 4711), Started: started, Size: 7000, Keep: keep, Reasons: []string{reason}, Doubt: doubt,
		}
	}
	return document.Prune{
		Cluster: "prod", DryRun: true,
		Backups: []document.PrunedBackup{
			decision(0, true, "daily 1", "a member had the alarm CORRUPT when it was taken"),
			decision(1, true, "locked until 2026-12-21T09:24:33Z", ""), decision(2, true, "pinned meanwhile", ""),
			decision(3, false, "no rule keeps it", ""),
		},
		Log: []document.PrunedLog{
			{Lineage: lineage, Upto: 25, Segments: 24, Size: 7000, Reason: "it is older than the window of 14d"},
		},
		Damaged:   []document.Damage{{Cluster: "prod", ID: id, Message: "damaged: it is cut off"}},
		Untrusted: []document.Damage{{Cluster: "prod", ID: id, Message: "damaged: not signed by a trusted key"}},
		Locked: []document.LockedObject{
			{Key: "prod/backups/x/manifest.json", Until: at.AddDate(0, 1, 0)}, {Key: "prod/log/x/0000000000000001.seg"},
		},
		Swept: 2, SweptSize: 7500, Packed: 512, Packs: 1, Kept: 21000, Removed: 14000, Over: 1000,
	}
}
