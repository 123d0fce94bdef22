package document

// BackupResult is the result of dr backup, dr import and dr salvage --to-repository.
type BackupResult struct {
	Backup
	Stores []BackupStore `json:"stores"` // one for each --repo
}

// BackupStore is the result of a backup in one repository.
type BackupStore struct {
	Repository string `json:"repository"`        // its URL
	Stored     bool   `json:"stored"`            // the backup is there
	Message    string `json:"message,omitempty"` // why it is not there
}
