package readme

import (
	"regexp"
	"strings"
)

// masks replace the parts that differ from run to run with names, in this order.
var masks = []struct {
	what *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`infra\d \([0-9a-f]+\)`), "LEADER"},
	{regexp.MustCompile(`age1[0-9a-z]{8,}`), "RECIPIENT"},
	{regexp.MustCompile(`RW[0-9A-Za-z+/]{54}`), "SIGNER"},
	{regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`), "IDENTITY"},
	{regexp.MustCompile(`dr-[0-9a-z]{20}`), "TOKEN"},
	{regexp.MustCompile(`\d{8}T\d{6}(\.\d+)?Z(-[0-9a-f]{16})?`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+`), "TIME"},
	{regexp.MustCompile(`/tmp/[A-Za-z0-9._/-]+`), "DIR"},
	{regexp.MustCompile(`\b[0-9a-f]{7,64}\b`), "HEX"},
	{regexp.MustCompile(`\b(\d+[smhd] ago|now|\d+[smh]old)\b`), "AGO"},
	{regexp.MustCompile(`\d+(\.\d+)? ?(B|kB|MB|KiB|MiB|GiB|ms|s|m|h)\b`), "N"},
	{regexp.MustCompile(`\d+\.\d+`), "N"},
	{regexp.MustCompile(`\b\d{3,}\b`), "N"},
	{regexp.MustCompile(`\s+`), " "},
}

func masked(line string) string {
	line = strings.TrimSpace(line)
	for _, m := range masks {
		line = m.what.ReplaceAllString(line, m.mask)
	}
	return line
}

// matches compares the lines on a page with the actual ones. A line "…" matches any number of lines, and empty lines at
// both ends are ignored.
func matches(want, got []string) bool {
	want, got = trim(want), trim(got)
	for len(want) > 0 {
		if strings.TrimSpace(want[0]) == "…" {
			for skip := range len(got) + 1 {
				if matches(want[1:], got[skip:]) {
					return true
				}
			}
			return false
		}
		if len(got) == 0 || masked(want[0]) != masked(got[0]) {
			return false
		}
		want, got = want[1:], got[1:]
	}
	return len(got) == 0
}

func trim(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
