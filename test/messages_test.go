package test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear matches words for which a reader of a message has to guess: nobody names no one who could act, and the others have
// plain equivalents (continue, is ignored, a new one, correct).
var unclear = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|goes on|go on|counts? for nothing|anew|all the same|mend)\b`)

// TestTreeMessagesArePlain checks the texts of the program, which operators read, as TestTreeCommentsArePlain checks comments.
func TestTreeMessagesArePlain(t *testing.T) {
	var faults []string
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(file, ".."+string(filepath.Separator)))
		if err == nil && entry.IsDir() && (name == "test" || name == "storage/storagetest") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file)
		for _, text := range textsOf(source) {
			if unclear.MatchString(text) {
				faults = append(faults, fmt.Sprintf("%s: %s", name, text))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	report(t, faults)
}

// textsOf returns the string literals in a Go file.
func textsOf(source []byte) (texts []string) {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var scan scanner.Scanner
	scan.Init(file, source, nil, 0)
	for {
		_, kind, text := scan.Scan()
		switch kind {
		case token.EOF:
			return texts
		case token.STRING:
			texts = append(texts, text)
		}
	}
}

func TestTextsOf(t *testing.T) {
	got := textsOf([]byte("package p // nobody\nvar a, b = \"whoever reads\", `goes on`\n"))
	if !slices.Equal(got, []string{`"whoever reads"`, "`goes on`"}) {
		t.Errorf("got %q", got)
	}
}
