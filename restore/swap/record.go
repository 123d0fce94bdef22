package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Record is stored with the new data, as state.json. Which steps are done is not in it: the directories show that.
type Record struct {
	ID      string          `json:"id"`
	DataDir string          `json:"dataDir"`
	WALDir  string          `json:"walDir,omitempty"`
	Plan    plan.Plan       `json:"plan"`             // of the new data; Into is the member's own place
	Result  *restore.Result `json:"result,omitempty"` // nil: the new data is not complete
}

const recordName = "state.json"

// Record returns the record. The error matches fault.NotFound if there is none.
func (s *Swap) Record() (Record, error) {
	content, err := os.ReadFile(filepath.Join(s.data.folder, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("%w: no restore %s of %s is in %s: give the id and the data dir that dr restore --replace printed",
			fault.NotFound, s.ID, s.DataDir, filepath.Dir(s.data.folder))
	}
	if err != nil {
		return Record{}, err
	}
	var r Record
	err = json.Unmarshal(content, &r)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %s: %w", fault.Damaged, filepath.Join(s.data.folder, recordName), err)
	}
	return r, nil
}

func (s *Swap) write(r Record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	err = writeDurably(filepath.Join(s.data.folder, recordName), append(content, '\n'), 0o600)
	if err != nil {
		return fmt.Errorf("record the restore: %w", err)
	}
	return nil
}
