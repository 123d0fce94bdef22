package test

import (
	"fmt"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear matches words that messages must not contain. The first three hide the actor: name the operator, the attacker or the member.
// Instead of the others write continue, is ignored, a new one, nevertheless, or correct.
var unclear = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|goes on|go on|counts? for nothing|anew|all the same|mend)\b`)

// TestTreeMessagesArePlain checks the texts of the program, which operators read, as TestTreeCommentsArePlain checks comments.
func TestTreeMessagesArePlain(t *testing.T) {
	var faults []string
	for name, source := range goFiles(t) {
		if strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "storage/storagetest/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, text := range tokensOf(source, token.STRING) {
			if unclear.MatchString(text) {
				faults = append(faults, fmt.Sprintf("%s: %s", name, text))
			}
		}
	}
	slices.Sort(faults)
	report(t, faults)
}
