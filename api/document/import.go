package document

import "time"

// Import is the result of dr import, unless it stores one file.
type Import struct {
	Sources []ImportSource `json:"sources"` // the files and objects that were found, in the order of their names
}

// ImportSource is a file or an object that may be a snapshot.
type ImportSource struct {
	Source   string      `json:"source"`         // its path or URL
	Tool     string      `json:"tool,omitempty"` // the tool that uses such names; absent if unknown
	Size     int64       `json:"size"`           // bytes
	Written  time.Time   `json:"written"`        // when the data was last written: the given time, that in the name, or when the object was modified
	State    ImportState `json:"state"`
	Backup   string      `json:"backup,omitempty"`   // id of the backup
	Revision int64       `json:"revision,omitempty"` // of its key space
	Why      string      `json:"why,omitempty"`      // the reason why it was skipped or has failed
}

// ImportState is the state of a source after an import.
type ImportState string

// The states.
const (
	ImportStored  ImportState = "stored"  // it is a backup now
	ImportPresent ImportState = "present" // an earlier import has stored it
	ImportSkipped ImportState = "skipped" // by its name it is no snapshot that can be imported
	ImportFailed  ImportState = "failed"
	ImportPlanned ImportState = "planned" // a dry run would store it
	ImportUntried ImportState = "untried" // the import ended before
)
