package backups

import (
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Seen remembers the backups and proofs that a survey has read, so that the next one reads only those that are new or listed
// differently. It is valid only under the same Policy: a change of the trusted keys changes the result. The zero Seen is empty.
type Seen struct {
	backups map[catalog.ID]seenBackup
	Proofs  map[string]SeenProof // by key
}

// seenBackup is a backup and the listing of its folder when it was read.
type seenBackup struct {
	listed []storage.Object
	backup catalog.Backup
}

// SeenProof is the result of reading one proof.
type SeenProof struct {
	Listed storage.Object // the object when it was read
	Proof  catalog.Proof  // zero if not Ok
	Ok     bool           // the proof counts, see Reader.ReadProof
}

// backup returns the backup of f, and reports whether it is known and f lists the same objects as when it was read.
func (s Seen) backup(f Folder) (catalog.Backup, bool) {
	known, ok := s.backups[f.ID]
	return known.backup, ok && slices.EqualFunc(known.listed, f.Objects, sameObject)
}

// sameObject reports whether a and b list the same content. It compares times too, as a listing of S3 has no versions.
func sameObject(a, b storage.Object) bool {
	return a.Key == b.Key && a.Size == b.Size && a.Version == b.Version && a.ModTime.Equal(b.ModTime)
}

// proof returns the result for u, and reports whether it is known and the listing of u has not changed since.
func (s Seen) proof(u unreadProof) (p SeenProof, known bool) {
	p, known = s.Proofs[u.listed.Key]
	return p, known && sameObject(p.Listed, u.listed)
}

// SeeBackups replaces the backups in s by those in loads that have no error and nothing ignored, up to records.Small bytes of
// documents. The loads must be parallel to folders.
func (s *Seen) SeeBackups(folders []Folder, loads []Loaded) {
	s.backups = make(map[catalog.ID]seenBackup, len(folders))
	var size int64
	for i, l := range loads {
		documents := listedBytes(folders[i:i+1], true)
		if l.Err == nil && len(l.ignored) == 0 && size+documents <= records.Small {
			size += documents
			s.backups[folders[i].ID] = seenBackup{folders[i].Objects, l.backup}
		}
	}
}
