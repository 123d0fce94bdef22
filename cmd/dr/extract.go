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
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

func (a *app) extract() *cobra.Command {
	f := &restoreFlags{}
	var keys selectionFlags
	var in searchFlags
	var dir, form string
	var rebuild kubernetes.RebuildOptions
	cmd := &cobra.Command{
		Use:   "extract [ID|latest] --key KEY|--prefix PREFIX|--namespace NAME",
		Short: "Read values as they were at any revision or second, without restoring a cluster",
		Long: `extract reads keys as they were at a point: by default the end of the log or, without a log, the newest backup. --to,
--to-revision, --before-revision or a backup's ID select another point, as in dr restore.

-o yaml prints Kubernetes objects for kubectl apply: without the fields that the API server sets, and without owners, whose
uids may no longer exist. A value that is not an object is printed as it is with --key, and as a comment with --prefix. -o raw
prints all values as they are, -o json prints all fields. --output-dir writes one file per key instead.

--namespace prints all objects that restore a Kubernetes namespace, in the order that kubectl apply needs. It omits objects
that controllers create again (owned objects, except Secrets and claims), Events, endpoints, and finished Jobs and Pods.`,
		Example: `  dr extract --namespace prod --to-revision 4710 | kubectl apply -f -
  dr extract --before-revision 4711 --key /registry/deployments/prod/web | kubectl apply -f -
  dr extract --to "2h ago" --prefix /registry/configmaps/prod/ --output-dir found && kubectl apply -R -f found`,
		Args: atMostOne("backup"),
	}
	keys.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "latest",
		"latest, a time (2026-11-21T10:00:00Z) or how long ago (\"2h ago\"): the last state that is known to be no later than that")
	flags.Int64Var(&f.target.Revision, "to-revision", 0, "the state right after the request that created this revision")
	flags.Int64Var(&f.before, "before-revision", 0, "the state right before the request that created this revision, such as a delete")
	flags.StringVar(&f.target.Lineage, "lineage", "",
		"lineage to read, if several contain the revision (default: the newest)")
	flags.BoolVar(&f.target.Best, "best", false, "if the point cannot be reached, use the nearest one before it")
	flags.StringVar(&dir, "output-dir", "", "write one file per key into this directory, which must be empty or missing")
	flags.BoolVar(&rebuild.FinishedJobs, "finished-jobs", false, "with --namespace: include finished Jobs; they will run again")
	flags.StringVarP(&form, "output", "o", "yaml", "yaml, json or raw")
	completeFormats(cmd, "yaml", "json", "raw")
	a.searchFlags(cmd, &in)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if form != "yaml" && form != "json" && form != "raw" {
			return usagef("-o %s: use yaml, json or raw", form)
		}
		if keys.namespace != "" && (form != "yaml" || dir != "") {
			return usagef("--namespace prints only YAML: for files, JSON or bytes use --key or --prefix")
		}
		if form == "json" {
			a.output = form
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		selected, err := keys.keys(cmd, false)
		if err != nil {
			return err
		}
		now := time.Now()
		err = f.setTarget(cmd, args, now)
		if err != nil {
			return err
		}
		catalog, err := a.catalog(cmd, f)
		if err != nil {
			return err
		}
		f.target.Plain = in.plain.mode(in.keys)
		search, err := a.searchIn(catalog, &in, selected, now)
		if err != nil {
			return err
		}
		if keys.namespace != "" {
			return a.extractNamespace(cmd, namespaceQuery{search, f.target, rebuild})
		}
		x := &extraction{app: a, form: form, dir: dir, one: keys.key != ""}
		err = x.prepare()
		if err != nil {
			return err
		}
		report, done := a.searching()
		search.Report = report
		at, err := search.Extract(cmd.Context(), f.target, x.add)
		done()
		if err != nil {
			return err
		}
		return x.finish(at)
	}
	return cmd
}

// extraction prints the extracted values or writes them to files.
type extraction struct {
	*app
	form string // yaml, json or raw
	dir  string // "": stdout
	one  bool   // --key selects a single key

	keys, unreadable int   // how many
	bytes            int64 // of all values
	why              error // of the first unreadable value
}

