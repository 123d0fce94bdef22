package document

// Replaced is the result of dr restore --replace.
type Replaced struct {
	Restore
	Replaced Swap `json:"replaced"`
}

// Swap is one restore in the place of a member's data.
type Swap struct {
	ID      string   `json:"id"`
	State   string   `json:"state"` // placed, staged, undone or removed
	DataDir string   `json:"dataDir"`
	WALDir  string   `json:"walDir,omitempty"`
	Aside   []string `json:"aside,omitempty"` // the data that is kept and not in use
	Undo    []string `json:"undo,omitempty"`  // puts the old data back
	Clean   []string `json:"clean,omitempty"` // removes Aside
}
