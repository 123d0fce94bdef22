package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// RestoreMark returns three hex digits. The id of every cluster that dr restores from backups of the named cluster ends with
// them; the empty name stands for a plain snapshot file. etcd computes a cluster's id from the initial-cluster-token, which
// dr chooses. So each manifest and segment shows whether a restore made its cluster.
func RestoreMark(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:2])[:3]
}

// IsRestored reports whether clusterID, in hex, ends with the mark of a restore of the named cluster or of a plain file.
// About one other id in 2000 ends with one of them by chance.
func IsRestored(cluster, clusterID string) bool {
	id := strings.ToLower(clusterID)
	return strings.HasSuffix(id, RestoreMark(cluster)) || strings.HasSuffix(id, RestoreMark(""))
}
