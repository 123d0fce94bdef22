package records

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// ErrNoMarker: the cluster's part of the repository has lost its marker while a process was writing to it.
var ErrNoMarker = errors.New("the repository's marker is missing")

// Marker gives a cluster's part of a repository a random id. Two repositories may hold the same backups under the same names
// and signatures; what deletes or suspends carries the id, and so counts in one of them alone.
type Marker struct {
	Format     int       `json:"format"`
	Cluster    string    `json:"cluster"`
	Repository string    `json:"repository"` // 32 hex digits, random
	Time       time.Time `json:"time"`       // when it was made
}

// Markers are the stored markers.
var Markers = document.Kind[Marker]{Format: 1}

const markerPrefix = "repository"

// markerKey is the key of the marker that the holder of a signing key makes: one for each public key, so that a repository may
// begin without signatures, and get another key later.
func (s *Store) markerKey(public []string) string {
	if len(public) == 0 {
		return s.Cluster + "/" + markerPrefix + catalog.JSONSuffix
	}
	sum := sha256.Sum256([]byte(public[0]))
	return s.Cluster + "/" + markerPrefix + "-" + hex.EncodeToString(sum[:8]) + catalog.JSONSuffix
}

// ids returns the ids of the markers that count: of those that trusted keys have signed or, where none is named, of all.
func (s *Store) ids(ctx context.Context) (ids map[string]bool, err error) {
	ids = map[string]bool{}
	signers := map[string]sign.Trust{}
	for _, public := range s.Policy.Trust.Keys() {
		if signers[s.markerKey([]string{public})], err = sign.ParseTrust(public); err != nil {
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
			ids[m.Repository] = true
		} else if !errors.Is(err, catalog.ErrDamaged) && !IsAbsent(err) {
			return nil, err
		}
	}
	return ids, nil
}

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

// mark returns the id of c's own marker, which it makes if there is none yet. It looks once: an id never changes.
func (s *Store) RepositoryID(ctx context.Context) (id string, err error) {
	s.marker.Lock()
	defer s.marker.Unlock()
	if s.marker.id != "" {
		return s.marker.id, nil
	}
	own := s.Policy.Key.Trust()
	key := s.markerKey(own.Keys())
	m, err := s.readMarker(ctx, key, own)
	if IsAbsent(err) {
		m, err = s.makeMarker(ctx, key)
	}
	if errors.Is(err, storage.ErrExist) { // another process was first
		m, err = s.readMarker(ctx, key, own)
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

// markStored makes the marker, if there is none yet, after something was stored: nothing that fails leaves one behind. Its own
// failure is no reason to lose what was stored, and a later write tries again: not each, for a log has one every few seconds, and
// rights to write there alone may be all that an agent has.
func (s *Store) EnsureMarker(ctx context.Context) {
	s.marker.Lock()
	due := s.marker.id == "" && time.Since(s.marker.tried) >= markAgain
	if due {
		s.marker.tried = time.Now()
	}
	s.marker.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	_, _ = s.RepositoryID(ctx)
}

const (
	markTime  = 15 * time.Second // how long what is stored already waits for the marker
	markAgain = 10 * time.Minute // after a try that failed
)

// isMarked reports whether c has seen its marker.
func (s *Store) isMarked() bool {
	s.marker.Lock()
	defer s.marker.Unlock()
	return s.marker.id != ""
}

// checkMarked returns ErrNoMarker if c has seen its marker, and it is there no more: as where a file system is not mounted any
// more, and an empty directory is in its place.
func (s *Store) CheckMarker(ctx context.Context) error {
	if !s.isMarked() {
		return nil
	}
	key := s.markerKey(s.Policy.Key.Trust().Keys())
	_, err := s.Bucket.Stat(ctx, key)
	if IsAbsent(err) {
		return fmt.Errorf("%s: %w: is the repository's file system mounted? If somebody has removed it, start dr again", key, ErrNoMarker)
	}
	return err
}

// isHere returns an error that matches ErrDamaged unless id is that of this repository.
func (s *Store) CheckRepository(ctx context.Context, id string) error {
	s.marker.Lock()
	known := s.marker.known[id]
	s.marker.Unlock()
	if known {
		return nil
	}
	ids, err := s.ids(ctx)
	if err != nil {
		return err
	}
	if !ids[id] {
		return fmt.Errorf("%w: it was written for another repository, and was moved here", catalog.ErrDamaged)
	}
	s.marker.Lock()
	s.marker.known = ids
	s.marker.Unlock()
	return nil
}
