package backup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
)

// The first backup in a repository is noted: the directory may be empty because its file system is not mounted.
func TestFirstBackupIsNoted(t *testing.T) {
	r, _ := request(t)
	to := memories(2).stores(t)
	for _, test := range []struct {
		to   []backup.Store
		want []string // repositories
	}{
		{to[:1], []string{nameOf(0)}},
		{to, []string{nameOf(1)}},
		{to, nil},
	} {
		var noted []string
		_, err := backup.RunOfStream(t.Context(), []byte("own"), test.to, r, func(e storage.Event) {
			if strings.Contains(e.Message, "mounted") && e.Level == storage.Note {
				noted = append(noted, e.Object)
			}
		})
		if err != nil || !slices.Equal(noted, test.want) {
			t.Errorf("the first backup is noted in %q, want %q; %v", noted, test.want, err)
		}
	}
}
