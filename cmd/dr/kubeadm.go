package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore/handoff/kubeadm"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// kubeadmFlag adds --kubeadm, which takes the values of the flags for etcd from the host. The caller calls the returned function first.
func kubeadmFlag(cmd *cobra.Command) (read func() error) {
	on := cmd.Flags().Bool("kubeadm", false, "back up the member of kubeadm's control plane on this host: endpoint, certificates and data dir are those of its manifest")
	return func() error {
		if !*on {
			return nil
		}
		return readKubeadm(cmd)
	}
}

// readKubeadm sets the flags for etcd to the values of the manifest on this host. The client certificate is the one that kubeadm makes for
// health checks: it lies next to the CA.
func readKubeadm(cmd *cobra.Command) error {
	_, err := os.Stat(filepath.Join(kubeadm.DefaultManifests, "etcd.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no etcd.yaml in %s: without a control plane of kubeadm on this host, pass --endpoints, --cacert, --cert and --key",
			fault.NotFound, kubeadm.DefaultManifests)
	}
	pods := &kubeadm.Pods{Manifests: kubeadm.DefaultManifests}
	own, err := pods.Member(cmd.Context())
	if err != nil {
		return err
	}
	client := filepath.Join(filepath.Dir(own.CA), "healthcheck-client")
	for name, value := range map[string]string{
		"endpoints": strings.Join(own.ClientURLs, ","), "cacert": own.CA, "cert": client + ".crt", "key": client + ".key", "data-dir": own.DataDir,
	} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case flag == nil: // dr backup needs no data dir
			continue
		case flag.Changed:
			return usagef("--%s: omit it: with --kubeadm it is %s, from %s", name, value, pods)
		}
		err = cmd.Flags().Set(name, value)
		if err != nil {
			return err
		}
	}
	return nil
}
