package inplace

import (
	"cmp"
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// checkFit returns findings on why the members of h may not be able to serve backup b. b may be nil.
func (r *Restore) checkFit(ctx context.Context, h handoff.Handoff, b *catalog.Backup) (all []handoff.Finding) {
	if b == nil {
		return nil
	}
	runs := cmp.Or(h.Version, r.live.version) // the restored members are those of the pod template
	if isOlder(runs, b.EtcdVersion) {
		all = append(all, handoff.Finding{
			Text: fmt.Sprintf("the backup was read from etcd %s, and %s runs %s: from 3.6 on, etcd does not start on data of a newer version; before, it starts, and may "+
				"misread that data", b.EtcdVersion, h.Manager, runs),
			Remedy: "upgrade it first, or restore a backup of its own version, unless the backup was taken in the middle of an upgrade",
		})
	}
	if h.Quota > 0 && b.Plain.Size > h.Quota {
		all = append(all, handoff.Finding{
			Text:   fmt.Sprintf("the database has %d MiB, and the quota of %s is %d MiB: the restored members refuse to write", b.Plain.Size>>20, h.Manager, h.Quota>>20),
			Remedy: "raise --quota-backend-bytes, or delete keys, compact, defragment and disarm the alarm afterwards",
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
