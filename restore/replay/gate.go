package replay

import (
	"bytes"
	"encoding/base64"
	"sort"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/lease"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"
)

// gate is the applier's auth store. It follows the rules of the server version whose requests are applied.
type gate struct {
	auth.AuthStore
	be    auth.AuthBackend
	rules rules
	lift  bool // permits everything: an older rule has already permitted the request

	// unknown is called with each user whose password a newer member hashed, so that the members of 3.4 ignored it. May be nil.
	unknown func(user string)
}

func (g *gate) IsPutPermitted(who *auth.AuthInfo, key []byte) error {
	if g.lift {
		return nil
	}
	return g.AuthStore.IsPutPermitted(who, key)
}

func (g *gate) IsRangePermitted(who *auth.AuthInfo, key, end []byte) error {
	if g.lift {
		return nil
	}
	return g.AuthStore.IsRangePermitted(who, key, end)
}

func (g *gate) IsDeleteRangePermitted(who *auth.AuthInfo, key, end []byte) error {
	if g.lift {
		return nil
	}
	return g.AuthStore.IsDeleteRangePermitted(who, key, end)
}

func (g *gate) IsAdminPermitted(who *auth.AuthInfo) error {
	if g.lift {
		return nil
	}
	return g.AuthStore.IsAdminPermitted(who)
}

// oldRulesRefuse reports whether a rule of the older version refuses r. If such a rule permits r and today's might refuse it,
// oldRulesRefuse sets lift.
func (m *member) oldRulesRefuse(r *pb.InternalRaftRequest) bool {
	m.auth.lift = false
	if !m.auth.IsAuthEnabled() {
		return false
	}
	who := &auth.AuthInfo{}
	if r.Header != nil {
		who.Username, who.Revision = r.Header.Username, r.Header.AuthRevision
	}
	switch {
	case m.rules.alarmLiftsAuth && m.alarmed:
		m.auth.lift = true
	case r.Txn != nil && m.rules.txnPutKeyOnly:
		if m.auth.checkOldTxn(who, r.Txn) != nil {
			return true
		}
		m.auth.lift = true
	case r.LeaseRevoke != nil && m.rules.leaseKeysAlways:
		return m.checkLeaseKeys(who, lease.LeaseID(r.LeaseRevoke.ID)) != nil
	}
	return false
}

