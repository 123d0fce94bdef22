package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"al.essio.dev/pkg/shellescape"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// selectionFlags selects keys of etcd.
type selectionFlags struct{ key, prefix, namespace string }

func (f *selectionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "this key")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "all keys with this prefix; empty: all keys")
	cmd.Flags().StringVar(&f.namespace, "namespace", "", "all objects of this Kubernetes namespace, and the namespace itself")
}

// keys returns the selected keys. Without a flag it returns all keys if all is set, and an error if not.
func (f *selectionFlags) keys(cmd *cobra.Command, all bool) (find.Keys, error) {
	key, prefix, namespace := cmd.Flags().Changed("key"), cmd.Flags().Changed("prefix"), cmd.Flags().Changed("namespace")
	switch {
	case key && prefix, namespace && (key || prefix):
		return find.Keys{}, usagef("--key, --prefix, --namespace: use one of them")
	case namespace:
		return find.Namespace(f.namespace), validNamespace(f.namespace)
	case key && f.key == "":
		return find.Keys{}, usagef("--key must not be empty")
	case key:
		return find.Key(f.key), nil
	case prefix || all:
		return find.Prefix(f.prefix), nil
	}
	return find.Keys{}, usagef("no keys selected: use --key KEY, --prefix PREFIX or --namespace NAME")
}

// searchFlags holds the flags of verbs that read keys from backups and the log.
type searchFlags struct {
	keys  keyFlags // to decrypt
	plain plainFlags
	dir   string // "": the system's temporary directory
}

func (a *app) searchFlags(cmd *cobra.Command, f *searchFlags) {
	cmd.Flags().StringVar(&f.dir, "scratch-dir", "",
		"directory for a temporary copy of the database (default: the system's temporary directory)")
	f.keys.add(cmd, a.getenv)
	f.plain.add(cmd)
	a.readFlags(cmd)
	a.store.transferFlags(cmd)
}

// searchIn returns a search for the selected keys in a catalog, at the time now.
func (a *app) searchIn(catalog catalog.Catalog, f *searchFlags, selected find.Keys, now time.Time) (find.Search, error) {
	keys, err := f.keys.load()
	if err != nil {
		return find.Search{}, err
	}
	source, err := a.source(a.cluster, keys)
	return find.Search{
		Keys: selected, Now: now, Catalog: catalog, Unfold: a.unfold, Source: source, Dir: f.dir, Plain: f.plain.mode(f.keys),
	}, err
}

func (a *app) search() *cobra.Command {
	var keys selectionFlags
	var in searchFlags
	var from, to string
	var window find.Window
	cmd := &cobra.Command{
		Use:   "find --key KEY|--prefix PREFIX|--namespace NAME",
		Short: "Find the changes of a key, and when it vanished",
		Long: `find searches backups and log, and prints every put and delete of the keys: at which revision, between which times, by
which kind of request. At the end it prints which keys vanished, the last good revision, and the command that restores it.
With --prefix and --namespace it begins with the sum of the keys that vanished together. Parts of the history that the
repository does not contain are reported. With --namespace it does not print each change; -o json does.

Without --from or --from-revision it begins with the oldest backup. It contacts no cluster and restores none. It needs disk
space for one copy of the database.`,
		Example: `  dr find --key /registry/deployments/prod/web --from "2h ago"
  dr find --namespace prod --from "2h ago"
  dr find --prefix /registry/secrets/prod/ -o json | jq -c 'select(.item.change.change == "delete")'`,
		Args: noArgs,
	}
	keys.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "skip changes that certainly happened before this time (2026-11-21T10:00:00Z, \"2h ago\")")
	flags.StringVar(&to, "to", "", "skip changes that certainly happened after this time")
	flags.Int64Var(&window.FromRevision, "from-revision", 0, "first revision to search")
	flags.Int64Var(&window.ToRevision, "to-revision", 0, "last revision to search")
	flags.StringVar(&window.Lineage, "lineage", "", "search only this history (default: all)")
	a.searchFlags(cmd, &in)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		selected, err := keys.keys(cmd, false)
		if err != nil {
			return err
		}
		now := time.Now()
		err = setWindow(&window, from, to, now)
		if err != nil {
			return err
		}
		catalog, err := a.load(cmd.Context(), backups.LoadOptions{Proofs: true, Log: true, Details: true})
		if err != nil {
			return err
		}
		search, err := a.searchIn(catalog, &in, selected, now)
		if err != nil {
			return err
		}
		out := &findOutput{app: a, cmd: cmd, keys: keys, severalLineages: len(catalog.Lineages) > 1}
		err = out.begin(in.dir)
		if err != nil {
			return err
		}
		report, done := a.searching()
		search.Report = report
		s, err := search.Find(cmd.Context(), window, out.teller())
		done()
		if err != nil {
			return errors.Join(err, out.printLines())
		}
		return out.print(convert.Find(s, out.restoreCommand))
	}
	return cmd
}

