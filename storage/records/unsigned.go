package records

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrUnsigned means that a process without a signing key was to write, and the newest backup is signed. Readers that trust a
// key would ignore the document.
var ErrUnsigned = fault.New(fault.Refused, "unsigned write refused")

// RefuseUnsigned returns an error that matches ErrUnsigned if the policy has no key and the newest backup is signed. Once
// the newest backup was found to be unsigned, later calls return nil without checking it again; see AllowUnsigned.
func (s *Store) RefuseUnsigned(ctx context.Context) error {
	if !s.Policy.Key.None() {
		return nil
	}
	s.unsigned.Lock()
	defer s.unsigned.Unlock()
	if s.unsigned.allowed {
		return nil
	}
	signed, err := s.NewestIsSigned(ctx)
	if err != nil {
		return err
	}
	if signed {
		return fmt.Errorf("%w: the backups of cluster %s are signed, and readers would ignore this one: pass --sign-key (DR_SIGN_KEY), "+
			"or have the service that holds the key do it (dr trigger)", ErrUnsigned, s.Cluster)
	}
	s.unsigned.allowed = true
	return nil
}

// AllowUnsigned makes RefuseUnsigned return nil from now on. The caller has found the newest backup to be unsigned.
func (s *Store) AllowUnsigned() {
	s.unsigned.Lock()
	defer s.unsigned.Unlock()
	s.unsigned.allowed = true
}
