package when_test

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/when"
)

func ExampleParse() {
	now := time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"2h ago", "2026-11-21 10:00:00Z", "2h"} {
		fmt.Println(when.Parse(text, now))
	}
	// Output:
	// 2026-11-21 10:00:00 +0000 UTC <nil>
	// 2026-11-21 10:00:00 +0000 UTC <nil>
	// 0001-01-01 00:00:00 +0000 UTC invalid time: "2h": use 2026-11-21T10:00:00Z, or "2h ago"
}