// findOutput prints what dr find finds.
type findOutput struct {
	*app
	cmd             *cobra.Command
	keys            selectionFlags
	severalLineages bool // the catalog contains several

	// lines is a file with the table, which is printed after the sum of the keys that vanished; nil: the table is printed at once.
	lines     *os.File
	hasHeader bool // the header of the table was printed
}

// begin creates o.lines in dir if the output may begin with a sum.
func (o *findOutput) begin(dir string) (err error) {
	if o.output == "json" || o.keys.key != "" {
		return nil
	}
	o.lines, err = os.CreateTemp(dir, ".dr-find-*")
	if err != nil {
		return usagef("--scratch-dir: %w", err)
	}
	return os.Remove(o.lines.Name()) // the open file stays
}

// line prints a line of the table.
func (o *findOutput) line(format string, args ...any) error {
	if o.lines == nil {
		o.printf(format, args...)
		return nil
	}
	_, err := o.lines.WriteString(visible(fmt.Sprintf(format, args...)))
	return err
}

// printLines prints o.lines.
func (o *findOutput) printLines() error {
	if o.lines == nil {
		return nil
	}
	defer o.lines.Close()
	_, err := o.lines.Seek(0, io.SeekStart)
	if err != nil {
		return err
	}
	_, err = io.Copy(o.stdout, o.lines)
	return err
}

// setWindow parses the times --from and --to into w, and checks w.
func setWindow(w *find.Window, from, to string, now time.Time) (err error) {
	for _, bound := range []struct {
		flag, text string
		at         *time.Time
	}{{"--from", from, &w.From}, {"--to", to, &w.To}} {
		if bound.text == "" {
			continue
		}
		*bound.at, err = when.Parse(bound.text, now)
		if err != nil {
			return usagef("%s: %w", bound.flag, err)
		}
	}
	if w.FromRevision < 0 || w.ToRevision < 0 {
		return usagef("--from-revision and --to-revision must be at least 1")
	}
	if !w.To.IsZero() && w.To.Before(w.From) || w.ToRevision > 0 && w.ToRevision < w.FromRevision {
		return usagef("the window ends before it begins: correct its two bounds")
	}
	return nil
}

// searching is like progress, for a verb that prints results while it works: a bar would be drawn over them.
func (a *app) searching() (storage.Report, func()) {
	if a.output == "json" || !isTerminal(a.stderr) || !isTerminal(a.stdout) {
		return a.progress()
	}
	return func(e storage.Event) {
		if e.Level != storage.Progress {
			a.warnf("%s: %s", strings.ToUpper(string(e.Level)), e.Message)
		}
	}, func() {}
}

// foundLine is the format of one change in the table. The columns have fixed widths: each change is printed as soon as it is found.
const foundLine = "%-12s %-8s %-24s %-24s %-18s %s\n"

// teller returns functions that print changes and unseen parts of the history as they are found. The table of a namespace contains no
// changes.
func (o *findOutput) teller() find.Teller {
	if o.output == "json" {
		return find.Teller{
			Change: func(c find.Change) error {
				change := convert.Change(c)
				return o.json(document.Line{Item: document.Found{Change: &change}})
			},
			Unseen: func(u find.Unseen) error {
				unseen := convert.Unseen(u)
				return o.json(document.Line{Item: document.Found{Unseen: &unseen}})
			},
		}
	}
	return find.Teller{
		Change: o.printChange,
		Unseen: func(u find.Unseen) error { return o.line("%s\n", unseenText(u)) },
	}
}

func (o *findOutput) printChange(c find.Change) error {
	if o.keys.namespace != "" {
		return nil
	}
	if !o.hasHeader {
		o.hasHeader = true
		err := o.line(foundLine, "REVISION", "CHANGE", "NOT BEFORE", "NOT AFTER", "BY", "KEY")
		if err != nil {
			return err
		}
	}
	d := convert.Change(c)
	return o.line(foundLine, revisionOf(d), d.Change, momentOr(d.NotBefore), momentOr(d.NotAfter), byOf(d), keyText(d.Key))
}

// revisionOf returns the revision of a change or, if it is not known exactly, the range that contains it.
func revisionOf(c document.Change) string {
	switch {
	case c.After == c.Revision:
		return fmt.Sprintf("%d…", c.After)
	case c.After > 0:
		return fmt.Sprintf("%d…%d", c.After, c.Revision)
	}
	return strconv.FormatInt(c.Revision, 10)
}

func byOf(c document.Change) string {
	switch {
	case c.By == "":
		return "?"
	case c.Keys > 1:
		return fmt.Sprintf("%s, %d keys", c.By, c.Keys)
	}
	return c.By
}

func momentOr(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return moment(t)
}

// keyText returns a key for a terminal, with its Kubernetes name.
func keyText(k document.Key) string {
	raw := k.Key
	if k.KeyBase64 != nil {
		raw = string(k.KeyBase64)
	}
	if k.Kubernetes == nil {
		return printable(raw)
	}
	return printable(raw) + " (" + printable(kubernetes.Name(*k.Kubernetes).String()) + ")"
}

