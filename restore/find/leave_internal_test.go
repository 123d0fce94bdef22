package find

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// TestChangeDuringAStream: etcd sends the state of the moment at which the stream began. A change that the next backup shows may
// have been made while the stream went on.
func TestChangeDuringAStream(t *testing.T) {
	began := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	f := finder{read: map[catalog.ID]bool{}}
	f.leave(leg{base: catalog.Backup{Manifest: catalog.Manifest{ID: "one", Started: began, Finished: began.Add(time.Minute)}}})
	if !f.until.Equal(began) {
		t.Errorf("changes that the backup lacks count from %v on, want %v", f.until, began)
	}
}
