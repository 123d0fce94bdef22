package document

import (
	"github.com/etcd-dr/etcd-dr/storage/assets"
)

// Assets is the document of dr assets list: the versions of the nodes' assets.
type Assets struct {
	Versions []assets.Manifest `json:"versions"` // by cluster, newest first
	Damaged  []DamagedAssets   `json:"damaged"`  // versions that cannot be used
}

// DamagedAssets is a version of assets that cannot be used.
type DamagedAssets struct {
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"` // name of the node
	ID      assets.ID `json:"id"`
	Message string    `json:"message"` // the reason
}

// NewAssets returns a document without versions.
func NewAssets() Assets { return Assets{Versions: []assets.Manifest{}, Damaged: []DamagedAssets{}} }

// Add adds a cluster's versions.
func (d *Assets) Add(cluster string, versions []assets.Version) {
	for _, v := range versions {
		if v.Err != nil {
			d.Damaged = append(d.Damaged, DamagedAssets{cluster, v.Node, v.ID, v.Err.Error()})
		} else {
			d.Versions = append(d.Versions, v.Manifest)
		}
	}
}

// AssetsBackup is the document of dr assets backup.
type AssetsBackup struct {
	Version   assets.Manifest `json:"version"`   // the new version or, if nothing has changed, the newest one
	Unchanged bool            `json:"unchanged"` // nothing was stored, since the newest version is equal
	Missing   []string        `json:"missing"`   // missing files that a flag of a static pod names, or to which a symbolic link points
	Skipped   []SkippedAsset  `json:"skipped"`   // sockets, pipes and devices, which cannot be stored
}

// SkippedAsset is a file that cannot be stored.
type SkippedAsset struct {
	Path   string `json:"path"`   // absolute
	Reason string `json:"reason"` // its kind, such as socket
}

// AssetsDiff is the document of dr assets diff.
type AssetsDiff struct {
	Cluster     string              `json:"cluster"`
	Node        string              `json:"node"`        // name of the node
	ID          assets.ID           `json:"id"`          // the version
	Differences []assets.Difference `json:"differences"` // by path
}

// AssetsRestore is the document of dr assets restore.
type AssetsRestore struct {
	Cluster string       `json:"cluster"`
	Node    string       `json:"node"`   // name of the node
	ID      assets.ID    `json:"id"`     // the version
	Root    string       `json:"root"`   // directory below which the files were restored
	DryRun  bool         `json:"dryRun"` // nothing was changed
	Steps   []AssetsStep `json:"steps"`  // one for each file, directory and link, in their order
	Kept    []string     `json:"kept"`   // the names under which replaced files were kept
}

// AssetsStep is the act of dr assets restore for one file, directory or link.
type AssetsStep struct {
	assets.Entry
	Act     string          `json:"act"`     // create, keep, replace, adjust (the owner and the mode of a directory) or leave (the manifest of a control plane that a restore has stopped)
	Changes []assets.Change `json:"changes"` // how the node's file differs; empty if it is missing or equal
}
