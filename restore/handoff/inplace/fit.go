package inplace

import (
	"cmp"
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// checkFit returns the facts about backup b, nil for none, with which the members of h cannot serve it.
func (r *Restore) checkFit(ctx context.Context, h handoff.Handoff, b *catalog.Backup) (all []handoff.Finding) {
	if b == nil {
		return nil
	}
	runs := cmp.Or(r.live.version, h.Version)
	if isOlder(runs, b.EtcdVersion) {
		all = append(all, handoff.Finding{
			Text:    fmt.Sprintf("the backup is of etcd %s, and %s runs %s: etcd 3.6 and later do not start on the data of a newer version", b.EtcdVersion, h.Manager, runs),
			Remedy:  "upgrade it first, or restore a backup of its own version",
			Refuses: r.live.version != "", // an image may have a tag with another meaning
		})
	}
	if h.Quota > 0 && b.Plain.Size > h.Quota {
		all = append(all, handoff.Finding{
			Text:   fmt.Sprintf("the database has %d MiB, and the quota of %s is %d MiB: the restored members refuse to write", b.Plain.Size>>20, h.Manager, h.Quota>>20),
			Remedy: "raise --quota-backend-bytes, or delete keys, compact and defragment afterwards",
		})
	}
	access, err := r.Access(ctx)
	if b.Auth && err == nil && access.User == "" && access.Cert == "" && len(access.PEM.Cert) == 0 {
		all = append(all, handoff.Finding{
			Text:   "authentication is enabled in the backup, and the restore has no user: the check of the restored members waits for one",
			Remedy: "pass --user with a user of the backup; clients and probes of the members need one too",
		})
	}
	return all
}

// isOlder reports whether version a of etcd has a smaller minor version than b. It is false if one of them is not known.
func isOlder(a, b string) bool {
	var x, y struct{ major, minor int }
	_, errA := fmt.Sscanf(a, "%d.%d", &x.major, &x.minor)
	_, errB := fmt.Sscanf(b, "%d.%d", &y.major, &y.minor)
	return errA == nil && errB == nil && (x.major < y.major || x.major == y.major && x.minor < y.minor)
}
