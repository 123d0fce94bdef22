package test

import (
	"cmp"
	"fmt"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// usage is a group of words and how often it may and must occur, per thousand words of comment.
type usage struct {
	name  string
	words []string
	most  float64 // no limit if 0
	least float64
}

// usages come from the comments of the standard library and of other backup tools: these use "what" as a noun 0.3 times in a
// thousand words at most, and "returns" 4 to 14 times. A test cannot tell a noun from a question, so it counts every "what".
var usages = []usage{
	{name: "what", words: []string{"what"}, most: 2},
	{name: "whoever", words: []string{"whoever", "nobody", "somebody"}, most: 0.5},
	{name: "says", words: []string{"says", "tells", "told"}, most: 1.5},
	{name: "returns", words: []string{"returns", "reports"}, least: 8},
}

// generated is the line that marks a generated file, from go help generate.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// tally counts the words of one file's comments, or of several files': all of them, and those of each usage.
type tally struct {
	name  string
	words int
	uses  []int // parallel to usages
}

func TestTreeCommentsArePlain(t *testing.T) {
	report(t, usageFaults(tallyTree(t)))
}

// tallyTree counts the words in the comments of each Go file.
func tallyTree(t *testing.T) (files []tally) {
	t.Helper()
	for name, source := range goFiles(t) {
		if !generated.Match(source) {
			files = append(files, tallyWords(name, commentsOf(source)))
		}
	}
	return files
}

// commentsOf returns the text of all comments in a Go file, without directives like //go:build.
func commentsOf(source []byte) string {
	comments := tokensOf(source, token.COMMENT)
	comments = slices.DeleteFunc(comments, func(c string) bool { return strings.HasPrefix(c, "//go:") })
	return strings.Join(comments, "\n")
}

// tallyWords counts runs of letters, in whatever case.
func tallyWords(name, text string) tally {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) })
	counted := tally{name: name, words: len(words), uses: make([]int, len(usages))}
	for _, word := range words {
		for i, usage := range usages {
			if slices.Contains(usage.words, word) {
				counted.uses[i]++
			}
		}
	}
	return counted
}

// usageFaults returns a line for each usage that all files together break, followed by the files that contribute most to it.
func usageFaults(files []tally) []string {
	all := sum(files)
	var faults []string
	for i, usage := range usages {
		if excess(all, i) <= 0 {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s: %.1f in a thousand words of comment, want %s; the worst files:%s",
			strings.Join(usage.words, ", "), perThousand(all, i), usage.limit(), worstFiles(files, i)))
	}
	return faults
}

func (u usage) limit() string {
	if u.most > 0 {
		return fmt.Sprintf("at most %g", u.most)
	}
	return fmt.Sprintf("at least %g", u.least)
}

func sum(files []tally) tally {
	all := tally{uses: make([]int, len(usages))}
	for _, file := range files {
		all.words += file.words
		for i, n := range file.uses {
			all.uses[i] += n
		}
	}
	return all
}

func perThousand(counted tally, i int) float64 {
	if counted.words == 0 {
		return 0
	}
	return float64(counted.uses[i]) * 1000 / float64(counted.words)
}

// excess returns how many words of usage i are too many or missing, and a number up to 0 if there are none.
func excess(counted tally, i int) float64 {
	share := float64(counted.words) / 1000
	if usages[i].most > 0 {
		return float64(counted.uses[i]) - usages[i].most*share
	}
	return usages[i].least*share - float64(counted.uses[i])
}

// worstFiles returns a line for each of the ten files with the largest excess of usage i.
func worstFiles(files []tally, i int) string {
	const most = 10
	worst := slices.Clone(files)
	slices.SortStableFunc(worst, func(a, b tally) int { return cmp.Compare(excess(b, i), excess(a, i)) })
	var lines strings.Builder
	for _, file := range worst[:min(most, len(worst))] {
		if excess(file, i) > 0 {
			fmt.Fprintf(&lines, "\n\t%3d in %4d words  %s", file.uses[i], file.words, file.name)
		}
	}
	return lines.String()
}

func TestTreeCommentRuleFindsEveryBreach(t *testing.T) {
	good := strings.Repeat("// first returns the first element of a list, or reports an error.\n", 20)
	for _, test := range []struct {
		comment string
		broken  int
	}{
		{good, 0},
		{good + "// what", 1},
		{good + "/* What follows. */", 1},
		{good + "// whoever asks", 1},
		{good + "// the store says so", 1},
		{good + "// the store says what nobody knows", 3},
		{strings.ReplaceAll(good, "returns", "is"), 0},
		{"// first is the first element of a list.", 1},
		{good + "//go:generate what", 0},
		{good + `const text = "// what whoever says"`, 0},
	} {
		file := tallyWords("x.go", commentsOf([]byte("package x\n"+test.comment+"\n")))
		faults := usageFaults([]tally{file})
		if len(faults) != test.broken {
			t.Errorf("%s: got %q, want %d faults", strings.TrimPrefix(test.comment, good), faults, test.broken)
		}
		for _, fault := range faults {
			if !strings.Contains(fault, "x.go") {
				t.Errorf("%q does not name the file", fault)
			}
		}
	}
}

func TestTreeCommentRuleNamesTheWorstFileFirst(t *testing.T) {
	files := []tally{tallyWords("good.go", "returns"), tallyWords("bad.go", "what"), tallyWords("worse.go", "what is what")}
	fault := usageFaults(files)[0]
	if strings.Contains(fault, "good.go") || strings.Index(fault, "worse.go") > strings.Index(fault, "bad.go") {
		t.Errorf("got %q, want worse.go, then bad.go", fault)
	}
}
