package document

// Replaced is the result of dr restore --replace.
type Replaced struct {
	Restore
	Replaced Swap `json:"replaced"` // the swap of the data
}

// Swap is one restore that replaces a member's data: the result of dr restore --undo and --clean, and a part of that of --replace.
type Swap struct {
	ID string `json:"id"` // for --undo and --clean
	// State is "placed" (the restored data is in use), "undone" (the old data is in use, and Aside is the restored data), "staged" (the
	// restored data was never in use) or "removed".
	State   string   `json:"state"`
	DataDir string   `json:"dataDir"`          // the member's
	WALDir  string   `json:"walDir,omitempty"` // the member's; absent if its log is in the data dir
	Aside   []string `json:"aside,omitempty"`  // directories with the data that is kept and not in use
	Undo    []string `json:"undo,omitempty"`   // the command that puts the old data back
	Clean   []string `json:"clean,omitempty"`  // the command that removes Aside
}
