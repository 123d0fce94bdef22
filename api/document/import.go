package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/restore/imported"
)

// Import is the result of dr import, unless it stores one file.
type Import struct {
	Sources []ImportSource `json:"sources"` // the files and objects that were found, in the order of their names
}

// ImportSource is a file or an object that may be a snapshot.
type ImportSource struct {
	Source   string         `json:"source"`         // its path or URL
	Tool     string         `json:"tool,omitempty"` // that gives such names; absent if unknown
	Size     int64          `json:"size"`           // bytes
	Written  time.Time      `json:"written"`        // when the data was last written: as given, as the name tells, or when the object was modified
	State    imported.State `json:"state"`
	Backup   string         `json:"backup,omitempty"`   // id of the backup
	Revision int64          `json:"revision,omitempty"` // of its key space
	Why      string         `json:"why,omitempty"`      // the reason why it was skipped or has failed
}

// NewImport returns the document of a series. Its list is never nil.
func NewImport(outcomes []imported.Outcome) Import {
	d := Import{Sources: []ImportSource{}}
	for _, o := range outcomes {
		s := ImportSource{
			Source: o.Place, Tool: o.Name.Tool, Size: o.Size, Written: o.Written, State: o.State, Backup: string(o.Backup), Revision: o.Revision,
		}
		switch o.State {
		case imported.Skipped:
			s.Why = o.Name.Unusable
		case imported.Failed:
			s.Why = o.Err.Error()
		}
		d.Sources = append(d.Sources, s)
	}
	return d
}
