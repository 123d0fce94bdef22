package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func (a *app) extract() *cobra.Command {
	f := &restoreFlags{}
	var keys keysFlags
	var archive archiveFlags
	var dir, form string
	var rebuild kubernetes.RebuildOptions
	cmd := &cobra.Command{
		Use:   "extract [ID|latest] --key KEY|--prefix PREFIX|--namespace NAME",
		Short: "Read values as they were at any revision or second, without restoring a cluster",
		Long: `extract reads keys as they were at a point: the end of the log or, without one, the newest backup; or whatever --to,
--to-revision, --before-revision or a backup's ID say, as dr restore has them.

-o yaml prints Kubernetes objects so that kubectl apply takes them: without what the API server sets itself, and without
owners, whose uids may be gone. Another value is printed as it is, but only named among others (--prefix); -o raw prints
all values as they are, -o json has everything.
--output-dir writes one file a key instead.

--namespace prints all that brings a Kubernetes namespace back, in the order in which kubectl apply needs it, and leaves out what
controllers make again: owned objects but for Secrets and claims, Events, endpoints, and Jobs and Pods that had finished.`,
		Example: `  dr extract --namespace prod --to-revision 4710 | kubectl apply -f -
  dr extract --before-revision 4711 --key /registry/deployments/prod/web | kubectl apply -f -
  dr extract --to "2h ago" --prefix /registry/configmaps/prod/ --output-dir found && kubectl apply -R -f found`,
		Args: oneArg("backup"),
	}
	keys.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "latest",
		"latest, a time (2026-11-21T10:00:00Z) or how long ago (\"2h ago\"): the last state that is surely not later")
	flags.Int64Var(&f.target.Revision, "to-revision", 0, "the state right after the request that made this revision")
	flags.Int64Var(&f.before, "before-revision", 0, "the state right before this revision was made, as before a delete")
	flags.StringVar(&f.target.Lineage, "lineage", "",
		"the history to look in, where a revision is in several (default: the newest that has it)")
	flags.BoolVar(&f.target.Best, "best", false, "take the nearest point before, if the one that was asked for cannot be reached")
	flags.StringVar(&dir, "output-dir", "", "write one file a key into this directory, which must be empty or absent")
	flags.BoolVar(&rebuild.FinishedJobs, "finished-jobs", false, "with --namespace: Jobs that had finished too; they run again")
	flags.StringVarP(&form, "output", "o", "yaml", "yaml, json or raw")
	a.archiveFlags(cmd, &archive)
	archive.plain.add(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if form != "yaml" && form != "json" && form != "raw" {
			return usagef("-o %s: use yaml, json or raw", form)
		}
		if keys.namespace != "" && (form != "yaml" || dir != "") {
			return usagef("--namespace prints YAML for kubectl apply: for files, JSON or bytes use --key or --prefix")
		}
		if form == "json" {
			a.output = form
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked, err := keys.keys(cmd, false)
		if err != nil {
			return err
		}
		now := time.Now()
		if err := f.setTarget(cmd, args, now); err != nil {
			return err
		}
		catalog, err := a.catalog(cmd, f)
		if err != nil {
			return err
		}
		f.target.Plain = archive.plain.with(archive.keys)
		in, err := a.archiveOf(&archive, catalog)
		if err != nil {
			return err
		}
		if keys.namespace != "" {
			return a.extractNamespace(cmd, namespaceQuery{in, f.target, asked, rebuild})
		}
		x := &extraction{app: a, form: form, dir: dir, one: keys.key != ""}
		if err := x.prepare(); err != nil {
			return err
		}
		report, done := a.searching()
		at, err := find.Extract(cmd.Context(), in, f.target, asked, now, x.take, report)
		done()
		if err != nil {
			return err
		}
		return x.finish(at)
	}
	return cmd
}

// extraction prints or writes what is extracted.
type extraction struct {
	*app
	form string // yaml, json or raw
	dir  string // "": stdout
	one  bool   // a single key was asked for

	keys, unreadable int
	bytes            int64
	why              error // of the first that could not be read
}

