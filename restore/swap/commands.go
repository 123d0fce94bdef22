package swap

import (
	"al.essio.dev/pkg/shellescape"
)

// UndoCommand returns the command that puts the old data of s back.
func (s *Swap) UndoCommand() []string { return command("--undo", s.ID, s.DataDir) }

// CleanCommand returns the command that removes the data that s keeps aside.
func (s *Swap) CleanCommand() []string { return command("--clean", s.ID, s.DataDir) }

func command(flag, id, dataDir string) []string {
	return []string{"dr", "restore", flag, id, "--data-dir", dataDir}
}

func (s *Swap) undoText() string { return shellescape.QuoteCommand(s.UndoCommand()) }
