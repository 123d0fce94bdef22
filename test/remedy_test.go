package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// remediedKinds are the kinds whose errors the reader can mend, so that each names its remedy.
var remediedKinds = []string{"Usage", "Refused", "NotFound", "Denied", "Unreachable"}

// remedy matches a format that names a remedy: a clause that begins with an imperative, a command of dr, the accepted values, or
// the remedy of a wrapped error at the end.
var remedy = regexp.MustCompile(`(^|[:;,(] |\bor |\band |\band then )(` + imperatives + `) ` +
	`|\bdr [a-z]+ ` +
	`|--[a-z-]+ (shows|continues|lifts|keeps|omits|leaves|allows|uses|restores) ` +
	`|\b(` + accepted + `)( |$)` +
	`|(^|: )expected ` +
	`|%w$`)

const (
	imperatives = "add|allow|archive|ask|check|choose|compare|copy|correct|create|drop|free|get|give|grant|have|inspect|leave|make|mark|" +
		"move|name|omit|pass|plan|put|raise|remove|repeat|restore|resume|run|save|scale|see|set|shorten|sign|start|stop|take|try|unpin|" +
		"update|upgrade|use|wait|write"
	accepted = "must|should|allowed|takes|goes?|needs?|only|at most|at least|go together|exclude|requires?|cannot be combined with|" +
		"allows|continues"
)

// remedyInArgument lists formats whose last argument holds the remedy, or whose caller adds it.
var remedyInArgument = []string{
	"unknown verb %q%s", "--%s: %s", "%w%s", // cobra's and pflag's errors, with a suggestion
	"%w: %s", // storage/gcs: the store's own words
	"%w: %s is not empty (%s is in it): %s, do not delete it before the restore is proven", // restore/work.go: by what is in it
	"%w since %s: next try at %s", "%w (%s)", // storage/guard.go repeats the request itself
}

// TestErrorsNameTheirRemedy checks the format of every error of a remedied kind.
func TestErrorsNameTheirRemedy(t *testing.T) {
	sentinels := map[string]bool{"usagef": true}
	for _, kind := range remediedKinds {
		sentinels["fault."+kind] = true
	}
	walkSources(t, func(name string, file *ast.File) {
		for _, sentinel := range remediedSentinels(file) {
			sentinels[path.Dir(name)+"."+sentinel] = true
			sentinels[file.Name.Name+"."+sentinel] = true
		}
	})
	formats := 0
	walkSources(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			format, ok := remediedFormat(n, path.Dir(name), sentinels)
			if !ok {
				return true
			}
			formats++
			if !remedy.MatchString(format) && !slices.Contains(remedyInArgument, format) {
				t.Errorf("%s: the error %q names no remedy: add one after a colon", name, format)
			}
			return true
		})
	})
	if formats < 200 {
		t.Errorf("%d errors of these kinds were found, want at least 200", formats)
	}
}

// remediedSentinels returns the names that file defines with fault.New and a remedied kind.
func remediedSentinels(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || nameOf(call.Fun) != "fault.New" {
			return true
		}
		kind := strings.TrimPrefix(nameOf(call.Args[0]), "fault.")
		if slices.Contains(remediedKinds, kind) {
			names = append(names, spec.Names[0].Name)
		}
		return true
	})
	return names
}

// remediedFormat returns the format of n if n makes an error that wraps one of sentinels. A name of the package itself stands there
// with its directory.
func remediedFormat(n ast.Node, dir string, sentinels map[string]bool) (format string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	made := nameOf(call.Fun)
	remedied := made == "usagef"
	if made == "fmt.Errorf" {
		remedied = slices.ContainsFunc(call.Args[1:], func(arg ast.Expr) bool {
			name := nameOf(arg)
			return sentinels[name] || sentinels[dir+"."+name]
		})
	}
	if !remedied {
		return "", false
	}
	return literal(call.Args[0])
}

// nameOf returns "name" or "package.name", and "" for any other expression.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return fmt.Sprintf("%s.%s", nameOf(e.X), e.Sel.Name)
	}
	return ""
}

// literal returns the string that e concatenates from literals.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, isText := literal(e.X)
		right, alsoText := literal(e.Y)
		return left + right, e.Op == token.ADD && isText && alsoText
	}
	return "", false
}

func TestRemedyIsFound(t *testing.T) {
	for format, want := range map[string]bool{
		"%w: --flush %s is below the minimum: use at least %s": true,
		"backup %s is %w: dr list shows the backups":           true,
		"%w: member %s: %w":          true,
		"%w: --flush %s is below %s": false,
		"%w: no leader":              false,
	} {
		got := remedy.MatchString(format)
		if got != want {
			t.Errorf("%q names a remedy: %t, want %t", format, got, want)
		}
	}
}
