package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// RestoreMark returns the three hex digits in which the ids of all clusters end that dr restore makes from what is stored
// under a cluster's name; "" stands for a plain file. etcd computes a cluster's id from the initial-cluster-token, and dr
// chooses the token. So each manifest and segment shows whether a new cluster id is that of a restore.
func RestoreMark(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:2])[:3]
}

// IsRestored reports whether a cluster id, in hex, has the mark of a restore of the named cluster or of a plain file.
// Another id has one of them by chance once in about 2000 times.
func IsRestored(cluster, clusterID string) bool {
	id := strings.ToLower(clusterID)
	return strings.HasSuffix(id, RestoreMark(cluster)) || strings.HasSuffix(id, RestoreMark(""))
}
