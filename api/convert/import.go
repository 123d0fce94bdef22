package convert

import (
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/imported"
)

// Import returns the document of a series of imports. Its list is never nil.
func Import(outcomes []imported.Outcome) document.Import {
	d := document.Import{Sources: []document.ImportSource{}}
	for _, o := range outcomes {
		s := document.ImportSource{
			Source: o.Place, Tool: o.Name.Tool, Size: o.Size, Written: o.Written, State: document.ImportState(o.State), Backup: string(o.Backup),
			Revision: o.Revision,
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
