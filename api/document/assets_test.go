package document_test

import (
	"errors"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

const assetsID = assets.ID("20261121T092433Z-3f9a1c02")

func asset() assets.Entry {
	return assets.Entry{Path: "/etc/kubernetes/pki/ca.key", Kind: assets.Regular, Mode: 0o600, UID: 1, GID: 2, Size: 1675}
}

func assetsManifest() assets.Manifest {
	return assets.Manifest{
		Format: assets.Manifests.Format, Cluster: "prod", Node: "cp-1", ID: assetsID, Time: at, Paths: []string{"/etc/kubernetes/pki"},
		Files:  []assets.Entry{asset()},
		Seal:   seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"age1qqqqqqqqqqqq"}},
		Stored: catalog.Blob{Name: "files.tar.zst.age", Size: 2000, SHA256: strings.Repeat("ab", 32)},
	}
}

func assetsDocuments() map[string]any {
	node := asset()
	node.Mode = 0o644
	list := document.NewAssets()
	list.Add("prod", []assets.Version{
		{Manifest: assetsManifest()}, {Manifest: assets.Manifest{Node: "cp-2", ID: assetsID}, Err: errors.New("damaged: it is cut off")},
	})
	return map[string]any{
		"assets": list,
		"assets-backup": document.AssetsBackup{
			Version: assetsManifest(), Unchanged: true, Missing: []string{"/etc/kubernetes/enc.yaml"},
			Skipped: []document.SkippedAsset{{Path: "/etc/kubernetes/kms.sock", Reason: "socket"}},
		},
		"assets-diff": document.AssetsDiff{
			Cluster: "prod", Node: "cp-1", ID: assetsID,
			Differences: []assets.Difference{{Path: asset().Path, Changes: []assets.Change{assets.Content, assets.ModeChanged}, Version: new(asset()), Node: &node}},
		},
		"assets-restore": document.AssetsRestore{
			Cluster: "prod", Node: "cp-1", ID: assetsID, Root: "/", DryRun: true,
			Steps: []document.AssetsStep{{Entry: asset(), Act: "replace", Changes: []assets.Change{assets.Content}}},
			Kept:  []string{"/etc/kubernetes/pki/.ca.key.dr-old-20261121T092433Z"},
		},
	}
}
