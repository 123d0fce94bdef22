package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestTreeIfHeadersOnlyCompare checks that no if has an assignment or a call for effect in its header: an effect has a line of its own.
func TestTreeIfHeadersOnlyCompare(t *testing.T) {
	var faults []string
	for name, source := range goFiles(t) {
		if generated.Match(source) || strings.HasPrefix(name, "test/tools/") { // a change there builds every tool anew
			continue
		}
		lines, err := effectsInHeaders(source)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, line := range lines {
			faults = append(faults, fmt.Sprintf("%s:%d: move the statement out of the header of the if", name, line))
		}
	}
	slices.Sort(faults)
	report(t, faults)
}

// effectsInHeaders returns the lines of a Go file with an if that has a statement before its condition.
func effectsInHeaders(source []byte) (lines []int, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		header, ok := n.(*ast.IfStmt)
		if ok && header.Init != nil {
			lines = append(lines, files.Position(header.Pos()).Line)
		}
		return true
	})
	return lines, nil
}

func TestEffectsInHeaders(t *testing.T) {
	lines, err := effectsInHeaders([]byte("package p\nfunc f() {\nerr := g()\nif err != nil {\n} else if err := g(); err != nil {\n}\n}\n"))
	if err != nil || !slices.Equal(lines, []int{5}) {
		t.Errorf("got %v, %v", lines, err)
	}
}
