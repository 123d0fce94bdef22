package node

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Distribution is a distribution of Kubernetes that manages etcd itself, with its own commands. Its folder exists only if it does: k3s and RKE2 can
// also use an etcd that they do not manage.
type Distribution struct{ name, folder, command string }

// RKE2 runs etcd as a static pod.
var RKE2 = Distribution{"RKE2", "var/lib/rancher/rke2/server/db/etcd", "rke2 server --cluster-reset --cluster-reset-restore-path=SNAPSHOT"}

// distributions are those whose folders RefuseOthers checks.
var distributions = []Distribution{
	{"k3s", "var/lib/rancher/k3s/server/db/etcd", "k3s server --cluster-reset --cluster-reset-restore-path=SNAPSHOT"}, RKE2,
	{"Talos", "system/state", "talosctl bootstrap --recover-from=SNAPSHOT"},
}

// Refuse returns an error with the command of d that restores etcd.
func (d Distribution) Refuse() error {
	return fmt.Errorf("%w: this host runs %s, which manages etcd itself: download a snapshot with dr fetch, and run %s", fault.Refused, d.name, d.command)
}

// RefuseOthers returns the error of the Distribution whose folder is below root, the root folder of the host; nil if there is none.
func RefuseOthers(root string) error {
	for _, d := range distributions {
		_, err := os.Stat(filepath.Join(root, d.folder))
		if err == nil {
			return d.Refuse()
		}
	}
	return nil
}
