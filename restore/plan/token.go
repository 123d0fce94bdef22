package plan

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// commonPart is everything that the members of one restored cluster must have in common. Restores with the same commonPart get the same
// token, and so form one cluster; any difference gives another token, and etcd refuses to connect the members.
type commonPart struct {
	Cluster    string
	Backup     catalog.ID
	Plain      string // digest of the backup's database
	File       string // digest of a plain file
	Log        *Log
	Salvage    *Salvage
	Members    []Member
	Bump       Bump
	KeepAlarms bool
	// KnownBefore are the cluster ids in the repository. A restored cluster that is backed up adds its id, so that a later restore of
	// the same data gets another token: a member left over from the first restore cannot join the second.
	KnownBefore []string
	Salt        string
}

// chooseToken returns the token that l names, or one derived from the commonPart.
func chooseToken(c catalog.Catalog, l Layout, p Plan) (string, error) {
	if l.Token != "" {
		return l.Token, nil
	}
	shared := commonPart{
		Cluster: c.Cluster, File: p.FileDigest, Log: p.Log, Salvage: p.Salvage, Members: p.Members, Bump: p.Bump,
		KeepAlarms: p.KeepAlarms, KnownBefore: knownClusterIDs(c), Salt: l.Salt,
	}
	if p.Backup != nil {
		shared.Backup, shared.Plain = p.Backup.ID, p.Backup.Plain.SHA256
	}
	data, err := json.Marshal(shared)
	if err != nil {
		return "", err
	}
	return deriveToken(sha256.Sum256(data), catalog.RestoreMark(c.Cluster), p.Members), nil
}

// tokenNotes returns a note if other hosts must derive the same token.
func tokenNotes(l Layout, p Plan) []string {
	if l.Token != "" || l.Salt != "" || len(p.Members) < 2 || l.Into.Name == "" {
		return nil
	}
	return []string{fmt.Sprintf("the token %s is derived from the restored data and the members: "+
		"each host's restore must print the same one, else they form no cluster", p.Token)}
}

// deriveToken returns the first token made from seed for which the cluster's id, in hex, ends in suffix.
func deriveToken(seed [sha256.Size]byte, suffix string, members []Member) string {
	encoding := base32.StdEncoding.WithPadding(base32.NoPadding)
	for n := uint64(0); ; n++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(seed[:], n))
		token := "dr-" + strings.ToLower(encoding.EncodeToString(sum[:])[:20])
		if strings.HasSuffix(fmt.Sprintf("%03x", clusterID(token, members)), suffix) {
			return token
		}
	}
}

// knownClusterIDs returns the ids of all clusters in c, sorted.
func knownClusterIDs(c catalog.Catalog) (ids []string) {
	add := func(id string) { ids = append(ids, strings.ToLower(strings.TrimLeft(id, "0"))) }
	for _, b := range c.Backups {
		add(b.ClusterID)
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			add(s.ClusterID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// clusterID returns the id that etcd computes for a new cluster, from the ids that it computes for its members
// (server/etcdserver/api/membership).
func clusterID(token string, members []Member) uint64 {
	var ids []uint64
	for _, m := range members {
		urls := strings.Join(slices.Sorted(slices.Values(m.PeerURLs)), "")
		sum := sha1.Sum([]byte(urls + token))
		ids = append(ids, binary.BigEndian.Uint64(sum[:]))
	}
	slices.Sort(ids)
	var all []byte
	for _, id := range ids {
		all = binary.BigEndian.AppendUint64(all, id)
	}
	sum := sha1.Sum(all)
	return binary.BigEndian.Uint64(sum[:])
}
