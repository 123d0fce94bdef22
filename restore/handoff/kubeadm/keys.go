package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// CompareKeys returns a finding if the keys of this host's API server differ from those in the node's assets in c, or cannot be compared with
// them. It takes the versions around a time, that of the restored state: the keys may have changed between them, so it is enough if they
// are those of one. It returns nil if the host has no API server.
func (p *Pods) CompareKeys(ctx context.Context, c *repository.Cluster, keys seal.Keys, on restored.Node, at time.Time) []handoff.Finding {
	pod, err := p.read(apiServer)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var version assets.ID
	var differ []string
	if err == nil {
		version, differ, err = p.compareAround(ctx, c, keys, on, at, pod)
	}
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return []handoff.Finding{{
			Text:   fmt.Sprintf("the keys of this host are not compared: the repository has no assets of node %s", on.Name),
			Remedy: "store them after the restore with dr assets backup",
		}}
	case err != nil:
		return []handoff.Finding{{
			Text:   fmt.Sprintf("the keys of this host cannot be compared with the stored assets of node %s: %v", on.Name, err),
			Remedy: "compare them with dr assets diff --identity",
		}}
	case len(differ) == 0:
		return nil
	}
	return []handoff.Finding{{
		Text: fmt.Sprintf("this host has other keys than version %s of node %s: %s: with them the API server refuses the tokens and certificates "+
			"of the restored cluster, or cannot read its Secrets", version, on.Name, strings.Join(differ, ", ")),
		Remedy: fmt.Sprintf("see dr assets diff %s; to put the stored files back before the restore, stop the kubelet, run dr assets restore --replace %s, both with --identity, "+
			"and start the kubelet", version, version),
	}}
}

// compareAround returns the first of the versions around a time, and the paths of the keys that differ from it; none if the host has the keys
// of one of them.
func (p *Pods) compareAround(
	ctx context.Context, c *repository.Cluster, keys seal.Keys, on restored.Node, at time.Time, pod corev1.Pod,
) (first assets.ID, differ []string, err error) {
	around, err := c.Assets().Around(ctx, on.Name, at)
	if err != nil {
		return "", nil, err
	}
	for i, m := range around {
		compared, err := restored.Diff(ctx, c, m, keys, on.Root)
		if err != nil {
			return "", nil, err
		}
		others := p.otherKeys(pod, compared, on.Root)
		if len(others) == 0 {
			return "", nil, nil
		}
		if i == 0 {
			differ = others
		}
	}
	return around[0].ID, differ, nil
}

// otherKeys returns the paths of the keys that differ between this host and a version of it: of the files that either API server names, and of
// the manifest itself if the two do not name the same ones.
func (p *Pods) otherKeys(pod corev1.Pod, version restored.Compared, root string) (differ []string) {
	own, manifest := keyFiles(pod), filepath.Join(p.Manifests, apiServer)
	files := slices.Clone(own)
	i := slices.IndexFunc(version.Stored, func(f assets.File) bool { return f.Path == manifest })
	if i >= 0 {
		stored, err := parse(apiServer, version.Stored[i].Content)
		then := keyFiles(stored)
		if err != nil || !slices.Equal(own, then) {
			differ = append(differ, manifest)
		}
		files = append(files, then...)
	}
	for _, file := range slices.Clone(files) {
		files = append(files, linked(root, file), linkedIn(version.Stored, file))
	}
	for _, d := range version.Differences {
		if slices.Contains(files, d.Path) && slices.ContainsFunc(d.Changes, isOther) {
			differ = append(differ, d.Path)
		}
	}
	slices.Sort(differ)
	return slices.Compact(differ)
}

// keyFiles returns the paths on the host of the files that an API server's keyFlags name, sorted; none if the pod has no container.
func keyFiles(pod corev1.Pod) (files []string) {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	for _, arg := range processOf(pod).Args {
		name, file, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if file != "" && slices.Contains(keyFlags, name) {
			files = append(files, onHost(pod, file))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// linked returns the path to which a file below root leads through links; file itself if it cannot be followed.
func linked(root, file string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(root, file))
	if err == nil {
		target, err = filepath.Rel(root, target)
	}
	if err != nil {
		return file
	}
	return filepath.Join("/", target)
}

// linkedIn is linked for links among files.
func linkedIn(files []assets.File, file string) string {
	for range maxLinks {
		i := slices.IndexFunc(files, func(f assets.File) bool { return f.Path == file && f.Kind == assets.Link })
		if i < 0 {
			break
		}
		target := files[i].Target
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(file), target)
		}
		file = filepath.Clean(target)
	}
	return file
}

// maxLinks bounds the links that are followed, as Linux does (path_resolution(7)).
const maxLinks = 40

// isOther reports whether a file with the change c has another content on the node than in the version, or none.
func isOther(c assets.Change) bool {
	return slices.Contains([]assets.Change{assets.Missing, assets.KindChanged, assets.Content, assets.TargetChanged}, c)
}
