package assets

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// ErrNotEncrypted means that a version was to be stored without encryption. Private keys are never stored so.
var ErrNotEncrypted = fault.New(fault.Refused, "assets are stored only encrypted, as they contain private keys")

// ID names one version of a node's assets. IDs sort by the second at which they were taken.
type ID string

var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$`)

// idSecond is the layout of an ID's time.
const idSecond = "20060102T150405Z"

// ParseID returns text as an ID. The error matches catalog.ErrName.
func ParseID(text string) (ID, error) {
	if !idForm.MatchString(text) {
		return "", fmt.Errorf("%w: version %q: use an ID like 20261121T092433Z-3f9a1c02", catalog.ErrName, text)
	}
	return ID(text), nil
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// ValidNode returns an error that matches catalog.ErrName unless name is a valid name of a node: a host name.
func ValidNode(name string) error {
	if !nodeName.MatchString(name) {
		return fmt.Errorf("%w: node %q: use 1 to 253 letters, digits, '.', '_' and '-', starting with a letter or digit", catalog.ErrName, name)
	}
	return nil
}

// Manifest is the description of one version of a node's assets. It contains no digest of a single file: a weak
// secret could be guessed from it.
type Manifest struct {
	Format  int          `json:"format"`
	Cluster string       `json:"cluster"` // name of the cluster in the repository
	Node    string       `json:"node"`    // host name, or the name that the operator gave
	ID      ID           `json:"id"`      // of this version
	Time    time.Time    `json:"time"`    // when the files were read, by the node's clock
	Paths   []string     `json:"paths"`   // that were stored with everything below them, where they existed; may be patterns
	Files   []Entry      `json:"files"`   // by path
	Seal    seal.Seal    `json:"seal"`    // how the archive is compressed and encrypted
	Stored  catalog.Blob `json:"stored"`  // the archive: a tar file, sealed
}

// Manifests reads and writes stored manifests.
var Manifests = document.Kind[Manifest]{Format: 1, Check: Manifest.check}

const (
	archiveName = "files.tar"
	// maxSealed limits the bytes of a sealed archive: its content, and at most 16 KiB for each entry and for the encryption.
	maxSealed = MaxBytes + MaxEntries<<14
)

func (m Manifest) check() error {
	_, err := ParseID(string(m.ID))
	if err == nil {
		err = ValidNode(m.Node)
	}
	if err == nil {
		err = catalog.ValidCluster(m.Cluster)
	}
	if err == nil {
		err = m.Seal.Validate()
	}
	switch {
	case err != nil:
		return err
	case m.Seal.Encryption == "":
		return errors.New("it is not encrypted")
	case m.Stored.Name != archiveName+m.Seal.Extension():
		return fmt.Errorf("its archive is called %q", m.Stored.Name)
	case m.Stored.Size <= 0 || m.Stored.Size > maxSealed:
		return fmt.Errorf("its archive has %d bytes", m.Stored.Size)
	}
	return checkEntries(m.Files)
}

// Bytes returns the size of all files.
func (m Manifest) Bytes() (sum int64) {
	for _, e := range m.Files {
		sum += e.Size
	}
	return sum
}