// checkOldTxn checks the permissions that a transaction needed in 3.4.23 (etcdserver/apply_auth.go, checkTxnAuth).
func (g *gate) checkOldTxn(who *auth.AuthInfo, t *pb.TxnRequest) error {
	for _, c := range t.Compare {
		err := g.IsRangePermitted(who, c.Key, c.RangeEnd)
		if err != nil {
			return err
		}
	}
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			err := g.checkOldOp(who, op)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOldOp checks the permissions that one operation of a transaction needed.
func (g *gate) checkOldOp(who *auth.AuthInfo, op *pb.RequestOp) error {
	r := op.GetRequestRange()
	if r != nil {
		return g.IsRangePermitted(who, r.Key, r.RangeEnd)
	}
	p := op.GetRequestPut()
	if p != nil {
		return g.IsPutPermitted(who, p.Key)
	}
	d := op.GetRequestDeleteRange()
	if d != nil {
		if d.PrevKv {
			err := g.IsRangePermitted(who, d.Key, d.RangeEnd)
			if err != nil {
				return err
			}
		}
		return g.IsDeleteRangePermitted(who, d.Key, d.RangeEnd)
	}
	t := op.GetRequestTxn()
	if t != nil && !g.rules.nestedTxnUnchecked {
		return g.checkOldTxn(who, t)
	}
	return nil
}

// checkLeaseKeys checks the permission to write each key of a lease.
func (m *member) checkLeaseKeys(who *auth.AuthInfo, id lease.LeaseID) error {
	held := m.lessor.Lookup(id)
	if held == nil {
		return nil
	}
	for _, key := range held.Keys() {
		err := m.auth.IsPutPermitted(who, []byte(key))
		if err != nil {
			return err
		}
	}
	return nil
}

// UserAdd stores a hash of the empty password for a request of 3.4 without a password: 3.4 logs an empty and an absent password
// alike. In a mixed cluster a request that a member of 3.5 or later accepted contains a hash of the password that the client set.
// UserAdd keeps this hash, although the members of 3.4 ignored it and gave the user the empty password.
func (g *gate) UserAdd(r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	if g.rules.hashesPasswords && r.Password == "" && r.HashedPassword == "" && !r.GetOptions().GetNoPassword() {
		r = proto.Clone(r).(*pb.AuthUserAddRequest)
		r.HashedPassword = hashOfEmpty()
	} else {
		g.checkMixed(r.Name, r.HashedPassword)
	}
	return g.AuthStore.UserAdd(r)
}

// UserChangePassword treats passwords as UserAdd does.
func (g *gate) UserChangePassword(r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	if g.rules.hashesPasswords && r.Password == "" && r.HashedPassword == "" {
		r = proto.Clone(r).(*pb.AuthUserChangePasswordRequest)
		r.HashedPassword = hashOfEmpty()
	} else {
		g.checkMixed(r.Name, r.HashedPassword)
	}
	return g.AuthStore.UserChangePassword(r)
}

// checkMixed calls g.unknown if a request in a log of 3.4 contains a hash, which only a member of 3.5 or later makes.
func (g *gate) checkMixed(user, hash string) {
	if g.rules.hashesPasswords && hash != "" && g.unknown != nil {
		g.unknown(user)
	}
}

// hashOfEmpty returns a hash of the empty password, encoded as in the auth store.
func hashOfEmpty() string {
	hash, err := bcrypt.GenerateFromPassword(nil, bcryptCost)
	if err != nil {
		panic(err) // impossible: the cost is valid and the empty password is short enough
	}
	return base64.StdEncoding.EncodeToString(hash)
}

// RoleGrantPermission grants a permission. Today's store refuses one for an empty range. If the rules allow it,
// RoleGrantPermission writes it as the store of 3.4.23 did.
func (g *gate) RoleGrantPermission(r *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	response, err := g.AuthStore.RoleGrantPermission(r)
	if err == auth.ErrInvalidAuthMgmt && g.rules.emptyPermissions {
		return g.grantEmpty(r)
	}
	return response, err
}

// grantEmpty writes a permission for an empty range of keys.
func (g *gate) grantEmpty(r *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	tx := g.be.BatchTx()
	tx.Lock()
	role := tx.UnsafeGetRole(r.Name)
	if role == nil {
		tx.Unlock()
		return nil, auth.ErrRoleNotFound
	}
	at := sort.Search(len(role.KeyPermission), func(i int) bool {
		return bytes.Compare(role.KeyPermission[i].Key, r.Perm.Key) >= 0
	})
	held := role.KeyPermission
	if at < len(held) && bytes.Equal(held[at].Key, r.Perm.Key) && bytes.Equal(held[at].RangeEnd, r.Perm.RangeEnd) {
		held[at].PermType = r.Perm.PermType
	} else {
		role.KeyPermission = append(held, proto.Clone(r.Perm).(*authpb.Permission))
		sort.Sort(byKey(role.KeyPermission))
	}
	tx.UnsafePutRole(role)
	tx.UnsafeSaveAuthRevision(g.Revision() + 1)
	tx.Unlock()
	g.Recover(g.be) // reads the revision and the role again
	return &pb.AuthRoleGrantPermissionResponse{}, nil
}

// byKey sorts permissions by key for sort.Sort. etcd uses it too: as it is not stable, another algorithm could order equal keys
// differently.
type byKey []*authpb.Permission

func (p byKey) Len() int           { return len(p) }
func (p byKey) Less(i, j int) bool { return bytes.Compare(p[i].Key, p[j].Key) < 0 }
func (p byKey) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
