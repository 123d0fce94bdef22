package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	restored "github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

func (a *app) assets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Back up and restore a control plane's keys, certificates and configuration",
		Long: `A backup of etcd lacks the files that a control plane also needs: keys and certificates, kubeconfigs, the manifests of static
pods, and the encryption configuration, without which no Secret that is encrypted at rest can be read. assets stores them, always
encrypted, beside the backups of the cluster, and restores them. Run it as root on each node of the control plane.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.assetsBackup(), a.assetsList(), a.assetsDiff(), a.assetsRestore())
	return cmd
}

// nodeFlags selects a node, and the directory at which its paths begin.
type nodeFlags struct{ name, root string }

func (f *nodeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "node", "", "name of the node in the repository (default: the host name)")
	cmd.Flags().StringVar(&f.root, "root", "/", "directory at which the node's paths begin, such as the mount point of its disk")
}

// check sets the defaults.
func (f *nodeFlags) check() (err error) {
	if f.root == "" {
		return usagef("--root is empty: leave it out, or pass a directory")
	}
	if f.name == "" {
		f.name, err = os.Hostname()
	}
	if err != nil {
		return usagef("the host name is unknown: pass --node: %w", err)
	}
	return assets.ValidNode(f.name)
}

// assetsBackupFlags holds the flags of dr assets backup.
type assetsBackupFlags struct {
	node nodeFlags
	to   sealFlags
	keys keyFlags
}

func (f *assetsBackupFlags) add(cmd *cobra.Command, a *app) {
	f.node.add(cmd)
	f.to.addRecipients(cmd, a.getenv)
	f.keys.addIdentity(cmd, a.getenv)
	a.repositoryFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.outputFlag(cmd)
}

// request returns the request to store the paths besides the defaults.
func (f *assetsBackupFlags) request(paths []string) (r taken.Request, err error) {
	err = f.node.check()
	if err != nil {
		return r, err
	}
	r = taken.Request{Node: f.node.name, Root: f.node.root, Paths: paths, Now: time.Now()}
	r.To, err = f.to.load()
	if err == nil {
		err = assets.RefusePlain(r.To) // before the repository is created
	}
	if err != nil {
		return r, err
	}
	f.keys.passphraseFile = f.to.passphraseFile
	r.Keys, err = f.keys.load()
	return r, err
}

func (a *app) assetsBackup() *cobra.Command {
	var f assetsBackupFlags
	cmd := &cobra.Command{
		Use:   "backup [PATH…]",
		Short: "Store this node's assets",
		Long: `backup stores, as far as they exist: /etc/kubernetes/pki, /etc/kubernetes/*.conf, /etc/kubernetes/manifests, the kubelet's
config.yaml, kubeadm-flags.env and pki in /var/lib/kubelet, the files that the flags of the static pods name, such as
--encryption-provider-config, and each PATH. Owner, group, mode and symbolic links are kept, and a link's target is stored too.

The files are always encrypted: a recipient or a passphrase is required. With an identity that opens the newest version, backup
compares first and stores nothing if nothing has changed. A file that cannot be read is an error; sockets, pipes and devices are
skipped and reported. A version may have 64 MiB.`,
		Example: `  dr assets backup --repo s3://backups/etcd --cluster prod --recipient age1…
  dr assets backup /etc/containerd/config.toml /etc/systemd/system/kubelet.service.d`,
	}
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := f.request(args)
		if err == nil {
			err = a.store.checkSigner()
		}
		if err != nil {
			return err
		}
		c, err := a.create(cmd.Context())
		if err != nil {
			return err
		}
		result, err := taken.Take(cmd.Context(), c, r)
		if err != nil {
			return err
		}
		return a.printAssetsBackup(convert.AssetsBackup(result))
	}
	return cmd
}

func (a *app) printAssetsBackup(d document.AssetsBackup) error {
	for _, p := range d.Missing {
		a.warnf("WARNING: %s does not exist, although a static pod or a link names it", p)
	}
	for _, s := range d.Skipped {
		a.warnf("WARNING: %s is not stored: %s", s.Path, s.Reason)
	}
	if a.output == "json" {
		return a.document(d)
	}
	v := d.Version
	if d.Unchanged {
		a.printf("nothing has changed since version %s of node %s: nothing is stored\n", v.ID, v.Node)
		return nil
	}
	a.printf("version %s of the assets of node %s is stored\n", v.ID, v.Node)
	a.facts("files", filesText(v), "stored", fmt.Sprintf("%s, encrypted for %s", size(v.Stored.Size), strings.Join(v.Seal.Recipients, ", ")))
	return nil
}

// filesText returns the number of files and their size.
func filesText(m assets.Manifest) string {
	n := 0
	for _, e := range m.Files {
		if e.Kind == assets.Regular {
			n++
		}
	}
	return fmt.Sprintf("%d, %s", n, size(m.Bytes()))
}

func (a *app) assetsList() *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the stored versions of the nodes' assets",
		Long: `list shows the versions in the repository, newest first. With -o json it shows the paths, owners, modes and sizes of their
files too. A version that cannot be used is shown as damaged or, with --trust, as not trusted; then the exit code is 3.`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&node, "node", "", "list only this node (default: all)")
	a.readFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		clusters, err := a.clusters(cmd.Context())
		if err != nil {
			return err
		}
		return a.listAssets(cmd.Context(), clusters, node)
	}
	return cmd
}

func (a *app) listAssets(ctx context.Context, clusters []*repository.Cluster, node string) error {
	list := document.NewAssets()
	var rows [][]string
	var unusable error
	now := time.Now()
	for _, c := range clusters {
		versions, err := c.Assets().List(ctx, node)
		if err != nil {
			return err
		}
		list.Add(c.Name(), versions)
		for _, v := range versions {
			rows = append(rows, assetsRow(c.Name(), v, now))
			unusable = errors.Join(unusable, v.Err)
		}
	}
	if a.output == "json" {
		return errors.Join(a.document(list), unusable)
	}
	if len(rows) == 0 {
		return errNoAssets
	}
	a.table([]string{"CLUSTER", "NODE", "ID", "TAKEN", "FILES", "STORED"}, rows)
	return unusable
}

// errNoAssets means that the selected clusters and nodes have no version.
var errNoAssets = fault.Mark(fault.NotFound, errors.New("no assets are stored: check --cluster and --node, or store them with dr assets backup"))

func assetsRow(cluster string, v assets.Version, now time.Time) []string {
	switch {
	case errors.Is(v.Err, sign.ErrUntrusted):
		return []string{cluster, v.Node, string(v.ID), "-", "NOT TRUSTED", "-"}
	case v.Err != nil:
		return []string{cluster, v.Node, string(v.ID), "-", "DAMAGED", "-"}
	}
	return []string{cluster, v.Node, string(v.ID), age(v.Time, now), filesText(v.Manifest), size(v.Stored.Size)}
}

// versionFlags selects a version and the keys that open it.
type versionFlags struct {
	node nodeFlags
	keys keyFlags
}

func (f *versionFlags) add(cmd *cobra.Command, a *app) {
	f.node.add(cmd)
	f.keys.add(cmd, a.getenv)
	a.readFlags(cmd)
	a.outputFlag(cmd)
}

// request returns the request to restore the version that the argument and the flags name, and its cluster.
func (f *versionFlags) request(ctx context.Context, a *app, args []string) (*repository.Cluster, restored.Request, error) {
	var r restored.Request
	id, err := parseVersion(args)
	if err == nil {
		err = f.node.check()
	}
	if err == nil {
		r.Keys, err = f.keys.load()
	}
	if err != nil {
		return nil, r, err
	}
	c, err := a.open(ctx)
	if err != nil {
		return nil, r, err
	}
	var ignored []assets.Version
	r.Root = f.node.root
	r.Version, ignored, err = c.Assets().Find(ctx, f.node.name, id)
	for _, v := range ignored {
		a.warnf("WARNING: ignored: %v", v.Err)
	}
	return c, r, err
}

// parseVersion is parseID for a version of assets.
func parseVersion(args []string) (assets.ID, error) {
	if len(args) == 0 || args[0] == "latest" {
		return "", nil
	}
	return assets.ParseID(args[0])
}

func (a *app) assetsDiff() *cobra.Command {
	var f versionFlags
	cmd := &cobra.Command{
		Use:   "diff [VERSION|latest]",
		Short: "Show how this node's files differ from a stored version",
		Long: `diff shows the files that are missing on the node, are new there, or have another content, target, owner or mode than in the
version (default: the newest of the node). It never prints the content of a file.`,
		Args: atMostOne("version"),
	}
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, r, err := f.request(cmd.Context(), a, args)
		if err != nil {
			return err
		}
		compared, err := restored.Diff(cmd.Context(), c, r.Version, r.Keys, r.Root)
		if err != nil {
			return err
		}
		return a.printAssetsDiff(convert.AssetsDiff(r.Version, compared.Differences))
	}
	return cmd
}

func (a *app) printAssetsDiff(d document.AssetsDiff) error {
	if a.output == "json" {
		return a.document(d)
	}
	if len(d.Differences) == 0 {
		a.printf("the files are equal to version %s of node %s\n", d.ID, d.Node)
		return nil
	}
	for _, x := range d.Differences {
		a.printf("%s: %s\n", x.Path, differenceText(x))
	}
	a.printf("%d files differ from version %s of node %s\n", len(d.Differences), d.ID, d.Node)
	return nil
}

// differenceText returns the changes of a file, such as "content, mode 0600 → 0644".
func differenceText(d assets.Difference) string {
	var texts []string
	for _, c := range d.Changes {
		text := string(c)
		switch c {
		case assets.KindChanged:
			text = fmt.Sprintf("%s → %s", d.Version.Kind, d.Node.Kind)
		case assets.ModeChanged:
			text = fmt.Sprintf("mode %s → %s", d.Version.Mode, d.Node.Mode)
		case assets.OwnerChanged:
			text = fmt.Sprintf("owner %d:%d → %d:%d", d.Version.UID, d.Version.GID, d.Node.UID, d.Node.GID)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func (a *app) assetsRestore() *cobra.Command {
	var f versionFlags
	var replace, dryRun bool
	cmd := &cobra.Command{
		Use:   "restore [VERSION|latest]",
		Short: "Put a stored version of this node's assets back",
		Long: `restore puts the files of a version (default: the newest of the node) back, with owner, group, mode and symbolic links. It first
checks the version and compares every file, and refuses to change a file that differs. With --replace it replaces such a file, and
keeps the old one beside it as .NAME.dr-old-TIME. It never deletes a file.

Stop the kubelet before: it starts static pods as soon as their manifests are there, and etcd with an empty data dir. Restore etcd's
data with dr restore, then start the kubelet.`,
		Example: `  dr assets restore --dry-run
  dr assets restore --node cp-1 --root /mnt/sysroot --identity key.txt
  dr assets restore 20261121T092433Z-3f9a1c02 --replace`,
		Args: atMostOne("version"),
	}
	f.add(cmd, a)
	cmd.Flags().BoolVar(&replace, "replace", false, "replace files that differ; the old files are kept under other names")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, r, err := f.request(cmd.Context(), a, args)
		if err != nil {
			return err
		}
		r.Replace, r.DryRun, r.Stamp = replace, dryRun, time.Now().UTC().Format("20060102T150405Z")
		result, err := restored.Restore(cmd.Context(), c, r)
		if len(result.Plan) == 0 { // the version was refused
			return err
		}
		return errors.Join(a.printAssetsRestore(convert.AssetsRestore(r, result), err), err)
	}
	return cmd
}

// printAssetsRestore prints the steps that change something. If the restore ended with err, it prints only the kept files.
func (a *app) printAssetsRestore(d document.AssetsRestore, err error) error {
	if a.output == "json" && (err == nil || d.DryRun) {
		return a.document(d)
	}
	for _, kept := range d.Kept {
		a.warnf("the old file is kept as %s", kept)
	}
	if err != nil && !d.DryRun {
		return nil
	}
	kept := 0
	for _, s := range d.Steps {
		if s.Act == string(restored.Leave) {
			a.warnf("%s is left out: a restore has stopped the control plane, and starts it again", s.Path)
		}
		if s.Act == string(restored.Keep) || s.Act == string(restored.Leave) {
			kept++
			continue
		}
		a.printf("%-8s %s\n", s.Act, s.Path)
	}
	done := "restored"
	if d.DryRun {
		done = "to restore"
	}
	a.printf("version %s of node %s: %d %s, %d kept\n", d.ID, d.Node, len(d.Steps)-kept, done, kept)
	return nil
}
