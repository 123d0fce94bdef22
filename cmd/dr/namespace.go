package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// namespaceExtraction collects the objects of a namespace, and prints those that restore it.
type namespaceExtraction struct {
	*app
	name    string
	options kubernetes.RebuildOptions

	objects    []kubernetes.Object
	unreadable int   // how many objects cannot be decoded
	why        error // of the first unreadable object
}

// namespaceQuery names a namespace and a point.
type namespaceQuery struct {
	search  find.Search
	target  plan.Target
	options kubernetes.RebuildOptions
}

func (a *app) extractNamespace(cmd *cobra.Command, q namespaceQuery) error {
	q.search.Keys.Needed = true // with the cluster-wide objects that the namespace needs
	x := &namespaceExtraction{app: a, name: q.search.Keys.Namespace, options: q.options}
	report, done := a.searching()
	q.search.Report = report
	at, err := q.search.Extract(cmd.Context(), q.target, x.add)
	done()
	if err != nil {
		return err
	}
	return x.finish(at)
}

// add collects one object.
func (x *namespaceExtraction) add(e find.Entry) error {
	d, err := convert.Extracted(e)
	if err != nil {
		x.unreadable++
		x.why = cmp.Or(x.why, fmt.Errorf("%s: %w", keyText(d.Key), err))
	}
	if d.Object != nil {
		x.objects = append(x.objects, d.Object)
	}
	return nil
}

// finish prints the objects in the order of kubectl apply, and the notes to stderr. It prints nothing unless
// the namespace existed and was not being deleted.
func (x *namespaceExtraction) finish(at find.At) error {
	err := x.check(at)
	if err != nil {
		return err
	}
	rebuilt := kubernetes.Rebuild(x.objects, x.options)
	for _, object := range rebuilt.Objects {
		text, err := object.YAML()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(x.stdout, "---\n%s", text) // the escapes of printf would change values; YAML has its own
		if err != nil {
			return err
		}
	}
	for _, note := range rebuilt.Notes {
		x.warnf("NOTE: %s", note)
	}
	x.warnf("NOTE: %d objects of namespace %s as of revision %d; %d that controllers create again are omitted",
		len(rebuilt.Objects), x.name, at.Revision, rebuilt.LeftOut)
	if x.unreadable > 0 {
		return fmt.Errorf("%d objects of namespace %s cannot be decoded and are missing: %w", x.unreadable, x.name, x.why)
	}
	return nil
}

// check returns an error if the namespace did not exist or was being deleted.
func (x *namespaceExtraction) check(at find.At) error {
	i := slices.IndexFunc(x.objects, func(o kubernetes.Object) bool { return o.String() == "Namespace "+x.name })
	if i < 0 {
		return fmt.Errorf("namespace %s is %w at revision %d: dr find --namespace %s shows when it existed",
			x.name, catalog.ErrNotFound, at.Revision, x.name)
	}
	if x.objects[i].Deleting() {
		return fmt.Errorf("%w: namespace %s was being deleted at revision %d: objects may be missing; "+
			"dr find --namespace %s shows the last revision with all of them", fault.Refused, x.name, at.Revision, x.name)
	}
	return nil
}

// printVanished prints how many keys vanished together, the first of these keys, and the command that extracts all of them.
func (o *findOutput) printVanished(d document.Find) {
	v := d.Vanished
	o.printf("%s keys vanished in revisions %d to %d, between %s and %s; the last revision with all of them is %d\n",
		humanize.Comma(int64(v.Keys)), v.From, v.To, momentOr(v.NotBefore), momentOr(v.NotAfter), v.LastWhole)
	if v.Mark != nil && v.Mark.Kubernetes != nil {
		o.printf("namespace %s was marked for deletion %s\n", v.Mark.Kubernetes.Name, whenText(*v.Mark))
	}
	o.printf("  %s\n", o.extractCommand(v.LastWhole, v.Lineage))
	o.printFirstGone(d)
	if v.Earlier > 0 {
		o.printf("%s keys had vanished before these: -o json prints all\n", humanize.Comma(int64(v.Earlier)))
	}
}

// printFirstGone prints the first requests that deleted keys of d.Vanished. It prints no restore command for each request: right before
// it, the keys of the earlier requests are already gone.
func (o *findOutput) printFirstGone(d document.Find) {
	const shown = 10
	together := slices.DeleteFunc(slices.Clone(d.Gone), func(g document.Gone) bool {
		return g.Lineage != d.Vanished.Lineage || g.Revision < d.Vanished.From
	})
	for _, g := range together[:min(shown, len(together))] {
		keys := keyText(g.Key)
		if g.Vanished > 1 {
			keys = fmt.Sprintf("%s and %s more", keys, humanize.Comma(int64(g.Vanished-1)))
		}
		o.printf("  revision %d: %s\n", g.Revision, keys)
	}
	hidden := len(together) - shown
	if hidden > 0 {
		o.printf("  … and %s more requests: -o json prints all\n", humanize.Comma(int64(hidden)))
	}
}

// extractCommand returns the command that prints the keys as they were at a revision of a lineage.
func (o *findOutput) extractCommand(revision int64, lineage string) string {
	keys := o.keys
	words := append(o.command("extract"), "--to-revision", strconv.FormatInt(revision, 10))
	words = append(words, o.lineage(lineage)...)
	if keys.namespace != "" {
		return shellescape.QuoteCommand(append(words, "--namespace", keys.namespace)) + " | kubectl apply -f -"
	}
	if keys.key != "" {
		return shellescape.QuoteCommand(append(words, "--key", keys.key))
	}
	return shellescape.QuoteCommand(append(words, "--prefix", keys.prefix, "--output-dir", "DIR"))
}

// printMarked prints when an existing object was marked for deletion, and the command that prints the object as it was before.
func (o *findOutput) printMarked(m document.Marked) {
	o.printf("%s exists, but was marked for deletion %s; the last good revision is %d\n", keyText(m.Key), whenText(m.Change), m.LastGood)
	o.printf("  %s\n", o.extractCommand(m.LastGood, m.Lineage))
	o.printNamespaceHint(m.Key)
}

// printNamespaceHint prints, for the key of a namespace, how to find the namespace's objects: its own key contains none.
func (o *findOutput) printNamespaceHint(k document.Key) {
	if o.keys.key != "" && k.Kubernetes != nil && k.Kubernetes.Kind == "Namespace" {
		words := append(o.command("find"), "--namespace", k.Kubernetes.Name)
		o.printf("  its objects: %s\n", shellescape.QuoteCommand(words))
	}
}

// showsSum reports whether dr find prints d.Vanished, the sum of the newest deletions, in place of d.Gone: always for a namespace, and
// for a prefix if several requests deleted its keys.
func (o *findOutput) showsSum(d document.Find) bool {
	return d.Vanished != nil && (o.keys.namespace != "" || o.keys.key == "" && d.Vanished.From < d.Vanished.To)
}

// validNamespace checks the value of --namespace. (RFC 1123 label, k8s.io/apimachinery/pkg/util/validation.)
func validNamespace(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return usagef("--namespace %q is not a namespace: use at most 63 lower case letters, digits and dashes", name)
	}
	return nil
}
