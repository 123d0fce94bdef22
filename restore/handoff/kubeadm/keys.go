package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	restored "github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// keyFlags are the API server's flags for the files that must fit the data: with others it refuses the certificates and the tokens
// that were issued before, or cannot read the Secrets that are encrypted at rest.
var keyFlags = []string{
	"client-ca-file", "encryption-provider-config", "requestheader-client-ca-file", "service-account-key-file", "service-account-signing-key-file",
}

// CompareKeys returns a finding if the keys of this host's API server differ from those in the newest version of the node in c, or
// cannot be compared with it. A host without an API server, or without a stored version, has none.
func (p *Pods) CompareKeys(ctx context.Context, c *repository.Cluster, keys seal.Keys, on restored.Node) []handoff.Finding {
	files, err := p.keyFiles()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	version, differences, failed := restored.DiffNewest(ctx, c, keys, on)
	err = errors.Join(err, failed)
	if errors.Is(err, catalog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return []handoff.Finding{{
			Text:   fmt.Sprintf("the keys of this host cannot be compared with the stored assets of node %s: %v", on.Name, err),
			Remedy: "compare them with dr assets diff",
		}}
	}
	var differ []string
	for _, d := range differences {
		if slices.Contains(files, d.Path) && !slices.Contains(d.Changes, assets.Added) {
			differ = append(differ, d.Path)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []handoff.Finding{{
		Text: fmt.Sprintf("%s on this host differs from version %s of node %s: with other keys the API server refuses the tokens and certificates "+
			"of the restored cluster, or cannot read its Secrets", strings.Join(differ, ", "), version.ID, on.Name),
		Remedy: "see dr assets diff; to restore the stored files first, run dr assets restore --replace",
	}}
}

// keyFiles returns the paths on the host of the files that keyFlags name.
func (p *Pods) keyFiles() (files []string, err error) {
	pod, err := p.read(apiServer)
	if err != nil {
		return nil, err
	}
	process := processOf(pod)
	for _, name := range keyFlags {
		file := process.Flag(name)
		if file != "" {
			files = append(files, onHost(pod, file))
		}
	}
	return files, nil
}
