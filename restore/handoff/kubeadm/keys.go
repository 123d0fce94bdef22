package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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

// CompareKeys returns a finding if the keys of this host's API server differ from those in the newest version of the node's assets in c, or
// cannot be compared with it. It returns nil if the host has no API server.
func (p *Pods) CompareKeys(ctx context.Context, c *repository.Cluster, keys seal.Keys, on restored.Node) []handoff.Finding {
	files, err := p.keyFiles(on.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var version assets.Manifest
	var differences []assets.Difference
	if err == nil {
		version, differences, err = restored.DiffNewest(ctx, c, keys, on)
	}
	if errors.Is(err, catalog.ErrNotFound) {
		return []handoff.Finding{{
			Text:   fmt.Sprintf("the keys of this host are not compared: the repository has no assets of node %s", on.Name),
			Remedy: "store them after the restore with dr assets backup",
		}}
	}
	if err != nil {
		return []handoff.Finding{{
			Text:   fmt.Sprintf("the keys of this host cannot be compared with the stored assets of node %s: %v", on.Name, err),
			Remedy: "compare them with dr assets diff --identity",
		}}
	}
	var differ []string
	for _, d := range differences {
		if slices.Contains(files, d.Path) && slices.ContainsFunc(d.Changes, isOther) {
			differ = append(differ, d.Path)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []handoff.Finding{{
		Text: fmt.Sprintf("%s on this host differs from version %s of node %s: with other keys the API server refuses the tokens and certificates "+
			"of the restored cluster, or cannot read its Secrets", strings.Join(differ, ", "), version.ID, on.Name),
		Remedy: "see dr assets diff; to put the stored files back before the restore, run dr assets restore --replace, both with --identity",
	}}
}

// keyFiles returns the paths on the host of the files that keyFlags name, and the paths to which links among them lead.
func (p *Pods) keyFiles(root string) (files []string, err error) {
	pod, err := p.read(apiServer)
	if err != nil {
		return nil, err
	}
	for _, arg := range processOf(pod).Args {
		name, file, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if file == "" || !slices.Contains(keyFlags, name) {
			continue
		}
		file = onHost(pod, file)
		files = append(files, file)
		target, err := filepath.EvalSymlinks(filepath.Join(root, file))
		if err == nil {
			target, err = filepath.Rel(root, target)
		}
		if err == nil {
			files = append(files, filepath.Join("/", target))
		}
	}
	return files, nil
}

// isOther reports whether a file with the change c has another content on the node than in the version, or none.
func isOther(c assets.Change) bool {
	return slices.Contains([]assets.Change{assets.Missing, assets.KindChanged, assets.Content, assets.TargetChanged}, c)
}
