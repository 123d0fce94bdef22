package foreign

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// lineWidth is the longest line of a comment, unless a word is longer.
const lineWidth = 100

// YAML returns the objects as documents for kubectl apply. Each Translation begins with a comment that lists its differences; without objects it
// is the comment alone.
func YAML(all []Translation) (string, error) {
	var out strings.Builder
	for i, t := range all {
		if i > 0 {
			out.WriteString("---\n")
		}
		comment(&out, "", t.From)
		for _, d := range t.Differences {
			comment(&out, "- ", d)
		}
		if t.Err != nil {
			comment(&out, "- ", "It is not translated: "+t.Err.Error())
		}
		if t.Old.Import != "" {
			comment(&out, "- ", "Their snapshots stay. This command stores them as backups too:")
			out.WriteString("#     " + t.Old.Import + "\n")
		}
		for j, object := range t.Objects {
			if j > 0 {
				out.WriteString("---\n")
			}
			text, err := yaml.Marshal(object)
			if err != nil {
				return "", fmt.Errorf("write %s as YAML: %w", t.From, err)
			}
			out.Write(text)
		}
	}
	return out.String(), nil
}

// comment writes text as lines of a comment. All lines but the first are indented as far as the text after mark.
func comment(out *strings.Builder, mark, text string) {
	line := "# " + mark
	for i, word := range strings.Fields(text) { // Fields also removes line breaks, which would end the comment
		switch {
		case i == 0:
			line += word
		case len(line)+1+len(word) > lineWidth:
			out.WriteString(line + "\n")
			line = "# " + strings.Repeat(" ", len(mark)) + word
		default:
			line += " " + word
		}
	}
	out.WriteString(line + "\n")
}
