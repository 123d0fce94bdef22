package records

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrUnsigned: a policy without a key was to write where the newest backup is signed. Readers that trust a key would not
// believe what it writes.
var ErrUnsigned = fault.New(fault.Refused, "unsigned write refused")

// refuseUnsigned returns ErrUnsigned if c does not sign and the newest backup is signed. It looks once, and not at all if a
// Load has just read that backup.
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
		return fmt.Errorf("%w: the backups of cluster %s are signed, and this one would count for nothing: give --sign-key (DR_SIGN_KEY), "+
			"or have the service that holds the key do it (dr trigger)", ErrUnsigned, s.Cluster)
	}
	s.unsigned.allowed = true
	return nil
}

// allowUnsigned takes note that the newest backup is not signed.
func (s *Store) AllowUnsigned() {
	s.unsigned.Lock()
	defer s.unsigned.Unlock()
	s.unsigned.allowed = true
}
