package stores

import "testing"

// FollowAtOnce makes each call read the credentials again.
func FollowAtOnce(t *testing.T) {
	before := rereadAfter
	rereadAfter = 0
	t.Cleanup(func() { rereadAfter = before })
}