// prepare creates x.dir if it is set.
func (x *extraction) prepare() error {
	if x.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(x.dir)
	if err == nil && len(entries) > 0 {
		return usagef("--output-dir: %s is not empty: choose another", x.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usagef("--output-dir: %w", err)
	}
	return os.MkdirAll(x.dir, 0o700)
}

// add prints or writes one value.
func (x *extraction) add(e find.Entry) error {
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
	case object == nil && x.dir == "" && !x.one: // kubectl could take the value for one of the objects
		return x.put(d, ".yaml", x.comment(d, fmt.Sprintf("not a Kubernetes object, %d bytes", len(e.Value))))
	case object == nil:
		return x.put(d, ".raw", e.Value)
	case !object.HasName():
		return x.put(d, ".yaml", x.comment(d, "an internal object of the API server, which kubectl cannot apply"))
	}
	text, err := object.Applicable().YAML()
	return errors.Join(err, x.put(d, ".yaml", text))
}

// comment returns the YAML comment that is printed for a value that is not shown as YAML.
func (x *extraction) comment(d document.Extracted, why string) []byte {
	return fmt.Appendf(nil, "# %s: %s; -o raw prints its bytes\n", keyText(d.Key), printable(why))
}

// put prints a value, or writes it to its file below x.dir.
func (x *extraction) put(d document.Extracted, suffix string, text []byte) error {
	if x.dir != "" {
		raw := d.Key.Key
		if d.KeyBase64 != nil {
			raw = string(d.KeyBase64)
		}
		path := filepath.Join(x.dir, fileOf(raw, suffix))
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o600) // the value may be a secret
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

// finish prints a summary with --output-dir and for JSON. It returns an error if no key was found or, for YAML, if values are
// unreadable. JSON on stdout reports the unreadable ones only in its result.
func (x *extraction) finish(at find.At) error {
	var missing error
	if x.keys == 0 {
		missing = fmt.Errorf("%w: no such key at revision %d: dr find shows the revisions that have it", fault.NotFound, at.Revision)
	}
	if x.form == "json" && x.dir == "" {
		return errors.Join(x.json(document.Line{Result: document.Extract{
			At: convert.At(at), Keys: x.keys, Bytes: x.bytes, Unreadable: x.unreadable,
		}}), missing)
	}
	if missing != nil {
		return missing
	}
	if x.dir != "" {
		x.printf("%d keys as of revision %d, %s, are in %s\n", x.keys, at.Revision, size(x.bytes), x.dir)
	}
	if x.unreadable > 0 && x.form == "yaml" {
		if errors.Is(x.why, kubernetes.ErrEncrypted) {
			return fmt.Errorf("the plain text of %d of %d values is %w: %w: restore the cluster, its API server decrypts them",
				x.unreadable, x.keys, catalog.ErrNotFound, x.why)
		}
		return fmt.Errorf("%d of %d objects cannot be decoded: %w: -o raw prints their bytes", x.unreadable, x.keys, x.why)
	}
	return nil
}

// longestName leaves room for a suffix within the 255 bytes that file systems allow.
const longestName = 180

// fileOf returns the path of a key's file: the key with every part escaped, so that no key leads out of the directory and no two
// keys have the same file. A key that does not begin with a slash is written below "%", which no escaped part equals. A part
// that is a directory never ends in .yaml, .json or .raw.
func fileOf(key, suffix string) string {
	rest, rooted := strings.CutPrefix(key, "/")
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		parts[i] = escaped(part)
		last := i == len(parts)-1
		for _, ending := range []string{".yaml", ".json", ".raw"} {
			name, found := strings.CutSuffix(parts[i], ending)
			if found && !last {
				parts[i] = name + "%2E" + ending[1:]
			}
		}
	}
	if !rooted {
		parts = append([]string{"%"}, parts...)
	}
	return filepath.Join(parts...) + suffix
}

// escaped returns part as a name that every file system allows.
func escaped(part string) string {
	name := url.PathEscape(part)
	switch {
	case part == "":
		return "%%" // no other escaped part contains two percent signs in a row
	case part == "." || part == "..":
		return strings.ReplaceAll(part, ".", "%2E")
	case len(name) > longestName:
		sum := sha256.Sum256([]byte(part))
		return name[:longestName-33] + "%" + hex.EncodeToString(sum[:16])
	}
	return name
}
