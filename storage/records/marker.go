package records

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// ErrNoMarker means that the marker of the cluster's part of the repository was removed while the process was using it.
var ErrNoMarker = fault.New(fault.Unreachable, "the repository's marker is missing")

// ErrSameID means that two repositories have the same id, so that deletions in one also apply to the other.
var ErrSameID = fault.New(fault.Refused, "it has the id of the other repository")

// Marker gives a cluster's part of a repository a random id. Two repositories can contain the same backups with the same
// names and signatures. Documents that delete or suspend contain the id, so that a copy of them in another repository has no
// effect.
type Marker struct {
	Format     int       `json:"format"`
	Cluster    string    `json:"cluster"`
	Repository string    `json:"repository"` // 32 hex digits, random
	Time       time.Time `json:"time"`       // of its creation
}

// Markers reads and writes stored markers.
var Markers = document.Kind[Marker]{Format: 1}

const markerPrefix = "repository"

// markerKey returns the key of the marker that the holder of the public keys creates. Each public key has a marker of its
// own, so that a repository can begin without signatures, or change its key.
func (s *Store) markerKey(public []string) string {
	if len(public) == 0 {
		return s.Cluster + "/" + markerPrefix + catalog.JSONSuffix
	}
	sum := sha256.Sum256([]byte(public[0]))
	return s.Cluster + "/" + markerPrefix + "-" + hex.EncodeToString(sum[:8]) + catalog.JSONSuffix
}

// markerForm is the form of markers' keys.
var markerForm = regexp.MustCompile(`^(.*/)?` + markerPrefix + `(-[0-9a-f]{16})?\.json$`)

// MarkedFolder returns the folder of a cluster, with a slash at its end, if key has the form of its marker's. The folder is "" if key
// has none.
func MarkedFolder(key string) (folder string, ok bool) {
	groups := markerForm.FindStringSubmatch(key)
	if groups == nil {
		return "", false
	}
	return groups[1], true
}

// ids returns the keys of the valid markers, by the ids in them. A marker is valid if the trusted key after which it is named has
// signed it. Without trusted keys all readable markers are valid.
func (s *Store) ids(ctx context.Context) (ids map[string]string, err error) {
	ids = map[string]string{}
	signers := map[string]sign.Trust{}
	for _, public := range s.Policy.Trust.Keys() {
		signers[s.markerKey([]string{public})], err = sign.ParseTrust(public)
		if err != nil {
			return nil, err
		}
	}
	for o, err := range s.Bucket.List(ctx, storage.ListOptions{Prefix: s.Cluster + "/" + markerPrefix}) {
		if err != nil {
			return nil, fmt.Errorf("find the marker of cluster %s: %w", s.Cluster, err)
		}
		signer, known := signers[o.Key]
		if len(signers) > 0 && !known || !strings.HasSuffix(o.Key, catalog.JSONSuffix) {
			continue
		}
		m, err := s.readMarker(ctx, o.Key, signer)
		if err == nil {
			ids[m.Repository] = o.Key
		} else if !errors.Is(err, catalog.ErrDamaged) && !IsAbsent(err) {
			return nil, err
		}
	}
	return ids, nil
}

// readMarker reads the marker under key, which signer must have signed. Errors name the key; they match catalog.ErrDamaged if
// the marker is not valid.
func (s *Store) readMarker(ctx context.Context, key string, signer sign.Trust) (m Marker, err error) {
	data, err := s.Read(ctx, key)
	if err == nil {
		err = document.Check(data, signer)
	}
	if err == nil {
		m, err = Markers.Decode(data)
	}
	if err == nil && (m.Cluster != s.Cluster || m.Repository == "") {
		err = fmt.Errorf("%w: it is the marker of cluster %s and was moved here", catalog.ErrDamaged, m.Cluster)
	}
	if err != nil {
		return Marker{}, fmt.Errorf("%s: %w", key, err)
	}
	return m, nil
}

