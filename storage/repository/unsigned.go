package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// ErrUnsigned: a policy without a key was to write where the newest backup is signed. Readers that trust a key would not
// believe what it writes.
var ErrUnsigned = errors.New("unsigned write refused")

// refuseUnsigned returns ErrUnsigned if c does not sign and the newest backup is signed. It looks once, and not at all if a
// Load has just read that backup.
func (c *Cluster) refuseUnsigned(ctx context.Context) error {
	if !c.policy.Key.None() {
		return nil
	}
	c.unsigned.Lock()
	defer c.unsigned.Unlock()
	if c.unsigned.allowed {
		return nil
	}
	signed, err := c.newestIsSigned(ctx)
	if err != nil {
		return err
	}
	if signed {
		return fmt.Errorf("%w: the backups of cluster %s are signed, and this one would count for nothing: give --sign-key (DR_SIGN_KEY), "+
			"or have the service that holds the key do it (dr trigger)", ErrUnsigned, c.name)
	}
	c.unsigned.allowed = true
	return nil
}

// allowUnsigned takes note that the newest backup is not signed.
func (c *Cluster) allowUnsigned() {
	c.unsigned.Lock()
	defer c.unsigned.Unlock()
	c.unsigned.allowed = true
}

// newestIsSigned reports whether the newest manifest that can be read has a signature, of whatever key.
func (c *Cluster) newestIsSigned(ctx context.Context) (bool, error) {
	folders, err := c.folders(ctx, LoadOptions{})
	if err != nil {
		return false, err
	}
	for _, f := range slices.Backward(folders) {
		if !f.has(catalog.ManifestName) {
			continue
		}
		data, err := c.read(ctx, catalog.ManifestKey(c.name, f.id))
		if isAbsent(err) || errors.Is(err, catalog.ErrDamaged) {
			continue
		}
		return document.Signature(data) != "", err
	}
	return false, nil
}
