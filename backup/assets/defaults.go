package assets

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/etcd-dr/etcd-dr/storage/assets"
)

// manifestsDir is the kubelet's folder of static pods, as kubeadm sets it up.
const manifestsDir = "/etc/kubernetes/manifests"

// Defaults returns the paths that a node of kubeadm has, as Collect takes them.
func Defaults() []string {
	return []string{
		"/etc/kubernetes/pki", "/etc/kubernetes/*.conf", manifestsDir,
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/pki",
	}
}

// Named returns the sorted paths on the node of the files that the flags of its static pods name, such as
// --encryption-provider-config, as far as they are mounted from the node. It ignores files that are not the YAML of a pod, as the
// kubelet does.
func Named(files []assets.File) (paths []string) {
	for _, f := range files {
		if f.Kind == assets.Regular && path.Dir(f.Path) == manifestsDir {
			paths = append(paths, named(f.Content)...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// pod is the part of a pod's manifest that Named reads.
type pod struct {
	Spec struct {
		Containers []container `yaml:"containers"`
		Volumes    []volume    `yaml:"volumes"`
	} `yaml:"spec"`
}

type container struct {
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Mounts  []struct {
		Name string `yaml:"name"`
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type volume struct {
	Name     string `yaml:"name"`
	HostPath struct {
		Path string `yaml:"path"`
	} `yaml:"hostPath"`
}

// named returns the files on the node that the flags in one manifest name.
func named(manifest []byte) (paths []string) {
	var p pod
	err := yaml.Unmarshal(manifest, &p)
	if err != nil {
		return nil
	}
	for _, c := range p.Spec.Containers {
		for _, file := range filesIn(slices.Concat(c.Command, c.Args)) {
			onNode := c.onNode(file, p.Spec.Volumes)
			if onNode != "" {
				paths = append(paths, onNode)
			}
		}
	}
	return paths
}

// filesIn returns the absolute paths in flags that name an input: --x-file, --x-config, --kubeconfig. --log-file is an output.
func filesIn(args []string) (files []string) {
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		isInput := strings.HasSuffix(name, "file") || strings.HasSuffix(name, "config")
		if strings.HasPrefix(name, "--") && isInput && name != "--log-file" && path.IsAbs(value) {
			files = append(files, path.Clean(value))
		}
	}
	return files
}

// onNode returns the path on the node of a file in the container; "" if it is not mounted from the node. The longest mount counts.
func (c container) onNode(file string, volumes []volume) (onNode string) {
	longest := ""
	for _, m := range c.Mounts {
		below, ok := strings.CutPrefix(file+"/", strings.TrimSuffix(m.Path, "/")+"/")
		if !ok || len(m.Path) < len(longest) {
			continue
		}
		longest, onNode = m.Path, ""
		for _, v := range volumes {
			if v.Name == m.Name && v.HostPath.Path != "" {
				onNode = path.Join(v.HostPath.Path, below)
			}
		}
	}
	return onNode
}
