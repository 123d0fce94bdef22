package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// signer is a key pair for signatures.
type signer struct {
	file   string // with the secret key
	public string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sign.key")
	return signer{file, strings.TrimSpace(command.Must(t, nil, "keygen", "--signing", "--to", file))}
}

// sign stores the secret key in a Secret, and returns the EtcdBackup with fields of its repository that sign with it and trust the keys.
func (o *operated) sign(t *testing.T, with signer, object string, trusted ...string) string {
	t.Helper()
	o.api.Kubectl(t, "", "-n", "payments", "create", "secret", "generic", "sign", "--from-file=sign.key="+with.file)
	const before = "credentialsSecret: {name: store}"
	return strings.Replace(object, before, before+", signKeySecret: {name: sign}, trust: ["+strings.Join(trusted, ", ")+"]", 1)
}

// flags returns those of a verb that reads the store next to the operator, and trusts a key.
func (o *operated) flags(trusted string) []string {
	return []string{"--repo", o.store.URL(o.bucket, "etcd"), "--cluster", "payments.etcd", "--trust", trusted}
}

// trusting returns the content of the store for one who trusts a key. The exit code is another one if any of it is not signed with that.
func (o *operated) trusting(t *testing.T, key signer) (list document.List) {
	t.Helper()
	command.Run(t, o.store.Env(), append([]string{"list", "-o", "json"}, o.flags(key.public)...)...).Decode(t, &list)
	return list
}

// takes takes a backup by hand, signed with a key.
func (o *operated) takes(t *testing.T, with signer) catalog.ID {
	t.Helper()
	args := append([]string{"backup", "--plain", "--sign-key", with.file, "--endpoints", o.etcd.Endpoints()[0]}, o.flags(with.public)...)
	return command.Result[document.Backup](t, o.store.Env(), args...).ID
}

// TestOperatorSigns signs the backups of an EtcdBackup with the key in a Secret: those who trust its public key read and verify them, and
// those who trust another one see none. Of two later backups, the one whose key the EtcdBackup trusts counts, and the newer one does not.
func TestOperatorSigns(t *testing.T) {
	o := newOperated(t)
	own, person, stranger := newSigner(t), newSigner(t), newSigner(t)
	o.start(t)
	o.api.Kubectl(t, o.sign(t, own, o.object("etcd", `  schedule: {cron: "@yearly"}`), own.public, person.public), "apply", "-f", "-")
	eventually(t, "the first backup is taken", func() bool { return o.status(t, "etcd").Last.ID != "" })
	first := o.status(t, "etcd").Last.ID

	list := o.trusting(t, own)
	if len(list.Backups) != 1 || string(list.Backups[0].ID) != first || len(list.Untrusted) > 0 {
		t.Errorf("who trusts the key sees %+v", list)
	}
	list = o.trusting(t, stranger)
	if len(list.Backups) > 0 || len(list.Untrusted) != 1 || string(list.Untrusted[0].ID) != first {
		t.Errorf("who trusts another key sees %+v", list)
	}
	command.Must(t, o.store.Env(), append([]string{"verify", first, "--sign-key", own.file}, o.flags(own.public)...)...)
	command.Run(t, o.store.Env(), append([]string{"verify", first, "--sign-key", stranger.file}, o.flags(stranger.public)...)...).
		Ended(t, 3, "not signed by a trusted key")

	counts := o.takes(t, person)
	o.takes(t, stranger)
	o.service.Kill(t)
	o.start(t)
	eventually(t, "the backup of a trusted person counts", func() bool { return o.status(t, "etcd").Last.ID == string(counts) })
	o.service.Stop(t)
}
