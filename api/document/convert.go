package document

// Convert is the result of dr convert.
type Convert struct {
	Objects []ConvertedObject `json:"objects"` // one for each object of the files, in their order
}

// ConvertedObject is an object of another operator in our form.
type ConvertedObject struct {
	From        string           `json:"from"`             // its kind, name, group and version
	Objects     []map[string]any `json:"objects"`          // of Kubernetes, that replace it; empty if there are none
	Differences []string         `json:"differences"`      // how the objects behave differently, and what is still to be done, in sentences
	Import      string           `json:"import,omitempty"` // the command that stores the snapshots of their operator as backups
	Error       string           `json:"error,omitempty"`  // why it cannot be translated
}
