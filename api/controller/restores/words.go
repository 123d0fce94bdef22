package restores

import "strings"

// fields replaces the flags in remedies with the fields of an EtcdRestore. Of several that match, the first counts.
var fields = strings.NewReplacer(
	": name running members with --endpoints or ETCDCTL_ENDPOINTS", "",
	": name members of one cluster with --endpoints", "",
	"restore that, or add --best", "restore that, or set best: true",
	"--skip-plain leaves out unencrypted objects, --allow-plain uses them", "set allowPlain: true to use it",
	"pass --old-is-dead if that is a different cluster", "set clone: true if that is a different cluster",
	"name all members with --initial-cluster name=url,…", "list all members in spec.into.members",
	"name them with --initial-cluster name=url,…", "list them in spec.into.members",
	"give each its own name with --initial-cluster name=url,…", "give each its own name in spec.into.members",
	"name the members with --initial-cluster", "list the members in spec.into.members",
	"give each its own with --initial-cluster", "give each its own in spec.into.members",
	"--initial-cluster chooses", "spec.into.members chooses",
	"pass --initial-cluster", "set spec.into.members",
	"--initial-cluster has", "spec.into.members has",
	"with --initial-cluster", "with spec.into.members set",
	"name etcd's --wal-dir with --wal-dir", "set spec.into.walDir to etcd's --wal-dir",
	"name the directory that etcd's --wal-dir names", "set it to etcd's --wal-dir",
	"name where the log is now with --wal-dir", "set spec.into.walDir to where the log is now",
	"if etcd has a --wal-dir", "if etcd has a --wal-dir",
	"omit --wal-dir", "omit spec.into.walDir",
	"name the members as they are with --initial-cluster:", "name the members in spec.into.members as they are:",
	"pass --data-dir", "set spec.into.dataDir",
	"pass --wal-dir", "set spec.into.walDir",
	"--wal-dir /", "spec.into.walDir /",
	"pass --container with one of", "set spec.into.container to one of",
	"pass --confirm ", "create an EtcdRestore with spec.confirm: ",
	"use --bump-revision ", "use spec.bumpRevision ",
	"use a smaller --bump-revision", "use a smaller spec.bumpRevision",
	"--bump-revision ", "spec.bumpRevision ",
	"take an older one, or pass --allow-corrupt", "take an older one",
	"unsigned: --trust was not given", "unsigned: no key is trusted (trust, or signKeySecret, of the repository)",
	"check --repo and --cluster, name an imported one by its ID (dr list), or take one with dr backup",
	"check the repository's url and the name of the cluster, or name an imported one in spec.target.backup (dr list)",
	"--to-revision ", "spec.target.revision ",
	"--to ", "spec.target.time ",
	"--lineage ", "spec.target.lineage ",
	"the backup's ID, ", "spec.target.backup ",
	"--cacert, --cert and --key", "spec.access.tlsSecret",
	"--cacert", "spec.access.tlsSecret",
	"--cert and --key", "spec.access.tlsSecret",
	"--cert, --key", "spec.access.tlsSecret",
	"pass --user", "set spec.access.authSecret",
	"--user", "spec.access.authSecret",
	"pass --sign-key (DR_SIGN_KEY), or have the service that holds the key do it (dr trigger)", "set signKeySecret of the repository",
)

// allFields returns texts with fields in place of flags.
func allFields(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, fields.Replace(text))
	}
	return all
}
