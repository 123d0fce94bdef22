package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// lossNotes returns notes on the known data that the route leaves out; none for a route with disks, which has salvageNotes.
func lossNotes(r route, now time.Time) (notes []string) {
	if r.isNone() || r.salvage != nil {
		return nil
	}
	if r.base.Origin != nil {
		return importNotes(r)
	}
	end, age := r.base.Started, "the backup is %s old"
	if r.log != nil {
		end, age = r.reach.NotAfter, "that was %s ago"
	}
	lost := r.reach.Newest.Time.Sub(end)
	if lost > 0 {
		notes = append(notes, fmt.Sprintf("the newest known point is revision %d at %s, %s later: everything written in between is left out",
			r.reach.Newest.Revision, formatTime(r.reach.Newest.Time), lost.Round(time.Second)))
	}
	return append(notes, fmt.Sprintf("everything written after %s is lost ("+age+")", end.Format(time.RFC3339), now.Sub(end).Round(time.Second)))
}

// importNotes returns notes on where an imported backup came from, how certain it is, and the newer data that it leaves out.
func importNotes(r route) []string {
	o := r.base.Origin
	notes := []string{o.String()}
	from := "by the times of the files"
	if o.Given {
		from = "by the word of the operator who imported it"
	}
	notes = append(notes, fmt.Sprintf("its data was last written at %s, %s: everything later is lost", o.Written.UTC().Format(time.RFC3339), from))
	if r.base.ClusterID == "" {
		notes = append(notes, "the file does not name its cluster id: check that it is of this cluster")
	}
	lost := r.reach.Newest.Time.Sub(o.Written)
	if lost > 0 {
		notes = append(notes, fmt.Sprintf("the newest known point of the cluster is revision %d at %s, %s later", r.reach.Newest.Revision,
			formatTime(r.reach.Newest.Time), lost.Round(time.Second)))
	}
	return notes
}

// backupNotes returns notes on the state in which b was taken.
func backupNotes(b catalog.Backup, keepAlarms bool) (notes []string) {
	if b.NoQuorum {
		notes = append(notes, "the backup was taken without a quorum: writes that its member had not received are missing")
	}
	if b.Diverged != "" {
		notes = append(notes, "the members had diverged when it was taken: "+b.Diverged)
	}
	if b.Kubernetes {
		notes = append(notes, "objects of Kubernetes that were created later are gone, but their volumes and load balancers stay until you remove them")
	}
	if b.Auth {
		notes = append(notes, "authentication is enabled in the backup: the restored cluster asks for the same passwords as before")
	}
	if b.KubernetesEncrypted {
		notes = append(notes, "Kubernetes encrypts values in it: the API server needs the same EncryptionConfiguration and keys as before")
	}
	for _, alarm := range b.Alarms {
		if keepAlarms {
			notes = append(notes, fmt.Sprintf("alarm %s stays raised", alarm))
		} else {
			notes = append(notes, fmt.Sprintf("alarm %s is cleared; its cause, such as a full quota, may raise it again", alarm))
		}
	}
	failed, bad := b.Failed()
	if bad {
		notes = append(notes, "the last verify of this backup failed: "+failed.Finding)
	}
	return notes
}

// originNotes returns notes on everything that makes it doubtful that base is a backup of the operator's own cluster. An attacker who
// may write to the repository can store a backup of another cluster there, and encrypt it: recipients are public.
func originNotes(c catalog.Catalog, base catalog.Backup) (notes []string) {
	if base.ID == "" {
		return nil
	}
	if !c.Signed {
		notes = append(notes, "unsigned: --trust was not given, so anyone who can write to the repository could have stored this backup")
	}
	b, ok := lastOther(c, base, func(b catalog.Backup) bool { return b.ClusterID == base.ClusterID })
	if ok && base.ClusterID != "" {
		notes = append(notes, fmt.Sprintf("another cluster: this backup is of cluster id %s, backup %s (%s) of %s: expected only after a restore, or for a new cluster",
			base.ClusterID, b.ID, b.Started.UTC().Format(time.RFC3339), b.ClusterID))
	}
	b, ok = lastOther(c, base, func(b catalog.Backup) bool { return readers(b) == readers(base) })
	if ok {
		notes = append(notes, fmt.Sprintf("another encryption: this backup is %s, backup %s (%s) is %s: expected only if the recipients were changed",
			readers(base), b.ID, b.Started.UTC().Format(time.RFC3339), readers(b)))
	}
	return notes
}

// lastOther returns the newest backup before base that is unlike base. If there is none, it returns the oldest one after base.
func lastOther(c catalog.Catalog, base catalog.Backup, like func(catalog.Backup) bool) (other catalog.Backup, found bool) {
	for _, b := range c.Backups { // newest first
		if like(b) {
			continue
		}
		if b.Started.Before(base.Started) {
			return b, true
		}
		other, found = b, true
	}
	return other, found
}

// readers describes who can read b.
func readers(b catalog.Backup) string {
	if b.Seal.Encryption == "" {
		return "not encrypted"
	}
	recipients := slices.Clone(b.Seal.Recipients)
	slices.Sort(recipients)
	return fmt.Sprintf("encrypted for %s", strings.Join(recipients, ", "))
}