// printable returns text on one line, without characters that a terminal acts on.
func printable(text string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// unseenText returns the line for a part of the history that the repository does not contain.
func unseenText(u find.Unseen) string {
	changes := fmt.Sprintf("changes after revision %d", u.After)
	switch {
	case u.UpTo == 0 && u.After == 0: // another history begins
		return fmt.Sprintf("-- %s (%s to %s)", u.Why, momentOr(u.Since), momentOr(u.Until))
	case u.UpTo > 0:
		changes = fmt.Sprintf("changes of revisions %d to %d that were overwritten or deleted", u.After+1, u.UpTo)
	}
	return fmt.Sprintf("-- not seen: %s (%s to %s): %s", changes, momentOr(u.Since), momentOr(u.Until), u.Why)
}

// command returns the words of a command for the same repository and cluster.
func (o *findOutput) command(verb string) []string {
	words := []string{"dr", verb}
	for _, flag := range []string{"repo", "credentials", "cluster"} {
		if o.cmd.Flags().Changed(flag) {
			words = append(words, "--"+flag, o.cmd.Flag(flag).Value.String())
		}
	}
	return words
}

// lineage returns the words that select a lineage: none if the catalog contains only one.
func (o *findOutput) lineage(id string) []string {
	if !o.severalLineages || id == "" {
		return nil
	}
	return []string{"--lineage", id}
}

// restoreCommand returns the command that restores the target w.
func (o *findOutput) restoreCommand(w find.Way) []string {
	words := append(o.command("restore"), "--to-revision", strconv.FormatInt(w.Revision, 10))
	words = append(words, o.lineage(w.Lineage)...)
	if !w.Exact {
		words = append(words, "--best")
	}
	return append(words, "--output-dir", "DIR")
}

// print prints the result of a search. Whatever vanished together is printed first.
func (o *findOutput) print(d document.Find) error {
	if o.output == "json" {
		return o.json(document.Line{Result: d})
	}
	isSum := o.showsSum(d)
	if isSum {
		o.printVanished(d)
		d.Gone = nil
	}
	err := o.printLines()
	if err != nil {
		return err
	}
	o.printRest(d, isSum)
	return nil
}

// printRest prints what follows the table. isSum is whether the sum of the keys that vanished together was printed before it.
func (o *findOutput) printRest(d document.Find, isSum bool) {
	keys := o.keys
	if d.Changes == 0 {
		o.printf("no change of %s in the searched history\n", strconv.Quote(keys.key+keys.prefix+keys.namespace))
	}
	const shown = 10
	hidden := len(d.Gone) - shown
	if hidden > 0 {
		o.printf("\n%s more ends before these: -o json prints all\n", humanize.Comma(int64(hidden)))
	}
	for _, g := range d.Gone[max(0, len(d.Gone)-shown):] {
		o.printGone(g)
		o.printNamespaceHint(g.Key)
	}
	switch {
	case len(d.Gone) > 0 || isSum:
	case d.Marked != nil:
		o.printMarked(*d.Marked)
	case keys.namespace != "" && d.Last != nil:
		o.printf("no object of namespace %s has vanished, except those that controllers replace\n", keys.namespace)
	case d.Last == nil && d.Unseen > 0:
		o.printf("no trace of it was found; it may have existed, since the repository does not contain the whole history\n")
	case d.Last == nil:
		o.printf("it did not exist at any time that the repository covers\n")
	case keys.key != "" && d.Last.Change == "put":
		words := append(o.command("extract"), "--before-revision", strconv.FormatInt(d.Last.Revision, 10))
		words = append(words, o.lineage(d.Last.Lineage)...)
		o.printf("it exists as of revision %d; its value before: %s\n", d.Last.Revision, shellescape.QuoteCommand(words))
	}
	if d.Forgotten > 0 {
		o.printf("%s keys that vanished before those are not listed: search a narrower window to see them\n",
			humanize.Comma(int64(d.Forgotten)))
	}
	if d.Unseen > 0 {
		o.printf("the history is not complete: see the lines that begin with --\n")
	}
}

func (a *app) printGone(g document.Gone) {
	keys := keyText(g.Key)
	if g.Vanished > 1 {
		keys = fmt.Sprintf("%s keys, %s among them,", humanize.Comma(int64(g.Vanished)), keys)
	}
	marked := ""
	switch {
	case g.Mark == nil:
	case g.Mark.Key.Key == g.Key.Key:
		marked = fmt.Sprintf("was marked for deletion %s, and ", whenText(*g.Mark))
	default:
		marked = fmt.Sprintf("of %s, which was marked for deletion %s, ", keyText(g.Mark.Key), whenText(*g.Mark))
	}
	by := "by an unknown request"
	if g.By != "" {
		by = "by a " + g.By
	}
	if g.By == string(replay.ByLease) {
		by = "by the end of a lease"
	}
	a.printf("\n%s %svanished %s, %s; the last good revision is %d\n", keys, marked, whenText(g.Change), by, g.LastGood)
	if g.Nearest != nil {
		a.printf("that one cannot be restored; the nearest before it%s can\n", nearestText(*g.Nearest))
	}
	if g.Restore != nil {
		a.printf("  %s\n", shellescape.QuoteCommand(g.Restore))
	}
}

// whenText returns the revision and the time of a change, as far as they are known.
func whenText(c document.Change) string {
	at := fmt.Sprintf("at revision %d", c.Revision)
	switch {
	case c.After == c.Revision:
		at = fmt.Sprintf("after revision %d, when another history began", c.After)
	case c.After > 0:
		at = fmt.Sprintf("after revision %d, at %d at the latest", c.After, c.Revision)
	}
	return fmt.Sprintf("%s, between %s and %s", at, momentOr(c.NotBefore), momentOr(c.NotAfter))
}

// nearestText returns the revision and the time of a point between commas, as far as they are known.
func nearestText(p document.Point) string {
	var parts []string
	if p.Revision > 0 {
		parts = append(parts, fmt.Sprintf("revision %d", p.Revision))
	}
	if !p.Time.IsZero() {
		parts = append(parts, "of "+moment(p.Time))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, " ") + ","
}
