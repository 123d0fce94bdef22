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

// namespaced collects the objects of a namespace, and prints those that restore it.
type namespaced struct {
	*app
	name    string
	options kubernetes.RebuildOptions

	objects    []kubernetes.Object
	unreadable int
	why        error // of the first unreadable object
}

// namespaceQuery names a namespace and a point.
type namespaceQuery struct {
	search  find.Search
	target  plan.Target
	options kubernetes.RebuildOptions
}

func (a *app) extractNamespace(cmd *cobra.Command, q namespaceQuery) error {
	q.search.Keys.Needed = true
	x := &namespaced{app: a, name: q.search.Keys.Namespace, options: q.options}
	report, done := a.searching()
	q.search.Report = report
	at, err := q.search.Extract(cmd.Context(), q.target, x.add)
	done()
	if err != nil {
		return err
	}
	return x.finish(at)
}

// add keeps one object.
func (x *namespaced) add(e find.Entry) error {
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
func (x *namespaced) finish(at find.At) error {
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
		x.printf("---\n%s", text)
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
func (x *namespaced) check(at find.At) error {
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

// printVanished prints the keys that vanished together, the first of them, and the command that restores them.
func (a *app) printVanished(d document.Find, keys keysFlags) {
	v := d.Vanished
	a.printf("%s keys vanished in revisions %d to %d, between %s and %s; the last revision with all of them is %d\n",
		humanize.Comma(int64(v.Keys)), v.From, v.To, momentOr(v.NotBefore), momentOr(v.NotAfter), v.LastWhole)
	if v.Mark != nil {
		a.printf("namespace %s was marked for deletion %s\n", keys.namespace, whenText(*v.Mark))
	}
	a.printf("  %s\n", extractCommand(v.LastWhole, keys))
	a.printEnds(d)
	if v.Earlier > 0 {
		a.printf("%s keys had vanished before these: -o json prints all\n", humanize.Comma(int64(v.Earlier)))
	}
}

// printEnds prints the first of several ends that belong together. It prints no command for each: at its revision the ones
// before it are already gone.
func (a *app) printEnds(d document.Find) {
	const shown = 10
	ends := slices.DeleteFunc(slices.Clone(d.Gone), func(g document.Gone) bool {
		return g.Lineage != d.Vanished.Lineage || g.Revision < d.Vanished.From
	})
	for _, g := range ends[:min(shown, len(ends))] {
		what := keyText(g.Key)
		if g.Vanished > 1 {
			what = fmt.Sprintf("%s and %s more", what, humanize.Comma(int64(g.Vanished-1)))
		}
		a.printf("  revision %d: %s\n", g.Revision, what)
	}
	hidden := len(ends) - shown
	if hidden > 0 {
		a.printf("  … and %s more requests: -o json prints all\n", humanize.Comma(int64(hidden)))
	}
}

// extractCommand returns the command that prints the keys as they were at a revision.
func extractCommand(revision int64, keys keysFlags) string {
	words := []string{"dr", "extract", "--to-revision", strconv.FormatInt(revision, 10)}
	if keys.namespace != "" {
		return shellescape.QuoteCommand(append(words, "--namespace", keys.namespace)) + " | kubectl apply -f -"
	}
	if keys.key != "" {
		return shellescape.QuoteCommand(append(words, "--key", keys.key))
	}
	return shellescape.QuoteCommand(append(words, "--prefix", keys.prefix, "--output-dir", "DIR"))
}

// printMarked prints since when an existing object is marked for deletion, and the command that prints it as it was before.
func (a *app) printMarked(m document.Marked, keys keysFlags) {
	a.printf("%s exists, but was marked for deletion %s; the last good revision is %d\n", keyText(m.Key), whenText(m.Change), m.LastGood)
	a.printf("  %s\n", extractCommand(m.LastGood, keys))
	a.printNamespaceHint(m.Key, keys)
}

// printNamespaceHint prints, for the key of a namespace, how to find the namespace's objects: its own key contains none.
func (a *app) printNamespaceHint(k document.Key, keys keysFlags) {
	if keys.key != "" && k.Kubernetes != nil && k.Kubernetes.Kind == "Namespace" {
		a.printf("  its objects: %s\n", shellescape.QuoteCommand([]string{"dr", "find", "--namespace", k.Kubernetes.Name}))
	}
}

// belongTogether reports whether the newest ends are shown as one: those of a namespace, or several of one prefix.
func belongTogether(d document.Find, keys keysFlags) bool {
	return d.Vanished != nil && (keys.namespace != "" || keys.key == "" && d.Vanished.From < d.Vanished.To)
}

// validNamespace checks the value of --namespace. (RFC 1123 label, k8s.io/apimachinery/pkg/util/validation.)
func validNamespace(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return usagef("--namespace %q is not a namespace: use at most 63 lower case letters, digits and dashes", name)
	}
	return nil
}
