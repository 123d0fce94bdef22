// Package assets stores the files of a node that a control plane needs besides etcd's data: keys and certificates, kubeconfigs, the
// manifests of static pods, the encryption configuration. A version is the files of one node at one time. Two objects hold it:
//
//	<cluster>/assets/<node>/<id>/files.tar.zst.age  the files, as a tar archive that is always encrypted
//	<cluster>/assets/<node>/<id>/manifest.json      a Manifest, written last, create-only: the version exists once it is stored
//
// Nothing deletes a version. An archive whose manifest could not be stored stays, and no listing shows it.
package assets

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Access stores and reads the assets of one cluster.
type Access struct{ store *records.Store }

// New returns access to the assets of the store's cluster.
func New(store *records.Store) *Access { return &Access{store} }

func (a *Access) prefix() string { return a.store.Cluster + "/assets/" }

func (a *Access) key(node string, id ID, name string) string {
	return a.prefix() + node + "/" + string(id) + "/" + name
}

// ManifestKey returns the key of m's manifest.
func (a *Access) ManifestKey(m Manifest) string { return a.key(m.Node, m.ID, catalog.ManifestName) }

// ArchiveKey returns the key of m's archive.
func (a *Access) ArchiveKey(m Manifest) string { return a.key(m.Node, m.ID, m.Stored.Name) }

// Store stores files as a new version of m.Node, sealed for the recipients. m has Node, Time and Paths; Store returns it complete.
// Errors match ErrNotEncrypted without recipients, and records.ErrUnsigned and records.ErrNoMarker as for backups.
func (a *Access) Store(ctx context.Context, m Manifest, files []File, to seal.Recipients) (Manifest, error) {
	err := RefusePlain(to)
	if err == nil {
		err = a.store.RefuseUnsigned(ctx)
	}
	if err == nil {
		err = a.store.CheckMarker(ctx)
	}
	var archive []byte
	if err == nil {
		archive, err = Pack(files)
	}
	if err == nil {
		archive, err = seal.Bytes(archive, to)
	}
	if err == nil {
		m.Format, m.Cluster, m.Time = Manifests.Format, a.store.Cluster, m.Time.UTC()
		m.ID, m.Files, m.Seal, m.Stored = newID(m), Entries(files), to.Seal(), blobOf(archive, archiveName+to.Seal().Extension())
		err = a.put(ctx, m, archive)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("store the assets of node %s: %w", m.Node, err)
	}
	a.store.EnsureMarker(ctx)
	return m, nil
}

// RefusePlain returns an error that matches ErrNotEncrypted without recipients.
func RefusePlain(to seal.Recipients) error {
	if to.Seal().Encryption != "" {
		return nil
	}
	return fmt.Errorf("%w: pass --recipient (DR_RECIPIENT) or --passphrase-file", ErrNotEncrypted)
}

func newID(m Manifest) ID {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	return ID(m.Time.Format(idSecond) + "-" + hex.EncodeToString(random))
}

