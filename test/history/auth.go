package history

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

const (
	rootName     = "root"
	rootPassword = "the-root-password"
)

var (
	userNames = []string{"u0", "u1", "u2", "u3"}
	roleNames = []string{"r0", "r1", "r2"}
)

func (w *Writer) authSteps() []step {
	return []step{
		{"switch auth", 4, w.switchAuth},
		{"write as a user", 60, w.writeAsUser},
		{"add a user", 6, w.addUser},
		{"delete a user", 2, func(ctx context.Context) error {
			_, err := w.Client().UserDelete(ctx, w.userName())
			return err
		}},
		{"change a password", 4, w.changePassword},
		{"add a role", 4, func(ctx context.Context) error {
			_, err := w.Client().RoleAdd(ctx, w.roleName())
			return err
		}},
		{"delete a role", 1, func(ctx context.Context) error {
			_, err := w.Client().RoleDelete(ctx, w.roleName())
			return err
		}},
		{"grant a role", 8, func(ctx context.Context) error {
			_, err := w.Client().UserGrantRole(ctx, w.userName(), w.roleName())
			return err
		}},
		{"take a role away", 2, func(ctx context.Context) error {
			_, err := w.Client().UserRevokeRole(ctx, w.userName(), w.roleName())
			return err
		}},
		{"permit", 10, w.permit},
		{"forbid", 3, w.forbid},
	}
}

func (w *Writer) userName() string { return userNames[w.random.IntN(len(userNames))] }
func (w *Writer) roleName() string { return roleNames[w.random.IntN(len(roleNames))] }

// switchAuth turns authentication on more often than off. The first time it creates root.
func (w *Writer) switchAuth(ctx context.Context) error {
	if w.authOn && w.chance(30) {
		_, err := w.root.AuthDisable(ctx)
		w.authOn = err != nil
		w.users = map[string]*clientv3.Client{}
		return err
	}
	if w.authOn {
		return nil
	}
	if w.passwords[rootName] == "" {
		_, err := w.anonymous.UserAdd(ctx, rootName, rootPassword)
		if err != nil {
			return err
		}
		w.passwords[rootName] = rootPassword
		_, err = w.anonymous.RoleAdd(ctx, rootName)
		if err != nil {
			return err
		}
		_, err = w.anonymous.UserGrantRole(ctx, rootName, rootName)
		if err != nil {
			return err
		}
	}
	_, err := w.anonymous.AuthEnable(ctx)
	if err != nil {
		return err
	}
	w.root = w.cluster.Client(w.t, servers.As(rootName, rootPassword))
	w.authOn = true
	return nil
}

func (w *Writer) addUser(ctx context.Context) error {
	name := w.userName()
	if w.chance(15) {
		_, err := w.Client().UserAddWithOptions(ctx, name+"-cert", "", &clientv3.UserAddOptions{NoPassword: true})
		return err
	}
	password := fmt.Sprintf("%s-%d", name, w.random.IntN(1000))
	_, err := w.Client().UserAdd(ctx, name, password)
	if err == nil {
		w.takePassword(name, password)
	}
	return err
}

func (w *Writer) changePassword(ctx context.Context) error {
	name := w.userName()
	password := fmt.Sprintf("%s-%d", name, w.random.IntN(1000))
	_, err := w.Client().UserChangePassword(ctx, name, password)
	if err == nil {
		w.takePassword(name, password)
	}
	return err
}

func (w *Writer) takePassword(name, password string) {
	w.passwords[name] = password
	delete(w.users, name)
}

// permission returns a permission for one key, a prefix, or everything from a key on.
func (w *Writer) permission() (key, end string) {
	prefix := prefixes[w.random.IntN(len(prefixes))]
	switch w.random.IntN(4) {
	case 0:
		return w.key(), ""
	case 1:
		return prefix, "\x00"
	default:
		return prefix, clientv3.GetPrefixRangeEnd(prefix)
	}
}

func (w *Writer) permit(ctx context.Context) error {
	key, end := w.permission()
	kind := []clientv3.PermissionType{
		clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermWrite),
		clientv3.PermissionType(clientv3.PermReadWrite),
	}[w.random.IntN(3)]
	if w.chance(5) {
		end = "a" // before the key, which servers before 3.4.25 and 3.5.8 accept
	}
	_, err := w.Client().RoleGrantPermission(ctx, w.roleName(), key, end, kind)
	return err
}

func (w *Writer) forbid(ctx context.Context) error {
	key, end := w.permission()
	_, err := w.Client().RoleRevokePermission(ctx, w.roleName(), key, end)
	return err
}

// writeAsUser writes as a user, with or without the permission.
func (w *Writer) writeAsUser(ctx context.Context) error {
	client := w.someone()
	switch n := w.random.IntN(10); {
	case n < 4:
		return w.doAs(ctx, client, w.put())
	case n < 5:
		return w.doAs(ctx, client, clientv3.OpDelete(w.key(), w.previous()...))
	case n < 6:
		return w.doAs(ctx, client, w.deleteRange())
	default:
		return w.doAs(ctx, client, w.txn(0))
	}
}

// someone returns the client of a user who can log in, or else the client with all rights.
func (w *Writer) someone() *clientv3.Client {
	name := w.userName()
	if !w.authOn || w.passwords[name] == "" || !w.exists(name) {
		return w.Client()
	}
	if w.users[name] != nil {
		return w.users[name]
	}
	client, err := w.cluster.TryClient(w.t, servers.As(name, w.passwords[name]))
	if err != nil && refused(err) {
		return w.Client() // etcd 3.5 may compare with the password before the last one (mvcc/backend/tx_buffer.go, bucketBuffer.Range)
	}
	if err != nil {
		w.t.Fatalf("log in as %s: %v", name, err)
	}
	w.users[name] = client
	return client
}

func (w *Writer) exists(name string) bool {
	list, err := w.root.UserList(w.t.Context())
	return err == nil && slices.Contains(list.Users, name)
}

// alarm raises the alarm of a full disk by hand, writes a little, and clears the alarm.
func (w *Writer) alarm(ctx context.Context) error {
	status, err := w.Client().Status(ctx, w.cluster.Members[0].ClientURL)
	if err != nil {
		return err
	}
	maintenance := clientv3.RetryMaintenanceClient(w.Client(), w.Client().ActiveConnection())
	raise := &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
	}
	_, err = maintenance.Alarm(ctx, raise)
	if err != nil {
		return err
	}
	for range w.random.IntN(8) {
		_ = w.writeAsUser(ctx) // refused, or not
	}
	_, err = w.Client().AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