// RepositoryID returns the id of the store's own marker, and creates the marker if it is missing. The id never changes and is
// read only once. The error matches catalog.ErrDamaged if the marker is not valid.
func (s *Store) RepositoryID(ctx context.Context) (id string, err error) {
	s.marker.Lock()
	defer s.marker.Unlock()
	if s.marker.id != "" {
		return s.marker.id, nil
	}
	ownTrust := s.Policy.Key.Trust()
	key := s.markerKey(ownTrust.Keys())
	m, err := s.readMarker(ctx, key, ownTrust)
	if IsAbsent(err) {
		m, err = s.makeMarker(ctx, key)
	}
	if errors.Is(err, storage.ErrExist) { // another process was first
		m, err = s.readMarker(ctx, key, ownTrust)
	}
	if errors.Is(err, catalog.ErrDamaged) {
		err = fmt.Errorf("%w: remove it: the next backup or deletion makes another", err)
	}
	if err != nil {
		return "", err
	}
	s.marker.id = m.Repository
	return s.marker.id, nil
}

// makeMarker creates a marker under key. The error matches storage.ErrExist if there is one.
func (s *Store) makeMarker(ctx context.Context, key string) (Marker, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	m := Marker{Format: Markers.Format, Cluster: s.Cluster, Repository: hex.EncodeToString(id), Time: time.Now().UTC()}
	data, err := Markers.Encode(m)
	if err == nil {
		err = s.CreateSigned(ctx, key, data)
	}
	if err != nil {
		return Marker{}, fmt.Errorf("make %s: %w", key, err)
	}
	return m, nil
}

// EnsureMarker creates the marker if it is missing. Callers call it after they have stored data, so that a failed write
// leaves no marker. EnsureMarker ignores errors, since the data is stored already, and a later call tries again. It tries at
// most once every markerRetry: a log is written every few seconds, and every try fails if the agent is only allowed to write
// the log.
func (s *Store) EnsureMarker(ctx context.Context) {
	s.marker.Lock()
	due := s.marker.id == "" && time.Since(s.marker.tried) >= markerRetry
	if due {
		s.marker.tried = time.Now()
	}
	s.marker.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	_, _ = s.RepositoryID(ctx)
}

const (
	markerTimeout = 15 * time.Second // the longest that EnsureMarker delays its caller
	markerRetry   = 10 * time.Minute // the least time between two tries
)

// KnownID returns the id of the store's own marker, "" if s has neither read nor created it.
func (s *Store) KnownID() string {
	s.marker.Lock()
	defer s.marker.Unlock()
	return s.marker.id
}

// CheckDistinct returns an error that matches ErrSameID if a valid marker of s has the id of a valid one of other. This happens
// if another program has copied one repository to the other, or an attacker has stored the marker of one in the other.
func (s *Store) CheckDistinct(ctx context.Context, other *Store) error {
	ids, err := s.ids(ctx)
	if err != nil {
		return err
	}
	others, err := other.ids(ctx)
	if err != nil {
		return err
	}
	for id, key := range ids {
		_, same := others[id]
		if same {
			return fmt.Errorf("%s: %w, so deletions there count here: check who stored it, and remove it", key, ErrSameID)
		}
	}
	return nil
}

// CheckMarker returns an error that matches ErrNoMarker if s has read or created its marker, and the marker is missing now.
// This happens if a file system was unmounted and its mount point is an empty directory.
func (s *Store) CheckMarker(ctx context.Context) error {
	if s.KnownID() == "" {
		return nil
	}
	key := s.markerKey(s.Policy.Key.Trust().Keys())
	_, err := s.Bucket.Stat(ctx, key)
	if IsAbsent(err) {
		return fmt.Errorf("%s: %w: mount the repository's file system, or restart dr if an operator has removed the marker", key, ErrNoMarker)
	}
	return err
}

// CheckRepository returns an error that matches catalog.ErrDamaged unless id is the id of a valid marker of this repository.
func (s *Store) CheckRepository(ctx context.Context, id string) error {
	s.marker.Lock()
	_, known := s.marker.known[id]
	s.marker.Unlock()
	if known {
		return nil
	}
	ids, err := s.ids(ctx)
	if err != nil {
		return err
	}
	_, valid := ids[id]
	if !valid {
		return fmt.Errorf("%w: it was written for another repository, and was moved here", catalog.ErrDamaged)
	}
	s.marker.Lock()
	s.marker.known = ids
	s.marker.Unlock()
	return nil
}
