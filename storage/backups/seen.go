package backups

import (
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Seen is what a Survey has read of backups and their proofs, so that the next one reads only what is new, or stands otherwise
// in the listing. Under a Policy that trusts other keys it does not hold. The zero Seen is nothing.
type Seen struct {
	backups map[catalog.ID]seenBackup
	Proofs  map[string]SeenProof // by key
}

type seenBackup struct {
	listed []storage.Object
	backup catalog.Backup
}

type SeenProof struct {
	Listed storage.Object
	Proof  catalog.Proof
	Ok     bool // it proves something
}

// backup is what was read of f, if all that is listed there was listed then.
func (s Seen) backup(f Folder) (catalog.Backup, bool) {
	known, ok := s.backups[f.Id]
	return known.backup, ok && slices.EqualFunc(known.listed, f.Objects, sameObject)
}

// sameObject goes by the time too: the listing of S3 has no versions.
func sameObject(a, b storage.Object) bool {
	return a.Key == b.Key && a.Size == b.Size && a.Version == b.Version && a.ModTime.Equal(b.ModTime)
}

func (s Seen) proof(u unreadProof) (p SeenProof, known bool) {
	p, known = s.Proofs[u.listed.Key]
	return p, known && sameObject(p.Listed, u.listed)
}

// seeBackups remembers those that were found whole.
func (s *Seen) SeeBackups(folders []Folder, loads []Loaded) {
	s.backups = make(map[catalog.ID]seenBackup, len(folders))
	for i, l := range loads {
		if l.Err == nil && len(l.ignored) == 0 {
			s.backups[folders[i].Id] = seenBackup{folders[i].Objects, l.backup}
		}
	}
}
