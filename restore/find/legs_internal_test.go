package find

import "testing"

// TestWindowOfRevisions uses exact changes, and those that were found by comparing two backups.
func TestWindowOfRevisions(t *testing.T) {
	for name, test := range map[string]struct {
		window Window
		change Change
		holds  bool
	}{
		"exact, at the end":        {Window{ToRevision: 50}, Change{Revision: 50}, true},
		"exact, after the end":     {Window{ToRevision: 50}, Change{Revision: 51}, false},
		"possibly within":          {Window{ToRevision: 50}, Change{After: 40, Revision: 60}, true},
		"possibly at the end":      {Window{ToRevision: 50}, Change{After: 49, Revision: 60}, true},
		"certainly after the end":  {Window{ToRevision: 50}, Change{After: 50, Revision: 60}, false},
		"possibly at the start":    {Window{FromRevision: 60}, Change{After: 40, Revision: 60}, true},
		"certainly before":         {Window{FromRevision: 61}, Change{After: 40, Revision: 60}, false},
		"with the next history":    {Window{ToRevision: 50}, Change{After: 50, Revision: 50}, true},
		"around the whole window":  {Window{FromRevision: 45, ToRevision: 50}, Change{After: 40, Revision: 60}, true},
		"no window":                {Window{}, Change{After: 40, Revision: 60}, true},
		"exact, before the window": {Window{FromRevision: 45, ToRevision: 50}, Change{Revision: 44}, false},
	} {
		got := test.window.holds(test.change)
		if got != test.holds {
			t.Errorf("%s: %t, expected %t", name, got, test.holds)
		}
	}
}