// prepare makes the directory, if it is to be one.
func (x *extraction) prepare() error {
	if x.dir == "" {
		return nil
	}
	there, err := os.ReadDir(x.dir)
	if err == nil && len(there) > 0 {
		return usagef("--output-dir: %s is not empty: choose another", x.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usagef("--output-dir: %w", err)
	}
	return os.MkdirAll(x.dir, 0o700)
}

func (x *extraction) take(e find.Entry) error {
	x.keys++
	x.bytes += int64(len(e.Value))
	d, err := convert.Extracted(e)
	if err != nil {
		x.unreadable++
		if x.why == nil {
			x.why = fmt.Errorf("%s: %w", keyText(d.Key), err)
		}
	}
	object := kubernetes.Object(d.Object)
	switch {
	case x.dir == "" && x.form == "json":
		return x.json(document.Line{Item: d})
	case x.form == "raw":
		return x.put(d, ".raw", e.Value)
	case x.form == "json":
		text, err := json.MarshalIndent(d, "", "  ")
		return errors.Join(err, x.put(d, ".json", append(text, '\n')))
	case d.Unreadable != "":
		return x.put(d, ".yaml", x.comment(d, d.Unreadable))
	case object == nil && x.dir == "" && !x.one: // among objects it would be taken for one
		return x.put(d, ".yaml", x.comment(d, fmt.Sprintf("no Kubernetes object, %d bytes", len(e.Value))))
	case object == nil:
		return x.put(d, ".raw", e.Value)
	case !object.HasName():
		return x.put(d, ".yaml", x.comment(d, "the API server keeps it for itself, and no kubectl can apply it"))
	}
	text, err := object.Applicable().YAML()
	return errors.Join(err, x.put(d, ".yaml", text))
}

// comment stands for a value that cannot be shown as YAML.
func (x *extraction) comment(d document.Extracted, why string) []byte {
	return fmt.Appendf(nil, "# %s: %s; -o raw has its bytes\n", keyText(d.Key), printable(why))
}

// put prints a value, or writes it to a file of its own.
func (x *extraction) put(d document.Extracted, suffix string, text []byte) error {
	if x.dir != "" {
		raw := d.Key.Key
		if d.KeyBase64 != nil {
			raw = string(d.KeyBase64)
		}
		path := filepath.Join(x.dir, fileOf(raw, suffix))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o600) // secrets may be among them
	}
	if suffix == ".yaml" {
		x.printf("---\n")
	}
	if suffix == ".raw" && x.form == "yaml" && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	_, err := x.stdout.Write(text)
	return err
}

// finish says what was found, where that does not stand in the way of the values.
func (x *extraction) finish(at find.At) error {
	if x.form == "json" && x.dir == "" {
		return x.json(document.Line{Result: document.Extract{
			At: convert.At(at), Keys: x.keys, Bytes: x.bytes, Unreadable: x.unreadable,
		}})
	}
	if x.keys == 0 {
		return fmt.Errorf("what was asked for is %w: no such key at revision %d", catalog.ErrNotFound, at.Revision)
	}
	if x.dir != "" {
		x.printf("%d keys as of revision %d, %s, are in %s\n", x.keys, at.Revision, size(x.bytes), x.dir)
	}
	if x.unreadable > 0 && x.form == "yaml" {
		if errors.Is(x.why, kubernetes.ErrEncrypted) {
			return fmt.Errorf("the plain text of %d of %d values is %w: %w; the API server of a restored cluster decrypts them",
				x.unreadable, x.keys, catalog.ErrNotFound, x.why)
		}
		return fmt.Errorf("%d of %d objects could not be read: %w; -o raw has their bytes", x.unreadable, x.keys, x.why)
	}
	return nil
}

// longestName leaves room for a suffix in what file systems take.
const longestName = 180

// fileOf is where a key's file goes: its path, every part escaped, so that no key leads out of the directory, and no two to
// one file. A key that does not begin with a slash goes below "%", which no escaped part is. A part that is a directory
// never ends in a suffix of ours.
func fileOf(key, suffix string) string {
	rest, rooted := strings.CutPrefix(key, "/")
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		parts[i] = escaped(part)
		last := i == len(parts)-1
		for _, ours := range []string{".yaml", ".json", ".raw"} {
			if name, ends := strings.CutSuffix(parts[i], ours); ends && !last {
				parts[i] = name + "%2E" + ours[1:]
			}
		}
	}
	if !rooted {
		parts = append([]string{"%"}, parts...)
	}
	return filepath.Join(parts...) + suffix
}

// escaped is a name that every file system takes.
func escaped(part string) string {
	name := url.PathEscape(part)
	switch {
	case part == "":
		return "%%" // no escaped part has two of them in a row
	case part == "." || part == "..":
		return strings.ReplaceAll(part, ".", "%2E")
	case len(name) > longestName:
		sum := sha256.Sum256([]byte(part))
		return name[:longestName-33] + "%" + hex.EncodeToString(sum[:16])
	}
	return name
}