func blobOf(data []byte, name string) catalog.Blob {
	sum := sha256.Sum256(data)
	return catalog.Blob{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// put stores the two objects of m, the manifest last.
func (a *Access) put(ctx context.Context, m Manifest, archive []byte) error {
	data, err := Manifests.Encode(m)
	if err != nil {
		return err
	}
	err = a.store.Create(ctx, a.ArchiveKey(m), bytes.NewReader(archive), m.Stored.Size)
	if err != nil {
		return err
	}
	return a.store.CreateSigned(ctx, a.ManifestKey(m), data)
}

// Version is a stored version.
type Version struct {
	Manifest
	Listed int64 // bytes of the stored manifest
	// Err is nil, or the reason why the version cannot be used: it matches catalog.ErrDamaged and, if the policy trusts keys,
	// sign.ErrUntrusted. Then only Node and ID of the manifest are set.
	Err error
}

// List returns the versions of a node, or of all nodes for "", newest first.
func (a *Access) List(ctx context.Context, node string) ([]Version, error) {
	all, err := a.folders(ctx)
	if err != nil {
		return nil, err
	}
	if node != "" {
		all = slices.DeleteFunc(all, func(f folder) bool { return f.node != node })
	}
	return a.read(ctx, all)
}

// Find returns the version of the node called id, or its newest one for "". It skips versions that no trusted key has signed, and
// returns them as ignored, if the policy trusts keys. A damaged version is an error. The error matches catalog.ErrNotFound, and names
// the nodes that have versions, if the node has no such version.
func (a *Access) Find(ctx context.Context, node string, id ID) (m Manifest, ignored []Version, err error) {
	all, err := a.folders(ctx)
	if err != nil {
		return Manifest{}, nil, err
	}
	for _, f := range all {
		if f.node != node || id != "" && f.id != id {
			continue
		}
		versions, err := a.read(ctx, []folder{f})
		if err != nil {
			return Manifest{}, ignored, err
		}
		v := versions[0]
		if errors.Is(v.Err, sign.ErrUntrusted) && id == "" {
			ignored = append(ignored, v)
			continue
		}
		if v.Err != nil && id == "" {
			v.Err = fmt.Errorf("the newest version %s of node %s: %w: name an older one (dr assets list)", v.ID, node, v.Err)
		}
		return v.Manifest, ignored, v.Err
	}
	return Manifest{}, ignored, a.notFound(all, node, id)
}

// Around returns the newest version of the node that was taken at a time or before, and the oldest later one: between the two its files may
// have changed at any time. It returns one version if there is no other, and skips those that no trusted key has signed, and damaged ones. The
// error matches catalog.ErrNotFound if the node has none.
func (a *Access) Around(ctx context.Context, node string, at time.Time) (around []Manifest, err error) {
	all, err := a.folders(ctx)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(all), func(f folder) bool { return f.node != node })
	second := at.UTC().Format(idSecond)
	i := slices.IndexFunc(own, func(f folder) bool { return string(f.id)[:len(second)] <= second }) // the newest come first
	if i < 0 {
		i = len(own)
	}
	later := slices.Clone(own[:i])
	slices.Reverse(later)
	for _, side := range [][]folder{own[i:], later} {
		m, found, err := a.firstUsable(ctx, side)
		if err != nil {
			return nil, err
		}
		if found {
			around = append(around, m)
		}
	}
	if len(around) == 0 {
		return nil, a.notFound(all, node, "")
	}
	return around, nil
}

// firstUsable returns the first version that can be used.
func (a *Access) firstUsable(ctx context.Context, all []folder) (m Manifest, found bool, err error) {
	for _, f := range all {
		versions, err := a.read(ctx, []folder{f})
		if err != nil {
			return Manifest{}, false, err
		}
		if versions[0].Err == nil {
			return versions[0].Manifest, true, nil
		}
	}
	return Manifest{}, false, nil
}

// notFound returns the error for a version that is not in the repository. A version of that ID may belong to another node.
func (a *Access) notFound(all []folder, node string, id ID) error {
	var nodes []string
	for _, f := range all {
		nodes = append(nodes, f.node)
		if id != "" && f.id == id && f.node != node {
			return fmt.Errorf("version %s of node %s is %w: it belongs to node %s: pass --node %s to use it", id, node, catalog.ErrNotFound, f.node, f.node)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	switch {
	case len(nodes) == 0:
		return fmt.Errorf("a version of the assets of cluster %s is %w: take the first with dr assets backup", a.store.Cluster, catalog.ErrNotFound)
	case slices.Contains(nodes, node):
		return fmt.Errorf("version %s of node %s is %w: dr assets list shows the versions", cmp.Or(string(id), "a trusted one"), node, catalog.ErrNotFound)
	}
	return fmt.Errorf("node %s is %w: there are versions of %s: choose one with --node", node, catalog.ErrNotFound, strings.Join(nodes, ", "))
}

// folder is the listing of one version.
type folder struct {
	node  string
	id    ID
	sizes map[string]int64 // bytes of each object, by its name
}

// complete reports whether the version has a manifest.
func (f folder) complete() bool {
	_, ok := f.sizes[catalog.ManifestName]
	return ok
}

// folders returns the folders of all versions that have a manifest, newest first.
func (a *Access) folders(ctx context.Context) ([]folder, error) {
	var all []folder
	listed := 0
	for o, err := range a.store.Bucket.List(ctx, storage.ListOptions{Prefix: a.prefix()}) {
		if err != nil {
			return nil, fmt.Errorf("list the assets of cluster %s: %w", a.store.Cluster, err)
		}
		node, id, name, ok := a.split(o.Key)
		if !ok { // another program has written the object
			continue
		}
		listed++
		if listed > records.MaxListed {
			return nil, records.TooMany(a.prefix())
		}
		n := len(all)
		if n == 0 || all[n-1].node != node || all[n-1].id != id {
			all = append(all, folder{node: node, id: id, sizes: map[string]int64{}})
		}
		all[len(all)-1].sizes[name] = o.Size
	}
	all = slices.DeleteFunc(all, func(f folder) bool { return !f.complete() })
	slices.SortStableFunc(all, func(x, y folder) int { return cmp.Or(cmp.Compare(y.id, x.id), cmp.Compare(x.node, y.node)) })
	return all, nil
}

// split returns the parts of the key of an object of a version.
func (a *Access) split(key string) (node string, id ID, name string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, a.prefix()), "/")
	if len(parts) != 3 || ValidNode(parts[0]) != nil {
		return "", "", "", false
	}
	id, err := ParseID(parts[1])
	return parts[0], id, parts[2], err == nil
}

const readers = 8 // manifests that are read at the same time

// read reads the manifests of the folders.
func (a *Access) read(ctx context.Context, all []folder) ([]Version, error) {
	var size int64
	for _, f := range all {
		size += records.Listed(f.sizes[catalog.ManifestName])
	}
	allowed, err := records.NewAllowance(ctx, size, 0)
	if err != nil {
		return nil, fmt.Errorf("read the assets of cluster %s: %w", a.store.Cluster, err)
	}
	defer allowed.Close()
	versions := make([]Version, len(all))
	err = records.Parallel(ctx, readers, len(all), func(ctx context.Context, i int) error {
		f := all[i]
		key := a.key(f.node, f.id, catalog.ManifestName)
		if !allowed.Take(f.sizes[catalog.ManifestName]) {
			versions[i] = Version{Manifest: Manifest{Node: f.node, ID: f.id}, Err: records.NotRead(key)}
			return nil
		}
		m, err := a.manifest(ctx, f)
		if err != nil {
			m, err = Manifest{Node: f.node, ID: f.id}, fmt.Errorf("%s: %w", key, err)
		}
		versions[i] = Version{m, f.sizes[catalog.ManifestName], err}
		if err != nil && !errors.Is(err, catalog.ErrDamaged) {
			return err
		}
		return nil
	})
	return versions, err
}

// manifest reads the manifest in f and checks it against the listing. Without a valid signature of a trusted key nothing about the
// version is trusted, so damage then matches sign.ErrUntrusted too.
func (a *Access) manifest(ctx context.Context, f folder) (m Manifest, err error) {
	data, err := a.store.ReadSigned(ctx, a.key(f.node, f.id, catalog.ManifestName))
	if err == nil {
		m, err = Manifests.Decode(data)
	}
	if err == nil && (m.ID != f.id || m.Node != f.node || m.Cluster != a.store.Cluster) {
		err = fmt.Errorf("%w: it belongs to version %s of node %s of cluster %s and was moved here", catalog.ErrDamaged, m.ID, m.Node, m.Cluster)
	}
	if errors.Is(err, catalog.ErrDamaged) && !a.store.Policy.Trust.None() && !errors.Is(err, sign.ErrUntrusted) {
		err = fmt.Errorf("%w: %w", sign.ErrUntrusted, err)
	}
	if err != nil {
		return Manifest{}, err
	}
	size, ok := f.sizes[m.Stored.Name]
	if !ok || size != m.Stored.Size {
		return Manifest{}, fmt.Errorf("%w: the archive is missing or has another size than in the manifest", catalog.ErrDamaged)
	}
	return m, nil
}

// Archive returns the sealed archive of m. The error matches catalog.ErrDamaged unless its digest equals that in m.
func (a *Access) Archive(ctx context.Context, m Manifest) ([]byte, error) {
	data, err := a.store.ReadUpTo(ctx, a.ArchiveKey(m), m.Stored.Size)
	if records.IsAbsent(err) {
		err = fmt.Errorf("%w: the archive is missing, although its manifest exists", catalog.ErrDamaged)
	}
	if err == nil && blobOf(data, m.Stored.Name) != m.Stored {
		err = fmt.Errorf("%w: its sha256 differs from its manifest", catalog.ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.ArchiveKey(m), err)
	}
	return data, nil
}

// Fetch returns the files of m, all of them checked. Errors match catalog.ErrDamaged, or seal.ErrWrongKey without the right key.
func (a *Access) Fetch(ctx context.Context, m Manifest, keys seal.Keys) ([]File, error) {
	sealed, err := a.Archive(ctx, m)
	if err != nil {
		return nil, err
	}
	files, err := open(sealed, m, keys)
	if errors.Is(err, seal.ErrDamaged) {
		err = fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.ArchiveKey(m), err)
	}
	return files, nil
}

// open returns the files in a sealed archive, whose entries must be those of m.
func open(sealed []byte, m Manifest, keys seal.Keys) ([]File, error) {
	opened, err := seal.Open(bytes.NewReader(sealed), m.Seal, keys)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	archive, err := io.ReadAll(io.LimitReader(opened, maxSealed+1))
	if err != nil {
		return nil, err
	}
	if len(archive) > maxSealed {
		return nil, fmt.Errorf("%w: the archive has more than %d bytes", catalog.ErrDamaged, maxSealed)
	}
	files, err := Unpack(archive)
	if err == nil && !slices.Equal(Entries(files), m.Files) {
		err = fmt.Errorf("%w: the archive has other files than its manifest", catalog.ErrDamaged)
	}
	return files, err
}
