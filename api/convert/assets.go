package convert

import (
	"github.com/etcd-dr/etcd-dr/api/document"
	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	restored "github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
)

// AssetsBackup returns the document of a stored version of assets.
func AssetsBackup(r taken.Result) document.AssetsBackup {
	d := document.AssetsBackup{
		Version: r.Version, Unchanged: r.Unchanged, Missing: append([]string{}, r.Missing...), Skipped: []document.SkippedAsset{},
	}
	for _, s := range r.Skipped {
		d.Skipped = append(d.Skipped, document.SkippedAsset(s))
	}
	return d
}

// AssetsDiff returns the document of a comparison of a node's files with a version.
func AssetsDiff(m assets.Manifest, differences []assets.Difference) document.AssetsDiff {
	return document.AssetsDiff{Cluster: m.Cluster, Node: m.Node, ID: m.ID, Differences: append([]assets.Difference{}, differences...)}
}

// AssetsRestore returns the document of a restore of assets.
func AssetsRestore(r restored.Request, result restored.Result) document.AssetsRestore {
	d := document.AssetsRestore{
		Cluster: r.Version.Cluster, Node: r.Version.Node, ID: r.Version.ID, Root: r.Root, DryRun: r.DryRun,
		Steps: []document.AssetsStep{}, Kept: append([]string{}, result.Aside...),
	}
	for _, s := range result.Plan {
		d.Steps = append(d.Steps, document.AssetsStep{Entry: s.Entry, Act: string(s.Act), Changes: s.Changes})
	}
	return d
}
