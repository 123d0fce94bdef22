package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/dustin/go-humanize"
)

// checkedWriter is stdout. It keeps the first error, so that verbs need not check each line that they print.
type checkedWriter struct {
	io.Writer
	mu  sync.Mutex
	err error
}

func (p *checkedWriter) Write(data []byte) (int, error) {
	n, err := p.Writer.Write(data)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = cmp.Or(p.err, err)
	}
	return n, err
}

// check returns err, the result of a verb, or the error of writing to stdout if err is nil.
func (p *checkedWriter) check(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || err != nil && !errors.Is(err, p.err) {
		return err
	}
	return fmt.Errorf("stdout: %w: the output is incomplete: redirect it to a file system with free space", p.err)
}

// visible returns text with control characters, except line ends and tabs, as Go's escapes. Names and reasons come from
// repositories, and an attacker who writes there could otherwise control the operator's terminal.
func visible(text string) string {
	return escape(text, func(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") })
}

// escape returns text with each control character replaced.
func escape(text string, replaced func(rune) string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isControl(r) {
			b.WriteString(replaced(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// jsonWriter writes JSON with control characters, except line ends and tabs, as JSON's escapes: encoding/json escapes only those below
// U+0020. Each call of Write gets whole values.
type jsonWriter struct{ io.Writer }

func (w jsonWriter) Write(data []byte) (int, error) {
	text := escape(string(data), func(r rune) string {
		var escaped strings.Builder
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
		return escaped.String()
	})
	_, err := io.WriteString(w.Writer, text)
	if err != nil {
		return 0, err
	}
	return len(data), nil
}

// isControl reports whether a terminal may act on r instead of showing it: r is a control character, or changes the direction of the
// text after it. (Unicode categories Cc and Cf)
func isControl(r rune) bool {
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf)
}

// table prints rows under a header, in columns.
func (a *app) table(header []string, rows [][]string) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, visible(strings.Join(row, "\t")))
	}
	w.Flush()
}

// facts prints pairs, in which names and values alternate, one pair a line. It omits a pair whose value is empty.
func (a *app) facts(pairs ...string) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 3, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "  %s\t%s\n", pairs[i], visible(pairs[i+1]))
		}
	}
	w.Flush()
}

func size(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }

// age returns how long ago t was, in one unit; "now" for less than a second and for the future.
func age(t, now time.Time) string {
	d := now.Sub(t)
	if d < time.Second {
		return "now"
	}
	return length(d) + " ago"
}

// length returns d in one unit, rounded down.
func length(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }
