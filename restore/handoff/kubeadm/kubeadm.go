// Package kubeadm runs the member on this host as a static pod of a control plane in kubeadm's form, for package node. It moves manifests, and
// needs neither the API server nor the container runtime.
package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// DefaultManifests is the kubelet's staticPodPath on a host of kubeadm.
const DefaultManifests = "/etc/kubernetes/manifests"

// The manifests of a control plane, as kubeadm names them.
const (
	etcd              = "etcd.yaml"
	apiServer         = "kube-apiserver.yaml"
	controllerManager = "kube-controller-manager.yaml"
)

// all are the manifests in the order in which they leave the folder: clients first.
var all = []string{controllerManager, "kube-scheduler.yaml", apiServer, etcd}

// Pods is the node.Service of the static pods.
//
// All four manifests leave the folder. To rename one inside it is not enough: the kubelet reads each file, whatever its name. To move etcd's
// alone is not enough either: the kubelet waits for the API server, which waits for etcd, and looks at no manifest meanwhile. They come
// back one after the other: a controller manager or scheduler that finds no API server crashes, and is started again only after minutes.
type Pods struct {
	Manifests string // the kubelet's folder
}

// aside is the folder for the manifests that are not in use: on the same file system, and not inside the kubelet's folder.
func (p *Pods) aside() string { return filepath.Join(filepath.Dir(p.Manifests), assets.Stopped) }

// String implements node.Service.
func (p *Pods) String() string { return "static pods in " + p.Manifests }

// Acts implements node.Service.
func (p *Pods) Acts() (stop, start handoff.Act) {
	return handoff.Act{Text: "move the manifests of the control plane away, so that the kubelet stops it", Verb: fmt.Sprintf("mv %s/*.yaml %s", p.Manifests, p.aside())},
		handoff.Act{Text: "move them back: etcd, then the API server, then the others", Verb: fmt.Sprintf("mv %s/*.yaml %s", p.aside(), p.Manifests)}
}

// Runs implements node.Service. Manifests that are aside were in use before.
func (p *Pods) Runs(context.Context) (bool, error) {
	inUse, err := exists(filepath.Join(p.Manifests, etcd))
	if err != nil || inUse {
		return inUse, err
	}
	return exists(filepath.Join(p.aside(), etcd))
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Stop implements node.Service. It is done once the API server has closed its port; the locks of the data show when etcd has ended.
func (p *Pods) Stop(ctx context.Context) (handoff.Progress, error) {
	for _, name := range all {
		err := move(name, p.Manifests, p.aside())
		if err != nil {
			return handoff.Progress{}, err
		}
	}
	address, err := p.serverAddress()
	if err != nil || address == "" {
		return handoff.Progress{Done: err == nil}, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return handoff.Progress{Done: true}, nil
	}
	_ = conn.Close()
	return handoff.Progress{Waiting: "the API server still accepts connections at " + address + ": it closes within 30 s of grace"}, nil
}

// back moves a manifest back into the kubelet's folder. One that another program, such as kubeadm, has written there meanwhile stays.
func (p *Pods) back(name string) error {
	present, err := exists(filepath.Join(p.Manifests, name))
	if err != nil || present {
		return err
	}
	return move(name, p.aside(), p.Manifests)
}

// move moves a file from one folder to another, if it is there.
func move(name, from, to string) error {
	present, err := exists(filepath.Join(from, name))
	if err != nil || !present {
		return err
	}
	err = os.MkdirAll(to, 0o700)
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(from, name), filepath.Join(to, name))
	if err != nil {
		return fmt.Errorf("%w: move the manifest %s: %w: see that both folders are on one file system", fault.Refused, name, err)
	}
	return nil
}

// Start implements node.Service.
func (p *Pods) Start(ctx context.Context) (handoff.Progress, error) {
	err := p.back(etcd)
	if err != nil {
		return handoff.Progress{}, err
	}
	why, err := p.etcdWaits(ctx)
	if err != nil || why != "" {
		return handoff.Progress{Waiting: why}, err
	}
	err = p.back(apiServer)
	if err != nil {
		return handoff.Progress{}, err
	}
	why, err = p.serverWaits(ctx)
	if err != nil || why != "" {
		return handoff.Progress{Waiting: why}, err
	}
	return p.Enable(ctx)
}

// Enable implements node.Service.
func (p *Pods) Enable(context.Context) (handoff.Progress, error) {
	for i := range all {
		err := p.back(all[len(all)-1-i])
		if err != nil {
			return handoff.Progress{}, err
		}
	}
	_ = os.Remove(p.aside()) // it may be missing, or have a manifest that was written again
	return handoff.Progress{Done: true}, nil
}
