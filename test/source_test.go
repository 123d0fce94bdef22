package test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// goFiles returns the content of each Go file of the repository, by its path.
func goFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	tree := os.DirFS("..")
	err := fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		files[name], err = fs.ReadFile(tree, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// tokensOf returns the text of all tokens of a kind in a Go file.
func tokensOf(source []byte, kind token.Token) (texts []string) {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var scan scanner.Scanner
	scan.Init(file, source, nil, scanner.ScanComments)
	for {
		_, found, text := scan.Scan()
		switch found {
		case token.EOF:
			return texts
		case kind:
			texts = append(texts, text)
		}
	}
}

func TestTokensOf(t *testing.T) {
	source := []byte("package p // a comment\nvar a, b = \"one\", `two` /* another */\n")
	texts, comments := tokensOf(source, token.STRING), tokensOf(source, token.COMMENT)
	if !slices.Equal(texts, []string{`"one"`, "`two`"}) || !slices.Equal(comments, []string{"// a comment", "/* another */"}) {
		t.Errorf("got %q and %q", texts, comments)
	}
}
